// Decoder transformers: losses of next tokens and their gradients, a sequence at a time; and the
// logits of one more token with a cache of keys and values.
//
// A sequence goes forward and backward through all layers while it is in the CPU caches. Sums over
// sequences are taken in their order, or in that of the threads' shares. See decoder.h for shapes.

#include <memory>

#include "decoder.h"

namespace {

// The activations of a layer that the backward pass reads. Several threads have several.
struct Kept {
  float *x, *y, *moments, *qkv, *mixed, *sums, *middle, *z, *second, *hidden, *slope;
};

// Working memory of a thread.
struct Room {
  std::vector<Kept> layers;
  float *last, *normed, *moments, *logits, *dx, *dy, *dh, *dqkv, *dmixed, *zeros, *room;
  Buffer memory;
  Room(const Layout& w, const Shape& heads, bool training)
      : memory(size(w, heads, training)) {
    const int64_t n = w.s.n;
    float* at = memory.at;
    const auto take = [&at](int64_t count) { float* here = at; at += up(count, LANES); return here; };
    for (int64_t l = 0; l < (training ? w.s.depth : 1); ++l)
      layers.push_back({take(n * w.dp), take(n * w.dp), take(2 * n), take(n * w.ep),
                        take(n * w.ap), take(w.s.heads * n), take(n * w.dp), take(n * w.dp),
                        take(2 * n), take(n * w.rp), training ? take(n * w.rp) : nullptr});
    last = take(n * w.dp);
    normed = take(n * w.dp);
    moments = take(2 * n);
    logits = take(n * w.vp);
    dx = take(n * w.dp);
    dy = take(n * w.dp);
    dh = take(n * w.rp);
    dqkv = take(n * w.ep);
    dmixed = take(n * w.ap);
    zeros = take(std::max({w.dp, w.ap, w.rp, w.ep}));
    room = take(std::max(forward_room(heads), backward_room(heads)));
  }
  static int64_t size(const Layout& w, const Shape& heads, bool training) {
    const int64_t n = w.s.n, spare = 16 * LANES;
    const int64_t layer = n * (4 * w.dp + w.ep + w.ap + 2 * w.rp + w.s.heads + 4) + spare;
    const int64_t ends = n * (4 * w.dp + w.vp + w.rp + w.ep + w.ap + 2) + w.dp + w.ap + w.rp + w.ep;
    return (training ? w.s.depth : 1) * layer + ends + spare +
           std::max(forward_room(heads), backward_room(heads));
  }
};

// What the passes over a sequence share.
struct Pass {
  const Layout& w;
  const Numbers& numbers;
  const Shape& heads;
  const float *plain, *turned;
  float* gradient;  // null without gradients
  Room& room;

  void apply(const Dense& layer, const float* x, float* y) const {
    product<SHIFTED>({x, layer.in_p, 1, turned + layer.turned, layer.out_p, y, layer.out_p,
                      layer.in, plain + layer.bias, nullptr, 0, nullptr},
                     w.s.n, layer.out_p);
  }

  // y = residual + bias + layer(x)
  void apply_onto(const Dense& layer, const float* x, const float* residual, float* y) const {
    const float* bias = plain + layer.bias;
    for (int64_t i = 0; i < w.s.n; ++i)
      for (int64_t c = 0; c < layer.out_p; c += W)
        store(y + i * layer.out_p + c, load(residual + i * layer.out_p + c) + load(bias + c));
    product<ADDED>({x, layer.in_p, 1, turned + layer.turned, layer.out_p, y, layer.out_p, layer.in,
                    nullptr, nullptr, 0, nullptr},
                   w.s.n, layer.out_p);
  }

