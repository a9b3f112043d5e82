// The recurrence h_t = exp(dt_t A) h_(t-1) + dt_t B_t x_t, y_t = C_t h_t of every channel.
//
// Shapes: b batch, l positions, d channels, n states, g groups of the batch with their own A.
// x, dt and y are (b, l, d), A is (g, d, n) and negative, B and C are (b, l, n). Lanes of a register
// are channels; the states of W channels stay in the cache for the whole sequence. The backward pass
// computes the states again instead of reading them from memory.

#include "registers.h"

namespace {

struct Sizes {
  int64_t b, l, d, n, groups, threads;
  explicit Sizes(const int64_t* s)
      : b(s[0]), l(s[1]), d(s[2]), n(s[3]), groups(s[4]), threads(s[5]) {}
  const float* rates(const float* A, int64_t row) const {
    return A + row * groups / b * d * n;
  }
};

// Up to W numbers; missing lanes are 0.
inline V some(const float* p, int64_t count) {
  if (count >= W) return load(p);
  V v{};
  std::memcpy(&v, p, 4 * count);
  return v;
}

inline void put(float* p, V v, int64_t count) { std::memcpy(p, &v, 4 * std::min(count, W)); }

// Rates of W channels, one register per state.
inline void lay_rates(const Sizes& s, const float* A, int64_t first, int64_t count, V* to) {
  for (int64_t k = 0; k < s.n; ++k) {
    V v{};
    for (int64_t c = 0; c < std::min(count, W); ++c) v[c] = A[(first + c) * s.n + k];
    to[k] = v;
  }
}

void forward_rows(const Sizes& s, const float* x, const float* dt, const float* A, const float* B,
                  const float* C, float* y, float* last, int64_t from, int64_t to) {
  const Buffer memory(2 * s.n * W);
  V* rate = reinterpret_cast<V*>(memory.at);
  V* h = rate + s.n;
  for (int64_t row = from; row < to; ++row)
    for (int64_t c = 0; c < s.d; c += W) {
      const int64_t count = s.d - c;
      lay_rates(s, s.rates(A, row), c, count, rate);
      std::fill(h, h + s.n, V{});
      for (int64_t t = 0; t < s.l; ++t) {
        const int64_t at = (row * s.l + t) * s.d + c;
        const float *b = B + (row * s.l + t) * s.n, *w = C + (row * s.l + t) * s.n;
        const V step = some(dt + at, count), in = step * some(x + at, count);
        V out{};
        for (int64_t k = 0; k < s.n; ++k) {
          h[k] = exponential(step * rate[k]) * h[k] + in * b[k];
          out += h[k] * w[k];
        }
        put(y + at, out, count);
      }
      for (int64_t k = 0; k < s.n; ++k)
        for (int64_t i = 0; i < std::min(count, W); ++i)
          last[(row * s.d + c + i) * s.n + k] = h[k][i];
    }
}

void backward_rows(const Sizes& s, const float* gy, const float* x, const float* dt,
                   const float* A, const float* B, const float* C, float* gx, float* gdt,
                   float* gA, float* gB, float* gC, int64_t from, int64_t to) {
  const int64_t square = s.l * s.n;
  const Buffer memory((4 * square + 4 * s.n) * W);
  V* decay = reinterpret_cast<V*>(memory.at);
  V *h = decay + square, *sum_b = h + square, *sum_c = sum_b + square;
  V *rate = sum_c + square, *slope = rate + s.n, *sum_a = slope + s.n, *zero = sum_a + s.n;
  for (int64_t row = from; row < to; ++row) {
    std::fill(sum_b, sum_b + 2 * square, V{});
    for (int64_t c = 0; c < s.d; c += W) {
      const int64_t count = s.d - c;
      lay_rates(s, s.rates(A, row), c, count, rate);
      for (int64_t t = 0; t < s.l; ++t) {
        const int64_t at = (row * s.l + t) * s.d + c;
        const float* b = B + (row * s.l + t) * s.n;
        const V step = some(dt + at, count), in = step * some(x + at, count);
        const V* before = t ? h + (t - 1) * s.n : zero;
        for (int64_t k = 0; k < s.n; ++k) {
          const V a = exponential(step * rate[k]);
          decay[t * s.n + k] = a;
          h[t * s.n + k] = a * before[k] + in * b[k];
        }
      }
      std::fill(slope, slope + 2 * s.n, V{});
      for (int64_t t = s.l - 1; t >= 0; --t) {
        const int64_t at = (row * s.l + t) * s.d + c;
        const float *b = B + (row * s.l + t) * s.n, *w = C + (row * s.l + t) * s.n;
        const V g = some(gy + at, count), step = some(dt + at, count), value = some(x + at, count);
        const V in = step * value;
        const V* before = t ? h + (t - 1) * s.n : zero;
        V to_in{}, to_step{};
        for (int64_t k = 0; k < s.n; ++k) {
          const int64_t i = t * s.n + k;
          const V back = slope[k] + g * w[k];
          sum_c[i] += g * h[i];
          sum_b[i] += back * in;
          to_in += back * b[k];
          const V through = back * before[k] * decay[i];
          to_step += through * rate[k];
          sum_a[k] += through * step;
          slope[k] = back * decay[i];
        }
        put(gx + at, to_in * step, count);
        put(gdt + at, to_step + to_in * value, count);
      }
      for (int64_t k = 0; k < s.n; ++k)
        for (int64_t i = 0; i < std::min(count, W); ++i)
          gA[(row * s.d + c + i) * s.n + k] = sum_a[k][i];
    }
    for (int64_t i = 0; i < square; ++i) {
      gB[row * square + i] = total(sum_b[i]);
      gC[row * square + i] = total(sum_c[i]);
    }
  }
}

}  // namespace

// sizes: b, l, d, n, g, threads. `last` (b, d, n) is the state after the sequence.
extern "C" void selective_scan(const int64_t* sizes, const float* x, const float* dt,
                               const float* A, const float* B, const float* C, float* y,
                               float* last) {
  const Sizes s(sizes);
  shared_out(s.b, s.threads, [&](int64_t from, int64_t to) {
    forward_rows(s, x, dt, A, B, C, y, last, from, to);
  });
}

// gA is (b, d, n): one gradient for each row of the batch.
extern "C" void selective_scan_backward(const int64_t* sizes, const float* gy, const float* x,
                                        const float* dt, const float* A, const float* B,
                                        const float* C, float* gx, float* gdt, float* gA,
                                        float* gB, float* gC) {
  const Sizes s(sizes);
  shared_out(s.b, s.threads, [&](int64_t from, int64_t to) {
    backward_rows(s, gy, x, dt, A, B, C, gx, gdt, gA, gB, gC, from, to);
  });
}
