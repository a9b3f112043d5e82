// AdamW on the parameters of many models, in one pass over memory.
//
// Shapes: M models, P parameters of each. Torch's operations read and write every tensor once each:
// ten passes. Here a register of parameters goes through all of them.

#include <cmath>

#include "registers.h"

namespace {

// Everything of one row (P).
struct Row {
  float *parameter, *first, *second;
  const float *gradient, *inverse_rate, *shrink;
  float scale, factor, length, keep1, keep2, eps;
};

inline V root(V x) {
  for (int k = 0; k < W; ++k) x[k] = std::sqrt(x[k]);
  return x;
}

inline void update(const Row& r, V& p, V& m, V& v, V g, V inverse, V shrink) {
  g *= r.scale;
  m += (1.0f - r.keep1) * (g - m);
  v = v * r.keep2 + (1.0f - r.keep2) * g * g;
  p -= r.factor * p * shrink;
  p -= r.length * m / ((root(v) + r.eps) * inverse);
}

// The last parameters of a row, which fill no register.
inline V part(const float* from, int64_t count) {
  V x{};
  if (from != nullptr) std::memcpy(&x, from, 4 * count);
  return x;
}

void step(const Row& r, int64_t P) {
  int64_t i = 0;
  for (; i + W <= P; i += W) {
    V p = load(r.parameter + i), m = load(r.first + i), v = load(r.second + i);
    const V shrink = r.shrink == nullptr ? V{} : load(r.shrink + i);
    const V inverse = r.inverse_rate == nullptr ? all(1.0f) : load(r.inverse_rate + i);
    update(r, p, m, v, load(r.gradient + i), inverse, shrink);
    store(r.parameter + i, p);
    store(r.first + i, m);
    store(r.second + i, v);
  }
  const int64_t left = P - i;
  if (left == 0) return;
  V p = part(r.parameter + i, left), m = part(r.first + i, left), v = part(r.second + i, left);
  const V shrink = part(r.shrink == nullptr ? nullptr : r.shrink + i, left);
  const V inverse = r.inverse_rate == nullptr ? all(1.0f) : part(r.inverse_rate + i, left);
  update(r, p, m, v, part(r.gradient + i, left), inverse, shrink);
  std::memcpy(r.parameter + i, &p, 4 * left);
  std::memcpy(r.first + i, &m, 4 * left);
  std::memcpy(r.second + i, &v, 4 * left);
}

}  // namespace

// `sizes` is M, P and the stride of the gradient's rows; `rows` (M, 3) has the factor on the
// gradient, the factor of the schedule and the length of the step. `shrink` may be null.
extern "C" void adamw(const int64_t* sizes, float keep1, float keep2, float eps, float* parameters,
                      float* first, float* second, const float* gradient,
                      const float* inverse_rates, const float* shrink, const float* rows) {
  const int64_t M = sizes[0], P = sizes[1], apart = sizes[2];
  for (int64_t m = 0; m < M; ++m) {
    const int64_t at = m * P;
    const Row row{parameters + at, first + at, second + at, gradient + m * apart,
                  inverse_rates == nullptr ? nullptr : inverse_rates + at,
                  shrink == nullptr ? nullptr : shrink + at,
                  rows[3 * m], rows[3 * m + 1], rows[3 * m + 2], keep1, keep2, eps};
    step(row, P);
  }
}