  // Gradients of weights and bias, and of the input in `dx`.
  void back(const Dense& layer, const float* dy, const float* x, float* dx) const {
    product<ADDED>({dy, 1, layer.out_p, x, layer.in_p, gradient + layer.plain, layer.in_p, w.s.n,
                    nullptr, nullptr, 0, nullptr},
                   layer.out, layer.in_p);
    float* sums = gradient + layer.bias;
    for (int64_t c = 0; c < layer.out_p; c += W) {
      V sum = load(sums + c);
      for (int64_t i = 0; i < w.s.n; ++i) sum += load(dy + i * layer.out_p + c);
      store(sums + c, sum);
    }
    product<SHIFTED>({dy, layer.out_p, 1, plain + layer.plain, layer.in_p, dx, layer.in_p,
                      layer.out, room.zeros, nullptr, 0, nullptr},
                     w.s.n, layer.in_p);
  }

  void norm(const Norm& at, float eps, const float* x, float* y, float* moments) const {
    normalise(x, plain + at.gain, plain + at.shift, eps, w.s.n, w.s.width, w.dp, y, moments);
  }

  void norm_back(const Norm& at, const float* x, const float* moments) const {
    normalise_back(room.dy, x, moments, plain + at.gain, w.s.n, w.s.width, w.dp, room.dx,
                   gradient + at.gain, gradient + at.shift);
  }

  void embed(const int64_t* tokens, float* x) const {
    for (int64_t i = 0; i < w.s.n; ++i) {
      const float *row = plain + w.table + tokens[i] * w.dp, *place = plain + w.places + i * w.dp;
      for (int64_t c = 0; c < w.dp; c += W) store(x + i * w.dp + c, load(row + c) + load(place + c));
    }
  }

  void forward(const int64_t* tokens) const {
    for (int64_t l = 0; l < w.s.depth; ++l) {
      const Layer& layer = w.layers[l];
      const bool alone = gradient == nullptr;
      const Kept& k = room.layers[alone ? 0 : l];
      if (l == 0) embed(tokens, k.x);
      norm(layer.first, numbers.eps, k.x, k.y, k.moments);
      apply(layer.qkv, k.y, k.qkv);
      forward_heads(heads, k.qkv, k.mixed, k.sums, room.room, 0, heads.h);
      apply_onto(layer.output, k.mixed, k.x, k.middle);
      norm(layer.second, numbers.eps, k.middle, k.z, k.second);
      apply(layer.inner, k.z, k.hidden);
      activate(w.s.activation, k.hidden, k.slope, w.s.n * w.rp);
      float* next = l + 1 == w.s.depth ? room.last : alone ? k.x : room.layers[l + 1].x;
      apply_onto(layer.outer, k.hidden, k.middle, next);
    }
    norm(w.last, numbers.final_eps, room.last, room.normed, room.moments);
    apply(w.readout, room.normed, room.logits);
  }

  // Losses from logits; then the logits become their gradients if there are any.
  void score(const int64_t* next, float* losses, float share) const {
    const int64_t v = w.s.outputs;
    for (int64_t i = 0; i < w.s.n; ++i) {
      float* row = room.logits + i * w.vp;
      V top = all(-INFINITY), sum{};
      for (int64_t c = 0; c < v; c += W) {
        const V x = load(row + c) * numbers.factor;
        const V shown = lanes() + int(c) < int(v) ? x : all(-INFINITY);
        store(row + c, shown);
        top = shown <= top ? top : shown;  // NaN propagates
      }
      float best = top[0];
      for (int k = 1; k < W; ++k) best = top[k] <= best ? best : top[k];
      const float target = row[next[i]];
      for (int64_t c = 0; c < v; c += W) {
        const V weight = exponential(load(row + c) - best);
        store(row + c, weight);
        sum += weight;
      }
      const float whole = total(sum);
      losses[i] = std::log(whole) + best - target;
      if (gradient == nullptr) continue;
      const float by = share * numbers.factor;
      for (int64_t c = 0; c < v; c += W) store(row + c, load(row + c) * (by / whole));
      row[next[i]] -= by;
    }
  }

