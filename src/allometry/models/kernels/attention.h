// Shared by the kernels of this folder: softmax attention of short sequences, head by head.
//
// Shapes: b batch, n positions, h heads, m head size, g groups of the batch. `y` is (b, n, 3 h, m):
// queries, keys and values of a token, concatenated. Queries and keys are rotated by `turn`
// (g, 2, n, m / 2), cosines and sines, while they are copied, and their gradients are rotated back.
// The backward pass also needs the log-sum-exp of each row.

#pragma once

#include <cmath>

#include "registers.h"

namespace {

#ifdef __AVX512F__
constexpr int64_t R = 8;  // rows processed at once
#else
constexpr int64_t R = 4;
#endif

inline V larger(V a, V b) { return a > b ? a : b; }

inline float largest(V x) {
  for (int by = W / 2; by > 0; by /= 2) x = larger(x, rolled(x, by));
  return x[0];
}

struct Shape {
  int64_t b, n, h, m, np, mp;
  int64_t step, wide;  // from a token to the next in `y` and in the output; may be padded
  bool causal;
  float scale;
  std::vector<float> turns;  // (g, 2, n, m): whole rows, sines negative in their first half
  int64_t groups;
  Shape(const int64_t* sizes, float scale, const float* turn)
      : b(sizes[0]), n(sizes[1]), h(sizes[2]), m(sizes[3]), np(up(n, std::max(W, R))),
        mp(up(m, W)), step(3 * h * m), wide(h * m), causal(sizes[4] != 0), scale(scale), groups(sizes[6]) {
    if (turn == nullptr) return;
    const int64_t half = m / 2, size = n * m;
    turns.resize(groups * 2 * size);
    for (int64_t part = 0; part < 2 * groups; ++part)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < half; ++c) {
          const float value = turn[(part * n + i) * half + c];
          turns[part * size + i * m + c] = part % 2 ? -value : value;
          turns[part * size + i * m + c + half] = value;
        }
  }
  const float* turn(int64_t batch) const {
    return turns.empty() ? nullptr : turns.data() + batch * groups / b * 2 * n * m;
  }
  // Columns that rows i to i + R attend to, in whole registers.
  int64_t seen(int64_t i) const { return causal ? std::min(np, up(i + R, W)) : up(n, W); }
};

// A row rotated by `sign` times its angles and scaled. Pairs are (c, c + m / 2).
inline void turn_row(const Shape& s, const float* turn, const float* from, int64_t i, float sign,
                     float by, float* to) {
  const float *cosine = turn + i * s.m, *sine = cosine + s.n * s.m;
  if (s.m == W) {
    const V x = load(from) * by;
    store(to, x * load(cosine) + rolled(x, W / 2) * (load(sine) * sign));
    return;
  }
  const int64_t half = s.m / 2;
  int64_t c = 0;
  for (; c + W <= half; c += W) {
    const V x = load(from + c) * by, y = load(from + c + half) * by;
    store(to + c, x * load(cosine + c) + y * (load(sine + c) * sign));
    store(to + c + half, y * load(cosine + c) + x * (load(sine + c + half) * sign));
  }
  for (; c < half; ++c) {
    const float x = by * from[c], y = by * from[c + half];
    to[c] = x * cosine[c] + y * sign * sine[c];
    to[c + half] = y * cosine[c] + x * sign * sine[c + half];
  }
}

// Copy rows `step` apart to rows `wide` apart, rotated if there is a rotation, and scaled.
inline void lay(const Shape& s, const float* turn, const float* from, int64_t step, float sign, float by,
         float* to, int64_t wide) {
  for (int64_t i = 0; i < s.n; ++i, from += step, to += wide) {
    if (turn != nullptr) {
      turn_row(s, turn, from, i, sign, by, to);
      continue;
    }
    int64_t c = 0;
    for (; c + W <= s.m; c += W) store(to + c, load(from + c) * by);
    for (; c < s.m; ++c) to[c] = by * from[c];
  }
}

