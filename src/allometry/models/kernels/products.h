// Shared by the kernels of this folder: matrix products whose tiles stay in registers.

#pragma once

#include "registers.h"

namespace {

#ifdef __AVX512F__
constexpr int64_t TILE = 6, N = 4;  // rows and registers of a tile
#else
constexpr int64_t TILE = 4, N = 2;
#endif
constexpr int64_t LANES = 16;  // lanes of the widest registers: rows are padded to multiples of it

// Epilogue of a tile of the product A B.
enum Kind {
  RECTIFIED,  // C = max(0, A B + row)
  SHIFTED,    // C = A B + row
  ADDED,      // C += A B
  MASKED,     // C = A B, 0 where `mask` is not positive; sums of columns are added to `sums`
};

// A has element (r, k) at r * along + k * across; B, C and `mask` have whole registers in a row.
struct Product {
  const float* a;
  int64_t along, across;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t c_step, inner;
  const float* row;
  const float* mask;
  int64_t mask_step;
  float* sums;
};

// Loops over a tile are unrolled, so that its sums stay in registers from first to last.
template <Kind kind, int rows, int wide>
inline void tile(const Product& p, int64_t i, int64_t j) {
  const float *a = p.a + i * p.along, *b = p.b + j;
  float* c = p.c + i * p.c_step + j;
  V sum[rows][wide];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < wide; ++v) {
      if (kind == ADDED) sum[r][v] = load(c + r * p.c_step + v * W);
      else if (kind == MASKED) sum[r][v] = V{};
      else sum[r][v] = load(p.row + j + v * W);
    }
  for (int64_t k = 0; k < p.inner; ++k, a += p.across, b += p.b_step) {
    V right[wide];
#pragma GCC unroll 4
    for (int v = 0; v < wide; ++v) right[v] = load(b + v * W);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < wide; ++v) sum[r][v] += a[r * p.along] * right[v];
  }
#pragma GCC unroll 4
  for (int v = 0; v < wide; ++v) {
    V column{};
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      V x = sum[r][v];
      if (kind == RECTIFIED) x = x < 0.0f ? V{} : x;  // NaN propagates
      if (kind == MASKED) {
        x = load(p.mask + (i + r) * p.mask_step + j + v * W) <= 0.0f ? V{} : x;
        column += x;
      }
      store(c + r * p.c_step + v * W, x);
    }
    if (kind == MASKED) store(p.sums + j + v * W, load(p.sums + j + v * W) + column);
  }
}

template <Kind kind, int wide>
inline void band(const Product& p, int64_t rows, int64_t j) {
  int64_t i = 0;
  for (; i + TILE <= rows; i += TILE) tile<kind, TILE, wide>(p, i, j);
  if (rows - i >= 4) { tile<kind, 4, wide>(p, i, j); i += 4; }
  if (rows - i >= 2) { tile<kind, 2, wide>(p, i, j); i += 2; }
  if (rows - i >= 1) tile<kind, 1, wide>(p, i, j);
}

// All of C: `rows` by `columns`, which are whole registers.
template <Kind kind>
void product(const Product& p, int64_t rows, int64_t columns) {
  int64_t j = 0;
  while (j < columns) {
    const int64_t left = (columns - j) / W;
    // Split five as three and two rather than four and one.
    const int64_t wide = left > N && left < 2 * N ? (left + 1) / 2 : std::min(N, left);
    if (wide == 4) band<kind, N < 4 ? N : 4>(p, rows, j);
    else if (wide == 3) band<kind, N < 3 ? N : 3>(p, rows, j);
    else if (wide == 2) band<kind, 2>(p, rows, j);
    else band<kind, 1>(p, rows, j);
    j += wide * W;
  }
}

// Copy contiguous rows to padded rows, or back.
inline void lay(const float* from, int64_t from_step, float* to, int64_t to_step, int64_t rows,
                int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * to_step, from + r * from_step, 4 * columns);
}

// Transpose weights (out, in), whose rows are `from_step` apart, to rows `to_step` apart.
inline void lay_on_side(const float* from, int64_t in, int64_t out, int64_t from_step, float* to,
                        int64_t to_step) {
  const int64_t whole = in < W ? 0 : out / W * W;
  for (int64_t o = 0; o < whole; o += W)
    for (int64_t i = 0; i < in; i += W) {
      // The last square overlaps the one before it rather than cross the edge.
      const int64_t at = std::min(i, in - W);
      on_side(from + o * from_step + at, from_step, to + at * to_step + o, to_step);
    }
  for (int64_t o = whole; o < out; ++o)
    for (int64_t i = 0; i < in; ++i) to[i * to_step + o] = from[o * from_step + i];
}

}  // namespace
