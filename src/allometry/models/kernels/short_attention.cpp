// Softmax attention of short sequences: the data of a head stay in the L1 cache; see attention.h.

#include "attention.h"

// sizes: b, n, h, m, causal, threads, g.
extern "C" void short_attention(const int64_t* sizes, float scale, const float* turn,
                                const float* y, float* out, float* lse) {
  const Shape s(sizes, scale, turn);
  shared_out(s.b * s.h, sizes[5], [&](int64_t from, int64_t to) {
    const Buffer room(forward_room(s));
    forward_heads(s, y, out, lse, room.at, from, to);
  });
}

extern "C" void short_attention_backward(const int64_t* sizes, float scale, const float* turn,
                                         const float* g, const float* y, const float* lse,
                                         float* dy) {
  const Shape s(sizes, scale, turn);
  shared_out(s.b * s.h, sizes[5], [&](int64_t from, int64_t to) {
    const Buffer room(backward_room(s));
    backward_heads(s, g, y, lse, dy, room.at, from, to);
  });
}