  void backward(const int64_t* tokens) const {
    float *dx = room.dx, *dy = room.dy;
    back(w.readout, room.logits, room.normed, dy);
    std::memset(dx, 0, 4 * w.s.n * w.dp);
    norm_back(w.last, room.last, room.moments);
    for (int64_t l = w.s.depth - 1; l >= 0; --l) {
      const Layer& layer = w.layers[l];
      const Kept& k = room.layers[l];
      back(layer.outer, dx, k.hidden, room.dh);
      for (int64_t i = 0; i < w.s.n * w.rp; i += W)
        store(room.dh + i, load(room.dh + i) * load(k.slope + i));
      back(layer.inner, room.dh, k.z, dy);
      norm_back(layer.second, k.middle, k.second);
      back(layer.output, dx, k.mixed, room.dmixed);
      backward_heads(heads, room.dmixed, k.qkv, k.sums, room.dqkv, room.room, 0, heads.h);
      back(layer.qkv, room.dqkv, k.y, dy);
      norm_back(layer.first, k.x, k.moments);
    }
    for (int64_t i = 0; i < w.s.n; ++i) {
      float *row = gradient + w.table + tokens[i] * w.dp, *place = gradient + w.places + i * w.dp;
      for (int64_t c = 0; c < w.dp; c += W) {
        const V slope = load(dx + i * w.dp + c);
        store(row + c, load(row + c) + slope);
        store(place + c, load(place + c) + slope);
      }
    }
  }
};

// Sequences `from` to `to` of one model, and the sums of their gradients.
struct Share {
  int64_t model, from, to;
  std::unique_ptr<Buffer> gradient;
};

bool in_range(const int64_t* tokens, int64_t step, int64_t rows, int64_t n, int64_t below) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t t = 0; t < n; ++t)
      if (tokens[i * step + t] < 0 || tokens[i * step + t] >= below) return false;
  return true;
}

Shape heads_of(const Layout& w, const Numbers& numbers, const float* turn) {
  const int64_t sizes[7] = {1, w.s.n, w.s.heads, w.s.size, 1, 1, 1};
  Shape heads(sizes, numbers.scale, turn);
  heads.step = w.ep;
  heads.wide = w.ap;
  return heads;
}

// One more token of each of `b` sequences, whose keys and values are cached.
struct Step {
  const Layout& w;
  const Numbers& numbers;
  const float *plain, *turned;
  const float* turn;  // (2, context, m / 2); null without rotation
  int64_t context;
  const int64_t* places;  // position of each sequence's token
  const uint8_t* padding;  // (b, start + 1), 1 where a cached token is padding; null for none
  float* cache;  // (depth, b, h, 2, length, m)
  int64_t length, start;

  void apply(const Dense& layer, const float* x, float* y) const {
    product<SHIFTED>({x, layer.in_p, 1, turned + layer.turned, layer.out_p, y, layer.out_p,
                      layer.in, plain + layer.bias, nullptr, 0, nullptr},
                     w.s.b, layer.out_p);
  }

  void norm(const Norm& at, float eps, const float* x, float* y, float* moments) const {
    normalise(x, plain + at.gain, plain + at.shift, eps, w.s.b, w.s.width, w.dp, y, moments);
  }

  void rotate(int64_t row, float* x) const {
    if (turn == nullptr) return;
    const int64_t half = w.s.size / 2;
    const float *cosine = turn + places[row] * half, *sine = cosine + context * half;
    for (int64_t c = 0; c < half; ++c) {
      const float first = x[c], second = x[c + half];
      x[c] = first * cosine[c] - second * sine[c];
      x[c + half] = second * cosine[c] + first * sine[c];
    }
  }

