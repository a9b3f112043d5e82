// Shared by decoder.cpp: sizes, weights and elementwise functions of a decoder transformer.
//
// Shapes: n positions, d width, a = h m heads times their size, r hidden size, v outputs. A size with
// the suffix p is padded to whole registers; padding is zero in weights and activations.

#pragma once

#include <cmath>

#include "attention.h"
#include "products.h"

namespace {

// Integers that Python sends, in this order.
struct Sizes {
  int64_t models, b, n, width, heads, size, hidden, depth, outputs, tokens, threads, activation;
};

// Activations of the feed-forward layers.
enum Activation { GELU, RELU, SILU };

// Real numbers that Python sends, in this order.
struct Numbers {
  float scale, eps, final_eps, factor;  // of scores; of norms; of the last norm; of the logits
};

// A linear layer: `plain` (out, in_p), `turned` (in, out_p) and `bias` (out_p) in their arrays.
struct Dense {
  int64_t in, out, in_p, out_p, plain, turned, bias;
};

struct Norm {
  int64_t gain, shift;
};

struct Layer {
  Norm first, second;
  Dense qkv, output, inner, outer;
};

// Where a parameter of Python's list goes: rows of `columns` numbers to rows `step` apart.
struct Part {
  int64_t rows, columns, at, step;
};

// Places of all weights of a model in one array, which is also the layout of their gradients.
struct Layout {
  Sizes s;
  int64_t dp, ap, ep, rp, vp;
  std::vector<Layer> layers;
  std::vector<Part> parts;
  Norm last;
  Dense readout;
  int64_t table, places, size = 0, turned = 0;

  explicit Layout(const Sizes& s)
      : s(s), dp(up(s.width, LANES)), ap(up(s.heads * s.size, LANES)),
        ep(up(3 * s.heads * s.size, LANES)), rp(up(s.hidden, LANES)), vp(up(s.outputs, LANES)) {
    const int64_t d = s.width, a = s.heads * s.size, r = s.hidden, v = s.outputs;
    table = matrix(s.tokens, d, dp);
    places = matrix(s.n, d, dp);
    readout = dense(d, v);
    part(v, d, readout.plain, dp);
    part(1, v, readout.bias, vp);
    last = norm();
    for (int64_t l = 0; l < s.depth; ++l) {
      Layer layer;
      layer.first = norm();
      layer.qkv = dense(d, 3 * a);
      for (int64_t k = 0; k < 3; ++k) part(a, d, layer.qkv.plain + k * a * dp, dp);
      for (int64_t k = 0; k < 3; ++k) part(1, a, layer.qkv.bias + k * a, a);
      layer.output = dense(a, d);
      part(d, a, layer.output.plain, ap);
      part(1, d, layer.output.bias, dp);
      layer.second = norm();
      layer.inner = dense(d, r);
      part(r, d, layer.inner.plain, dp);
      part(1, r, layer.inner.bias, rp);
      layer.outer = dense(r, d);
      part(d, r, layer.outer.plain, rp);
      part(1, d, layer.outer.bias, dp);
      layers.push_back(layer);
    }
  }

  // Copy the weights of a model; `given` has null for those that do not exist.
  void load(const float* const* given, float* plain, float* turned_at) const {
    for (size_t i = 0; i < parts.size(); ++i)
      if (given[i] != nullptr)
        lay(given[i], parts[i].columns, plain + parts[i].at, parts[i].step, parts[i].rows,
            parts[i].columns);
    turn(readout, plain, turned_at);
    for (const Layer& layer : layers)
      for (const Dense* each : {&layer.qkv, &layer.output, &layer.inner, &layer.outer})
        turn(*each, plain, turned_at);
  }

  // Add gradients to those of Python's list.
  void add(const float* gradient, float* const* wanted) const {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (wanted[i] == nullptr) continue;
      const Part& part = parts[i];
      for (int64_t r = 0; r < part.rows; ++r)
        for (int64_t c = 0; c < part.columns; ++c)
          wanted[i][r * part.columns + c] += gradient[part.at + r * part.step + c];
    }
  }

 private:
  void part(int64_t rows, int64_t columns, int64_t at, int64_t step) {
    parts.push_back({rows, columns, at, step});
  }
  int64_t take(int64_t count) {
    const int64_t at = size;
    size += up(count, LANES);
    return at;
  }
  int64_t matrix(int64_t rows, int64_t columns, int64_t step) {
    const int64_t at = take(rows * step);
    part(rows, columns, at, step);
    return at;
  }
  Norm norm() {
    Norm norm;
    norm.gain = matrix(1, s.width, dp);
    norm.shift = matrix(1, s.width, dp);
    return norm;
  }
  Dense dense(int64_t in, int64_t out) {
    Dense made{in, out, up(in, LANES), up(out, LANES), 0, 0, 0};
    made.plain = take(out * made.in_p);
    made.bias = take(made.out_p);
    made.turned = turned;
    turned += in * made.out_p;
    return made;
  }
  static void turn(const Dense& layer, const float* plain, float* turned_at) {
    lay_on_side(plain + layer.plain, layer.in, layer.out, layer.in_p, turned_at + layer.turned,
                layer.out_p);
  }
};

