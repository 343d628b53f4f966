// Routing of a trained model, from the dump of a step.
#include <algorithm>
#include <numeric>

#include "base/log.hpp"
#include "io/file.hpp"
#include "plan/rehearsal.hpp"

namespace capstan {

namespace {

/// Any floating-point dataset as doubles.
std::vector<double> read_reals(const H5File& file, const std::string& name) {
  const H5File::Info info = file.info(name);
  const Extents start(info.shape.size(), 0);
  std::vector<double> out(count_of(info.shape));
  if (info.element == Element::f64) {
    file.read(name, Element::f64, out.data(), start, info.shape);
    return out;
  }
  std::vector<float> single(out.size());
  file.read(name, Element::f32, single.data(), start, info.shape);
  std::copy(single.begin(), single.end(), out.begin());
  return out;
}

/// The best `choices` experts of one token, ties to the lower index.
void best_of(const double* logits, const std::vector<double>& bias, index_t choices,
             std::vector<std::int16_t>& order, std::int16_t* to) {
  std::iota(order.begin(), order.end(), std::int16_t(0));
  std::partial_sort(order.begin(), order.begin() + choices, order.end(),
                    [&](std::int16_t a, std::int16_t b) {
                      const double x = logits[a] + bias[a], y = logits[b] + bias[b];
                      return x > y || (x == y && a < b);
                    });
  std::copy_n(order.begin(), choices, to);
}

}  // namespace

std::vector<std::vector<Routing>> routing_of_dump(const std::string& path, index_t ranks,
                                                  index_t experts, index_t top_k) {
  const H5File file(path, H5File::Mode::read);
  std::vector<std::vector<Routing>> layers;
  for (int l = 0; file.has(format("router/layer_%03d/logits", l)); ++l) {
    const std::vector<double> logits =
        read_reals(file, format("router/layer_%03d/logits", l));
    const std::vector<double> bias =
        read_reals(file, format("params/layer_%03d/moe/router_bias", l));
    const index_t tokens = static_cast<index_t>(logits.size()) / experts;
    if (static_cast<index_t>(bias.size()) != experts || tokens % ranks != 0) {
      throw Error(Exit::deck,
                  format("%s: %zu experts and %lld tokens do not fit moe/experts = "
                         "%lld and grid/expert = %lld",
                         path.c_str(), bias.size(), static_cast<long long>(tokens),
                         static_cast<long long>(experts), static_cast<long long>(ranks)));
    }
    std::vector<Routing> routing(ranks);
    std::vector<std::int16_t> order(experts);
    for (index_t r = 0; r < ranks; ++r) {
      Routing& to = routing[r];
      to.tokens = tokens / ranks;
      to.choices = std::min(experts, top_k + kSpillChoices);
      to.experts.resize(to.tokens * to.choices);
      for (index_t t = 0; t < to.tokens; ++t) {
        best_of(&logits[(r * to.tokens + t) * experts], bias, to.choices, order,
                &to.experts[t * to.choices]);
      }
    }
    layers.push_back(std::move(routing));
  }
  if (layers.empty()) throw Error(Exit::file, path + ": no router/layer_000/logits");
  return layers;
}

}  // namespace capstan