  // The mixture of values of a head; `entry` has keys (length, m), then values.
  void attend(int64_t row, float* q, const float* entry, float* scores, float* out) const {
    const int64_t m = w.s.size, last = start, whole = m / W * W, rest = m - whole;
    for (int64_t c = 0; c < m; ++c) q[c] *= numbers.scale;
    const auto part = [rest](const float* from) {
      V x{};
      std::memcpy(&x, from, 4 * rest);
      return x;
    };
    const auto score = [&](int64_t t) {
      const float* key = entry + t * m;
      V sum{};
      for (int64_t c = 0; c < whole; c += W) sum += load(q + c) * load(key + c);
      if (rest > 0) sum += part(q + whole) * part(key + whole);
      return sum;
    };
    int64_t t = 0;
    for (; t + W <= last + 1; t += W) {
      V sums[W];
      for (int k = 0; k < W; ++k) sums[k] = score(t + k);
      store(scores + t, totals(sums));
    }
    for (; t <= last; ++t) scores[t] = total(score(t));
    if (padding != nullptr)
      for (t = 0; t < last; ++t)
        if (padding[row * (start + 1) + t]) scores[t] = -INFINITY;
    for (t = last + 1; t < up(last + 1, W); ++t) scores[t] = -INFINITY;
    V best = all(-INFINITY), sum{};
    for (t = 0; t <= last; t += W) best = larger(load(scores + t), best);
    const float top = largest(best);
    for (t = 0; t <= last; t += W) {
      const V weight = exponential(load(scores + t) - top);
      store(scores + t, weight);
      sum += weight;
    }
    const float share = 1.0f / total(sum);
    const float* value = entry + length * m;
    for (int64_t c = 0; c < whole; c += W) {
      V mixed{};
      for (t = 0; t <= last; ++t) mixed += scores[t] * load(value + t * m + c);
      store(out + c, mixed * share);
    }
    for (int64_t c = whole; c < m; ++c) {
      float mixed = 0.0f;
      for (t = 0; t <= last; ++t) mixed += scores[t] * value[t * m + c];
      out[c] = mixed * share;
    }
  }

  void heads(int64_t l, float* qkv, float* scores, float* mixed) const {
    const int64_t m = w.s.size, h = w.s.heads, entry = 2 * length * m;
    for (int64_t row = 0; row < w.s.b; ++row)
      for (int64_t k = 0; k < h; ++k) {
        float *q = qkv + row * w.ep + k * m, *key = q + h * m, *value = key + h * m;
        float* at = cache + ((l * w.s.b + row) * h + k) * entry;
        rotate(row, q);
        rotate(row, key);
        std::memcpy(at + start * m, key, 4 * m);
        std::memcpy(at + (length + start) * m, value, 4 * m);
        attend(row, q, at, scores, mixed + row * w.ap + k * m);
      }
  }

  void operator()(const int64_t* tokens, float* logits) const {
    const int64_t b = w.s.b;
    Buffer memory(b * (2 * w.dp + w.ep + w.ap + w.rp + w.vp + 2) + length + 2 * LANES);
    float *x = memory.at, *y = x + b * w.dp, *qkv = y + b * w.dp, *mixed = qkv + b * w.ep;
    float *hidden = mixed + b * w.ap, *out = hidden + b * w.rp, *moments = out + b * w.vp;
    float* scores = moments + 2 * b;
    for (int64_t i = 0; i < b; ++i) {
      const float *row = plain + w.table + tokens[i] * w.dp, *place = plain + w.places;
      if (w.s.n > 1) place += places[i] * w.dp;
      for (int64_t c = 0; c < w.dp; c += W) store(x + i * w.dp + c, load(row + c) + load(place + c));
    }
    for (int64_t l = 0; l < w.s.depth; ++l) {
      const Layer& layer = w.layers[l];
      norm(layer.first, numbers.eps, x, y, moments);
      apply(layer.qkv, y, qkv);
      heads(l, qkv, scores, mixed);
      apply(layer.output, mixed, y);
      for (int64_t i = 0; i < b * w.dp; i += W) store(x + i, load(x + i) + load(y + i));
      norm(layer.second, numbers.eps, x, y, moments);
      apply(layer.inner, y, hidden);
      activate(w.s.activation, hidden, nullptr, b * w.rp);
      apply(layer.outer, hidden, y);
      for (int64_t i = 0; i < b * w.dp; i += W) store(x + i, load(x + i) + load(y + i));
    }
    norm(w.last, numbers.final_eps, x, y, moments);
    apply(w.readout, y, out);
    for (int64_t i = 0; i < b; ++i)
      for (int64_t c = 0; c < w.s.outputs; ++c)
        logits[i * w.s.outputs + c] = out[i * w.vp + c] * numbers.factor;
  }
};

}  // namespace