// (np, mp) to (mp, np), a square of registers at a time.
inline void transpose(const Shape& s, const float* from, float* to) {
  for (int64_t i = 0; i < s.np; i += W)
    for (int64_t c = 0; c < s.mp; c += W)
      on_side(from + i * s.mp + c, s.mp, to + c * s.np + i, s.np);
}

// out (R, np) = a (R, m) times bt (m, np), the first `columns` of them.
template <int64_t N>
inline void product_part(const Shape& s, const float* a, const float* bt, float* out) {
  V sum[R][N] = {};
  for (int64_t c = 0; c < s.m; ++c) {
    V right[N];
    for (int64_t k = 0; k < N; ++k) right[k] = load(bt + c * s.np + k * W);
    for (int64_t r = 0; r < R; ++r)
      for (int64_t k = 0; k < N; ++k) sum[r][k] += a[r * s.mp + c] * right[k];
  }
  for (int64_t r = 0; r < R; ++r)
    for (int64_t k = 0; k < N; ++k) store(out + r * s.np + k * W, sum[r][k]);
}

inline void product(const Shape& s, const float* a, const float* bt, int64_t columns, float* out) {
  int64_t j = 0;
  for (; j + 2 * W <= columns; j += 2 * W) product_part<2>(s, a, bt + j, out + j);
  for (; j < columns; j += W) product_part<1>(s, a, bt + j, out + j);
}

// out (R, mp) = sum over j of w[r * along + j * across] times row j of x (., mp).
inline void mixture(const Shape& s, const float* w, int64_t along, int64_t across, const float* x,
                    int64_t first, int64_t last, float* out) {
  for (int64_t c = 0; c < s.mp; c += W) {
    V sum[R] = {};
    for (int64_t j = first; j < last; ++j) {
      const V row = load(x + j * s.mp + c);
      for (int64_t r = 0; r < R; ++r) sum[r] += w[r * along + j * across] * row;
    }
    for (int64_t r = 0; r < R; ++r) store(out + r * s.mp + c, sum[r]);
  }
}

// Fill the masked columns of row i, up to `columns`, with `value`.
inline void hide(const Shape& s, int64_t i, int64_t columns, float value, float* row) {
  const int64_t last = s.causal ? i : s.n - 1;
  for (int64_t j = (last + 1) / W * W; j < columns; j += W)
    store(row + j, lanes() + int(j) <= int(last) ? load(row + j) : all(value));
}

// Start of the data of a head: b, h, and the distance from queries to keys and to values.
struct Head {
  int64_t b, h, width;
  Head(const Shape& s, int64_t index) : b(index / s.h), h(index % s.h), width(s.h * s.m) {}
  int64_t joined(const Shape& s) const { return b * s.n * s.step + h * s.m; }
  int64_t own(const Shape& s) const { return b * s.n * s.wide + h * s.m; }
};

// Numbers of working memory that each pass needs, zero at first.
inline int64_t forward_room(const Shape& s) { return 5 * s.np * s.mp + R * s.np; }
inline int64_t backward_room(const Shape& s) { return 9 * s.np * s.mp + 2 * s.np * s.np; }

// Scaled queries, keys, transposed keys and values of a head.
inline void lay_head(const Shape& s, const Head& head, const float* y, float* q, float* k, float* v,
              float* kt) {
  const float *tokens = y + head.joined(s), *turn = s.turn(head.b);
  lay(s, turn, tokens, s.step, 1.0f, s.scale, q, s.mp);
  lay(s, turn, tokens + head.width, s.step, 1.0f, 1.0f, k, s.mp);
  lay(s, nullptr, tokens + 2 * head.width, s.step, 1.0f, 1.0f, v, s.mp);
  transpose(s, k, kt);
}

