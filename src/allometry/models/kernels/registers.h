// Shared by the kernels of this folder: SIMD registers of floats, buffers, threads.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

#ifdef __AVX512F__
constexpr int64_t W = 16;  // lanes of a register
#else
constexpr int64_t W = 8;
#endif
typedef float V __attribute__((vector_size(4 * W)));
typedef int32_t I __attribute__((vector_size(4 * W)));

inline V load(const float* p) { V v; std::memcpy(&v, p, sizeof v); return v; }
inline void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
inline int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

inline I lanes() {
  I i;
  for (int k = 0; k < W; ++k) i[k] = k;
  return i;
}

// Cyclic shift: lane k takes the value of lane k + by.
inline V rolled(V x, int by) { return __builtin_shuffle(x, (lanes() + by) & int(W - 1)); }

inline float total(V x) {
  for (int by = W / 2; by > 0; by /= 2) x += rolled(x, by);
  return x[0];
}

inline V all(float x) { return x - V{}; }

// e^x for x <= 0, to about two units in the last place; 0 on underflow.
inline V exponential(V x) {
  const V t = x * 1.44269504f, large = all(12582912.0f);
  const V whole = (t + large) - large;
  const V f = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  V p = f * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * f * f + f + 1.0f;
  const V safe = x < -87.0f ? V{} : whole;
  const I bits = (__builtin_convertvector(safe, I) + 127) << 23;
  V scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return x < -87.0f ? V{} : p * scale;
}

// Indices of a perfect shuffle (interleaving) of two registers.
struct Deck {
  I low, high;
  Deck() {
    for (int k = 0; k < W; ++k) {
      low[k] = k / 2 + (k % 2 ? W : 0);
      high[k] = low[k] + W / 2;
    }
  }
};

// The sums of W registers, one in each lane.
inline V totals(V* x) {
  const Deck deck;
#pragma GCC unroll 4
  for (int half = W / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int r = 0; r < half; ++r)
      x[r] = __builtin_shuffle(x[r], x[r + half], deck.low) +
             __builtin_shuffle(x[r], x[r + half], deck.high);
  return x[0];
}

// Transpose a square of W by W numbers.
inline void on_side(const float* from, int64_t from_step, float* to, int64_t to_step) {
  const Deck deck;
  V x[W], next[W];
#pragma GCC unroll 16
  for (int r = 0; r < W; ++r) x[r] = load(from + r * from_step);
#pragma GCC unroll 4
  for (int cut = 1; cut < W; cut *= 2) {
#pragma GCC unroll 8
    for (int r = 0; r < W / 2; ++r) {
      next[2 * r] = __builtin_shuffle(x[r], x[r + W / 2], deck.low);
      next[2 * r + 1] = __builtin_shuffle(x[r], x[r + W / 2], deck.high);
    }
#pragma GCC unroll 16
    for (int r = 0; r < W; ++r) x[r] = next[r];
  }
#pragma GCC unroll 16
  for (int r = 0; r < W; ++r) store(to + r * to_step, x[r]);
}

// A zero-initialised array of floats.
struct Buffer {
  float* at;
  explicit Buffer(int64_t size) {
    at = static_cast<float*>(std::aligned_alloc(64, up(4 * size, 64)));
    if (at == nullptr) std::abort();
    std::memset(at, 0, 4 * size);
  }
  ~Buffer() { std::free(at); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

// Call `work(from, to)` over `count` items, divided among the threads.
template <typename Work>
void shared_out(int64_t count, int64_t threads, const Work& work) {
  threads = std::max<int64_t>(1, std::min(threads, count));
  std::vector<std::thread> others;
  for (int64_t t = 1; t < threads; ++t)
    others.emplace_back([&work, count, threads, t] {
      work(count * t / threads, count * (t + 1) / threads);
    });
  work(0, count / threads);
  for (auto& other : others) other.join();
}

}  // namespace