// Losses (models, b, n), and gradients added to those of `wanted` unless it is null. `given` and
// `wanted` have the parameters of each model, in the order of `Layout::parts`. Rows of `tokens` and
// `next` are `step` numbers apart. Returns 1 if a token is out of range.
extern "C" int decoder_losses(const int64_t* integers, const float* reals, const int64_t* tokens,
                              const int64_t* next, int64_t step, const float* turn,
                              const float* const* given, float* const* wanted, float* losses) {
  Sizes s;
  Numbers numbers;
  std::memcpy(&s, integers, sizeof s);
  std::memcpy(&numbers, reals, sizeof numbers);
  const int64_t rows = s.models * s.b;
  if (!in_range(tokens, step, rows, s.n, s.tokens) || !in_range(next, step, rows, s.n, s.outputs))
    return 1;
  const Layout w(s);
  const Shape heads = heads_of(w, numbers, turn);
  const bool training = wanted != nullptr;
  const int64_t count = static_cast<int64_t>(w.parts.size());
  const int64_t each = std::max<int64_t>(1, std::min(s.b, s.threads / s.models));
  std::vector<Share> shares;
  for (int64_t model = 0; model < s.models; ++model)
    for (int64_t k = 0; k < each; ++k)
      shares.push_back({model, s.b * k / each, s.b * (k + 1) / each, nullptr});
  shared_out(static_cast<int64_t>(shares.size()), s.threads, [&](int64_t from, int64_t to) {
    const Buffer plain(w.size), turned(w.turned);
    Room room(w, heads, training);
    int64_t loaded = -1;
    for (int64_t i = from; i < to; ++i) {
      Share& share = shares[i];
      if (share.model != loaded) w.load(given + share.model * count, plain.at, turned.at);
      loaded = share.model;
      if (training) share.gradient = std::make_unique<Buffer>(w.size);
      float* gradient = training ? share.gradient->at : nullptr;
      const Pass pass{w, numbers, heads, plain.at, turned.at, gradient, room};
      for (int64_t row = share.from; row < share.to; ++row) {
        const int64_t at = share.model * s.b + row;
        pass.forward(tokens + at * step);
        pass.score(next + at * step, losses + at * s.n, 1.0f / float(s.b * s.n));
        if (training) pass.backward(tokens + at * step);
      }
      if (training && each == 1) {
        w.add(gradient, wanted + share.model * count);
        share.gradient.reset();
      }
    }
  });
  if (training && each > 1)
    for (const Share& share : shares) w.add(share.gradient->at, wanted + share.model * count);
  return 0;
}

// The weights of a model as `decoder_token` reads them; `size` is set to the number of floats. They
// are only counted if `to` is null.
extern "C" void decoder_lay(const int64_t* integers, const float* const* given, int64_t* size,
                            float* to) {
  Sizes s;
  std::memcpy(&s, integers, sizeof s);
  const Layout w(s);
  *size = w.size + w.turned;
  if (to != nullptr) w.load(given, to, to + w.size);
}

// Logits (b, outputs) after one more token of each sequence, whose keys and values are written to
// the cache. `sizes` has the cache's length, the number of cached tokens, and the context. Returns 1
// if a token is out of range.
extern "C" int decoder_token(const int64_t* integers, const float* reals, const float* weights,
                             const int64_t* tokens, const int64_t* places, const float* turn,
                             const uint8_t* padding, const int64_t* sizes, float* cache,
                             float* logits) {
  Sizes s;
  Numbers numbers;
  std::memcpy(&s, integers, sizeof s);
  std::memcpy(&numbers, reals, sizeof numbers);
  if (!in_range(tokens, 1, s.b, 1, s.tokens)) return 1;
  const Layout w(s);
  const Step step{w, numbers, weights, weights + w.size, turn, sizes[2], places, padding, cache,
                  sizes[0], sizes[1]};
  step(tokens, logits);
  return 0;
}