inline void forward_heads(const Shape& s, const float* y, float* out, float* lse, float* room,
                          int64_t from, int64_t to) {
  const int64_t flat = s.np * s.mp;
  float *q = room, *k = q + flat, *v = k + flat, *kt = v + flat, *o = kt + flat;
  float* e = o + flat;
  for (int64_t index = from; index < to; ++index) {
    const Head head(s, index);
    lay_head(s, head, y, q, k, v, kt);
    for (int64_t i = 0; i < s.n; i += R) {
      const int64_t columns = s.seen(i), rows = std::min(R, s.n - i);
      float shares[R];
      product(s, q + i * s.mp, kt, columns, e);
      for (int64_t r = 0; r < rows; ++r) {
        float* row = e + r * s.np;
        hide(s, i + r, columns, -INFINITY, row);
        V best = load(row), sum{};
        for (int64_t j = W; j < columns; j += W) best = larger(load(row + j), best);
        const float top = largest(best);
        for (int64_t j = 0; j < columns; j += W) {
          const V weight = exponential(load(row + j) - top);
          store(row + j, weight);
          sum += weight;
        }
        const float whole = total(sum);
        shares[r] = 1.0f / whole;
        lse[index * s.n + i + r] = top + std::log(whole);
      }
      mixture(s, e, s.np, 1, v, 0, std::min(columns, s.n), o + i * s.mp);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < s.mp; c += W) {
          float* at = o + (i + r) * s.mp + c;
          store(at, load(at) * shares[r]);
        }
    }
    lay(s, nullptr, o, s.mp, 1.0f, 1.0f, out + head.own(s), s.wide);
  }
}

inline void backward_heads(const Shape& s, const float* g, const float* y, const float* lse,
                           float* dy, float* room, int64_t from, int64_t to) {
  const int64_t flat = s.np * s.mp, square = s.np * s.np;
  float *q = room, *k = q + flat, *v = k + flat, *kt = v + flat, *vt = kt + flat;
  float *go = vt + flat, *dq = go + flat, *dk = dq + flat, *dv = dk + flat;
  float *p = dv + flat, *ds = p + square;
  for (int64_t index = from; index < to; ++index) {
    const Head head(s, index);
    lay_head(s, head, y, q, k, v, kt);
    transpose(s, v, vt);
    lay(s, nullptr, g + head.own(s), s.wide, 1.0f, 1.0f, go, s.mp);
    for (int64_t i = 0; i < s.n; i += R) {
      const int64_t columns = s.seen(i), rows = std::min(R, s.n - i);
      product(s, q + i * s.mp, kt, columns, p + i * s.np);
      product(s, go + i * s.mp, vt, columns, ds + i * s.np);
      for (int64_t r = 0; r < rows; ++r) {
        float *weight = p + (i + r) * s.np, *slope = ds + (i + r) * s.np;
        hide(s, i + r, columns, -INFINITY, weight);
        const float log_sum = lse[index * s.n + i + r];
        V sum{};
        for (int64_t j = 0; j < columns; j += W) {
          const V one = exponential(load(weight + j) - log_sum);
          store(weight + j, one);
          sum += one * load(slope + j);
        }
        const float mean = total(sum);  // of the gradients under the attention weights
        for (int64_t j = 0; j < columns; j += W)
          store(slope + j, load(weight + j) * (load(slope + j) - mean));
      }
      mixture(s, ds + i * s.np, s.np, 1, k, 0, std::min(columns, s.n), dq + i * s.mp);
    }
    for (int64_t j = 0; j < s.n; j += R) {
      // Rows before j do not attend to these columns; masked entries of later rows have weight 0.
      const int64_t first = s.causal ? j : 0;
      mixture(s, ds + j, 1, s.np, q, first, s.n, dk + j * s.mp);
      mixture(s, p + j, 1, s.np, go, first, s.n, dv + j * s.mp);
    }
    float* back = dy + head.joined(s);
    const float* turn = s.turn(head.b);
    lay(s, turn, dq, s.mp, -1.0f, s.scale, back, s.step);
    lay(s, turn, dk, s.mp, -1.0f, 1.0f, back + head.width, s.step);
    lay(s, nullptr, dv, s.mp, 1.0f, 1.0f, back + 2 * head.width, s.step);
  }
}

}  // namespace

