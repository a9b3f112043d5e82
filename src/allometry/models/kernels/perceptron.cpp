// ReLU networks of many models, a block of rows at a time: forward and backward pass.
//
// Shapes: M models, n rows, L linear layers, s[0] inputs, s[1] to s[L - 1] hidden units, s[L]
// outputs; p[l] is s[l] padded to whole registers of the widest kind. A block of rows of a model
// goes through all layers while it is in the CPU caches. The first hidden layer is recomputed in the
// backward pass, which is faster than loading it; `kept` (M, L - 2, n, p) stores the others.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <memory>
#include <tuple>
#include <utility>

#include "products.h"

namespace {

using torch::stable::Tensor;

constexpr int64_t BLOCK = 48;  // rows that go through all layers together
constexpr int64_t THIN = 4;    // largest number of outputs that are summed one by one
constexpr int64_t ALONE = 1 << 22;  // multiplications below which a second thread does not pay

// Weights (M, out, in) and biases (M, out) of each layer; models are `steps` apart.
struct Parameters {
  std::vector<const float*> places;
  std::vector<int64_t> steps;
  const float* at(int64_t index, int64_t m) const { return places[index] + m * steps[index]; }
};

struct Network {
  int64_t M, n, L, threads;
  std::vector<int64_t> s, p;
  int64_t parameters = 0, inner = 0;  // `inner`: size of all hidden layers but the first
  Network(int64_t M, int64_t n, std::vector<int64_t> sizes) : M(M), n(n), s(std::move(sizes)) {
    L = static_cast<int64_t>(s.size()) - 1;
    int64_t products = 0;
    for (int64_t l = 0; l <= L; ++l) p.push_back(up(s[l], LANES));
    for (int64_t l = 0; l < L; ++l) {
      parameters += s[l + 1] * (s[l] + 1);
      products += M * n * s[l] * s[l + 1];
    }
    for (int64_t l = 2; l < L; ++l) inner += n * p[l];
    threads = products < ALONE ? 1 : torch::stable::get_num_threads();
  }
  bool thin(int64_t l) const { return s[l] <= THIN; }
};

// The weights of one model in the layout of the products, and its block of rows.
struct Room {
  Network net;
  std::vector<float*> plain, turned, bias, rows, slopes, grown, sums;
  float* zeros;
  Buffer memory;
  static int64_t size(const Network& net) {
    int64_t all = net.p[0];
    for (int64_t l = 0; l < net.L; ++l) {
      const int64_t in = net.p[l], out = net.p[l + 1];
      all += 3 * in * out + 2 * out + BLOCK * 2 * (in + out);
    }
    return all;
  }
  explicit Room(const Network& net) : net(net), memory(size(net)) {
    float* at = memory.at;
    const auto take = [&at](int64_t count) { float* here = at; at += count; return here; };
    for (int64_t l = 0; l < net.L; ++l) {
      const int64_t in = net.p[l], out = net.p[l + 1];
      plain.push_back(take(in * out));
      turned.push_back(take(in * out));
      grown.push_back(take(in * out));
      bias.push_back(take(out));
      sums.push_back(take(out));
    }
    for (int64_t l = 0; l <= net.L; ++l) {
      rows.push_back(take(BLOCK * net.p[l]));
      slopes.push_back(take(BLOCK * net.p[l]));
    }
    zeros = take(net.p[0]);
  }
  // Weights (out, in) as they are, with whole registers in a row.
  void lay_plain(int64_t l, const float* weight) {
    const int64_t in = net.s[l];
    for (int64_t o = 0; o < net.s[l + 1]; ++o)
      std::memcpy(plain[l] + o * net.p[l], weight + o * in, 4 * in);
  }
  // Weights (in, out).
  void lay_turned(int64_t l, const float* weight) {
    lay_on_side(weight, net.s[l], net.s[l + 1], net.s[l], turned[l], net.p[l + 1]);
  }
  void lay_bias(int64_t l, const float* row) { std::memcpy(bias[l], row, 4 * net.s[l + 1]); }
};

// A thread's previous buffer, if it fits: the padding of its rows is 0 and stays 0.
Room& room_for(const Network& net) {
  thread_local std::unique_ptr<Room> last;
  if (last == nullptr || last->net.s != net.s) last = std::make_unique<Room>(net);
  last->net = net;
  return *last;
}

// C (rows, count) = A B^T + row, where B has few rows: sums along registers.
inline void thin_product(const float* a, int64_t wide, const float* b, const float* row,
                         int64_t rows, int64_t count, float* c) {
  const auto along = [&](int64_t r, int64_t j) {
    V sum{};
    for (int64_t k = 0; k < wide; k += W) sum += load(a + r * wide + k) * load(b + j * wide + k);
    return sum;
  };
  for (int64_t j = 0; j < count; ++j) {
    const float more = row == nullptr ? 0.0f : row[j];
    int64_t r = 0;
    for (; r + W <= rows; r += W) {
      V sums[W];
      for (int k = 0; k < W; ++k) sums[k] = along(r + k, j);
      const V all = totals(sums) + more;
      for (int k = 0; k < W; ++k) c[(r + k) * count + j] = all[k];
    }
    for (; r < rows; ++r) c[r * count + j] = total(along(r, j)) + more;
  }
}

// The first hidden layer of a block.
inline void first(const Room& room, const float* x, int64_t rows) {
  const Network& net = room.net;
  const Product p{x, net.s[0], 1, room.turned[0], net.p[1], room.rows[1], net.p[1], net.s[0],
                  room.bias[0], nullptr, 0, nullptr};
  product<RECTIFIED>(p, rows, net.p[1]);
}

void forward(const Network& net, const float* x, const Parameters& parameters, float* out,
             float* kept, int64_t from, int64_t to) {
  Room& room = room_for(net);
  const int64_t last = net.L - 1, outputs = net.s[net.L];
  for (int64_t m = from; m < to; ++m) {
    for (int64_t l = 0; l < net.L; ++l) {
      const float* weight = parameters.at(2 * l, m);
      if (l == last && net.thin(net.L)) room.lay_plain(l, weight);
      else room.lay_turned(l, weight);
      room.lay_bias(l, parameters.at(2 * l + 1, m));
    }
    for (int64_t i = 0; i < net.n; i += BLOCK) {
      const int64_t rows = std::min(BLOCK, net.n - i);
      first(room, x + (m * net.n + i) * net.s[0], rows);
      const float* at = room.rows[1];
      float* layer = kept + m * net.inner;
      for (int64_t l = 1; l < last; ++l) {
        float* next = layer + i * net.p[l + 1];
        const Product p{at, net.p[l], 1, room.turned[l], net.p[l + 1], next, net.p[l + 1],
                        net.s[l], room.bias[l], nullptr, 0, nullptr};
        product<RECTIFIED>(p, rows, net.p[l + 1]);
        at = next;
        layer += net.n * net.p[l + 1];
      }
      float* made = out + (m * net.n + i) * outputs;
      if (net.thin(net.L)) {
        thin_product(at, net.p[last], room.plain[last], room.bias[last], rows, outputs, made);
        continue;
      }
      const Product p{at, net.p[last], 1, room.turned[last], net.p[net.L], room.rows[net.L],
                      net.p[net.L], net.s[last], room.bias[last], nullptr, 0, nullptr};
      product<SHIFTED>(p, rows, net.p[net.L]);
      lay(room.rows[net.L], net.p[net.L], made, outputs, rows, outputs);
    }
  }
}

// Weight gradients of one layer from a block: output gradients (rows, out), inputs (rows, in).
inline void grow(const Room& room, int64_t l, const float* slope, int64_t slope_step,
                 const float* in, int64_t in_step, int64_t rows) {
  const Network& net = room.net;
  if (l == 0 && net.thin(0)) {  // stored as (in, out)
    const Product p{in, 1, in_step, slope, slope_step, room.grown[0], net.p[1], rows,
                    nullptr, nullptr, 0, nullptr};
    product<ADDED>(p, net.s[0], net.p[1]);
    return;
  }
  const Product p{slope, 1, slope_step, in, in_step, room.grown[l], net.p[l], rows,
                  nullptr, nullptr, 0, nullptr};
  product<ADDED>(p, net.s[l + 1], net.p[l]);
}

void backward_block(const Room& room, const float* x, const float* kept, const float* slope,
                    float* dx, int64_t i, int64_t rows) {
  const Network& net = room.net;
  const int64_t outputs = net.s[net.L], inputs = net.s[0];
  first(room, x, rows);
  const float* in = x;
  if (!net.thin(0)) {
    lay(x, inputs, room.rows[0], net.p[0], rows, inputs);
    in = room.rows[0];
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < outputs; ++o) room.sums[net.L - 1][o] += slope[r * outputs + o];
  int64_t step = outputs;
  const float* layer = kept + net.inner;
  for (int64_t l = net.L - 1; l >= 1; --l) {
    if (l > 1) layer -= net.n * net.p[l];
    const float* at = l == 1 ? room.rows[1] : layer + i * net.p[l];
    grow(room, l, slope, step, at, net.p[l], rows);
    const Product p{slope, step, 1, room.plain[l], net.p[l], room.slopes[l], net.p[l],
                    net.s[l + 1], nullptr, at, net.p[l], room.sums[l - 1]};
    product<MASKED>(p, rows, net.p[l]);
    slope = room.slopes[l];
    step = net.p[l];
  }
  grow(room, 0, slope, step, in, net.thin(0) ? inputs : net.p[0], rows);
  if (net.thin(0)) {
    thin_product(slope, step, room.turned[0], nullptr, rows, inputs, dx);
    return;
  }
  const Product p{slope, step, 1, room.plain[0], net.p[0], room.slopes[0], net.p[0], net.s[1],
                  room.zeros, nullptr, 0, nullptr};
  product<SHIFTED>(p, rows, net.p[0]);
  lay(room.slopes[0], net.p[0], dx, inputs, rows, inputs);
}

void backward(const Network& net, const float* slope, const float* x,
              const Parameters& parameters, const float* kept, float* dx, float* gradient,
              int64_t from, int64_t to) {
  Room& room = room_for(net);
  for (int64_t m = from; m < to; ++m) {
    for (int64_t l = 0; l < net.L; ++l) {
      const float* weight = parameters.at(2 * l, m);
      if (l == 0) {
        room.lay_turned(0, weight);
        room.lay_bias(0, parameters.at(1, m));
      }
      if (l > 0 || !net.thin(0)) room.lay_plain(l, weight);
      std::memset(room.grown[l], 0, 4 * net.p[l] * net.p[l + 1]);
      std::memset(room.sums[l], 0, 4 * net.p[l + 1]);
    }
    for (int64_t i = 0; i < net.n; i += BLOCK) {
      const int64_t rows = std::min(BLOCK, net.n - i), at = m * net.n + i;
      backward_block(room, x + at * net.s[0], kept + m * net.inner, slope + at * net.s[net.L],
                     dx + at * net.s[0], i, rows);
    }
    float* to_row = gradient + m * net.parameters;
    for (int64_t l = 0; l < net.L; ++l) {
      const int64_t in = net.s[l], out = net.s[l + 1];
      if (l == 0 && net.thin(0)) {
        for (int64_t o = 0; o < out; ++o)
          for (int64_t k = 0; k < in; ++k) to_row[o * in + k] = room.grown[0][k * net.p[1] + o];
      } else {
        lay(room.grown[l], net.p[l], to_row, in, out, in);
      }
      std::memcpy(to_row + in * out, room.sums[l], 4 * out);
      to_row += (in + 1) * out;
    }
  }
}

// Contiguous within a model; models may be strided if they are parameters.
bool dense(const Tensor& t, int64_t from) {
  int64_t step = 1;
  for (int64_t axis = t.dim() - 1; axis >= from; --axis) {
    if (t.size(axis) != 1 && t.stride(axis) != step) return false;
    step *= t.size(axis);
  }
  return true;
}

Tensor laid(const Tensor& t, int64_t from) {
  return dense(t, from) ? t : torch::stable::contiguous(t);
}

const float* numbers(const Tensor& t) { return static_cast<const float*>(t.const_data_ptr()); }
float* room_of(Tensor& t) { return static_cast<float*>(t.mutable_data_ptr()); }

Tensor empty(const Tensor& like, std::initializer_list<int64_t> shape) {
  return torch::stable::new_empty(like, torch::headeronly::IntHeaderOnlyArrayRef(shape));
}

// Arguments of both passes.
struct Given {
  Tensor x;
  std::vector<Tensor> owners;
  Parameters parameters;
  Network net;
  Given(const Tensor& rows, const std::vector<Tensor>& all)
      : x(laid(rows, 0)), net(rows.size(0), rows.size(1), sizes(rows, all)) {
    for (const Tensor& t : all) {
      owners.push_back(laid(t, 1));
      parameters.places.push_back(numbers(owners.back()));
      parameters.steps.push_back(owners.back().stride(0));
    }
  }
  static std::vector<int64_t> sizes(const Tensor& rows, const std::vector<Tensor>& all) {
    std::vector<int64_t> s{rows.size(2)};
    for (size_t bias = 1; bias < all.size(); bias += 2) s.push_back(all[bias].size(1));
    return s;
  }
};

std::tuple<Tensor, Tensor> perceptron(Tensor x, std::vector<Tensor> parameters) {
  const Given given(x, parameters);
  const Network& net = given.net;
  Tensor out = empty(x, {net.M, net.n, net.s[net.L]}), kept = empty(x, {net.M, net.inner});
  float *made = room_of(out), *hidden = room_of(kept);
  shared_out(net.M, net.threads, [&](int64_t from, int64_t to) {
    forward(net, numbers(given.x), given.parameters, made, hidden, from, to);
  });
  return {out, kept};
}

std::tuple<Tensor, Tensor> perceptron_backward(Tensor slope, Tensor x,
                                               std::vector<Tensor> parameters, Tensor kept) {
  const Given given(x, parameters);
  const Network& net = given.net;
  const Tensor slopes = laid(slope, 0);
  Tensor dx = empty(x, {net.M, net.n, net.s[0]}), gradient = empty(x, {net.M, net.parameters});
  float *back = room_of(dx), *grown = room_of(gradient);
  shared_out(net.M, net.threads, [&](int64_t from, int64_t to) {
    backward(net, numbers(slopes), numbers(given.x), given.parameters, numbers(kept), back, grown,
             from, to);
  });
  return {dx, gradient};
}

}  // namespace

// Python has the schemas: (x, parameters) -> (out, kept), (slope, x, parameters, kept) ->
// (dx, gradient (M, P), in the order of the parameters of a model).
STABLE_TORCH_LIBRARY_IMPL(allometry, CPU, library) {
  library.impl("perceptron", TORCH_BOX(&perceptron));
  library.impl("perceptron_backward", TORCH_BOX(&perceptron_backward));
}