// erf to about three units in the last place: a rational function of odd order.
inline V error_function(V x) {
  x = x > 4.0f ? all(4.0f) : x < -4.0f ? all(-4.0f) : x;
  const V y = x * x;
  V p = y * -2.72614225801306e-10f + 2.77068142495902e-08f;
  p = p * y - 2.10102402082508e-06f;
  p = p * y - 5.69250639462346e-05f;
  p = p * y - 7.34990630326855e-04f;
  p = p * y - 2.95459980854025e-03f;
  p = p * y - 1.60960333262415e-02f;
  V q = y * -1.45660718464996e-05f - 2.13374055278905e-04f;
  q = q * y - 1.68282697438203e-03f;
  q = q * y - 7.37332916720468e-03f;
  q = q * y - 1.42647390514189e-02f;
  return x * p / q;
}

inline V sigmoid(V x) {
  const V e = exponential(x < 0.0f ? x : -x);
  return (x < 0.0f ? e : all(1.0f)) / (1.0f + e);
}

// Replace `x` by its activation, and store the slope there unless `slope` is null.
template <Activation kind>
inline void activate(float* x, float* slope, int64_t count) {
  for (int64_t i = 0; i < count; i += W) {
    const V t = load(x + i);
    V value, gain;
    if (kind == GELU) {
      const V share = 0.5f + 0.5f * error_function(t * 0.70710678f);
      value = t * share;
      gain = share + t * exponential(t * t * -0.5f) * 0.39894228f;
    } else if (kind == RELU) {
      value = t <= 0.0f ? V{} : t;
      gain = t <= 0.0f ? V{} : all(1.0f);
    } else {
      const V share = sigmoid(t);
      value = t * share;
      gain = share + value * (1.0f - share);
    }
    store(x + i, value);
    if (slope != nullptr) store(slope + i, gain);
  }
}

inline void activate(int64_t kind, float* x, float* slope, int64_t count) {
  if (kind == GELU) activate<GELU>(x, slope, count);
  else if (kind == RELU) activate<RELU>(x, slope, count);
  else activate<SILU>(x, slope, count);
}

// 1 in lanes before `count`, else 0.
inline V kept(int64_t count) {
  return __builtin_convertvector((lanes() < int(std::min(count, W))) & 1, V);
}

// y = (x - mean) / deviation * gain + shift of each row; `moments` has mean and 1 / deviation.
inline void normalise(const float* x, const float* gain, const float* shift, float eps,
                      int64_t rows, int64_t d, int64_t dp, float* y, float* moments) {
  for (int64_t i = 0; i < rows; ++i, x += dp, y += dp, moments += 2) {
    V sum{}, square{};
    for (int64_t c = 0; c < d; c += W) sum += load(x + c);
    const float mean = total(sum) / d;
    for (int64_t c = 0; c < d; c += W) {
      const V gap = (load(x + c) - mean) * kept(d - c);
      square += gap * gap;
    }
    const float inverse = 1.0f / std::sqrt(total(square) / d + eps);
    for (int64_t c = 0; c < dp; c += W)
      store(y + c, (load(x + c) - mean) * inverse * load(gain + c) + load(shift + c));
    moments[0] = mean;
    moments[1] = inverse;
  }
}

// Add the gradient of `normalise` to `dx` and to those of gain and shift.
inline void normalise_back(const float* dy, const float* x, const float* moments,
                           const float* gain, int64_t rows, int64_t d, int64_t dp, float* dx,
                           float* dgain, float* dshift) {
  for (int64_t i = 0; i < rows; ++i, x += dp, dy += dp, dx += dp, moments += 2) {
    const float mean = moments[0], inverse = moments[1];
    V sum{}, product{};
    for (int64_t c = 0; c < d; c += W) {
      const V unit = (load(x + c) - mean) * inverse, slope = load(dy + c);
      const V back = slope * load(gain + c);
      sum += back;
      product += back * unit;
      store(dgain + c, load(dgain + c) + slope * unit);
      store(dshift + c, load(dshift + c) + slope);
    }
    const float first = total(sum) / d, second = total(product) / d;
    for (int64_t c = 0; c < d; c += W) {
      const V unit = (load(x + c) - mean) * inverse;
      const V back = load(dy + c) * load(gain + c) - first - unit * second;
      store(dx + c, load(dx + c) + back * inverse * kept(d - c));
    }
  }
}

}  // namespace
