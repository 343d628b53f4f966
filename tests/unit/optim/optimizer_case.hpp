#pragma once
/// \file The optimizer on the tensors of the tiny deck, and the same steps in plain loops
/// in double on whole tensors, written from the published text.
#include <cmath>
#include <map>
#include <string>

#include "optim/optimizer.hpp"
#include "unit/newton_schulz_reference.hpp"

namespace capstan::test {

/// The published groups; `more` overrides.
inline Deck optimizer_deck(const std::vector<std::string>& more = {}) {
  std::vector<std::string> keys = {
      "optimizer/kind=adam",
      "optimizer/lr=0.01",
      "optimizer/weight_decay=0",
      "optimizer/clip_norm=0",
      "group1/match=*/w_*, */shared_*, */latent_down, */latent_up, */gate_down, "
      "*/gate_up",
      "group1/kind=muonh",
      "group1/lr=0.03",
      "group1/betas=0.95, 0.95",
      "group2/match=head/table",
      "group2/kind=adamh",
      "group2/lr=0.03",
      "group2/betas=0.8, 0.9"};
  keys.insert(keys.end(), more.begin(), more.end());
  return Deck::load({std::string(CAPSTAN_SOURCE_DIR) + "/inputs/tests/tiny.deck"}, keys);
}

/// Whole tensors, by name.
using Tensors = std::map<std::string, Values>;

template <class S>
struct OptimizerCase {
  explicit OptimizerCase(const Deck& d, const Grid& g = {})
      : deck(d),
        grid(g),
        ctx(0, true),
        params(ModelShape::from_deck(d), grid, ctx),
        optimizer(d, params, grid, ctx) {
    params.initialise(7);
    optimizer.start(ctx);
  }
  const std::vector<ParamSlot>& slots() const { return params.slots(); }
  /// This rank's rows of whole tensors, into a flat buffer.
  void put(const Tensors& tensors, View1<Acc<S>> buffer) {
    for (const ParamSlot& slot : slots()) {
      const auto first = tensors.at(slot.spec.name).begin() + slot.row0 * slot.row_size;
      const std::vector<Acc<S>> rows(first, first + slot.size());
      copy_to_device<Acc<S>>(rows.data(), params.part(buffer, slot).data(), slot.size());
    }
  }
  Values masters(const ParamSlot& slot) const {
    return values(params.part(params.masters(), slot));
  }
  void step(const Tensors& gradients, double lr_factor = 1, double scale = 1) {
    put(gradients, params.gradients());
    optimizer.step(lr_factor, scale, ctx);
  }

  Deck deck;
  Grid grid;
  Context ctx;
  ParamStore<S> params;
  Optimizer<S> optimizer;
};

/// Gradients of step `k`, whole; the same on every grid. Expert 3 never sees a token.
inline Tensors whole_gradients(const std::vector<ParamSlot>& slots, int k) {
  Tensors out;
  for (const ParamSlot& slot : slots) {
    const index_t n = slot.global_size();
    Values g = as_float(normal_values(n, 1000 * k + stream_of(slot.spec.name), 0.1));
    if (slot.spec.expert) {
      const index_t size = n / slot.spec.shape[0];
      std::fill(g.begin() + 3 * size, g.begin() + 4 * size, 0.0);
    }
    out[slot.spec.name] = g;
  }
  return out;
}

/// The steps in plain loops, on whole tensors.
class ReferenceOptimizer {
 public:
  struct State {
    Values w, m, v;
    Values radius;  ///< of each matrix, or of all
  };
  explicit ReferenceOptimizer(const Deck& deck)
      : groups_(groups_from_deck(deck)),
        layer_(deck.text("optimizer/norm_scope") == "layer") {}

  void start(const ParamSpec& spec, const Values& w) {
    State& s = states[spec.name];
    s.w = w;
    s.m = s.v = Values(w.size(), 0.0);
    const std::size_t size = size_of(spec);
    for (std::size_t first = 0; first < w.size(); first += size)
      s.radius.push_back(norm(w, first, size));
  }
  void step(const ParamSpec& spec, const Values& gradient, int count, double lr_factor,
            double scale) {
    State& s = states.at(spec.name);
    const ParamGroup& group = groups_[group_of(groups_, spec.name)];
    const double lr = group.lr * lr_factor;
    Values g = gradient, u(g.size());
    for (double& x : g) x *= scale;
    if (orthogonalises(group.kind)) {
      for (std::size_t i = 0; i < g.size(); ++i) {
        s.m[i] = group.beta1 * s.m[i] + g[i];
        u[i] = group.beta1 * s.m[i] + g[i];
      }
      orthogonalise(spec, u);
    } else {
      for (std::size_t i = 0; i < g.size(); ++i) {
        s.m[i] = group.beta1 * s.m[i] + (1 - group.beta1) * g[i];
        s.v[i] = group.beta2 * s.v[i] + (1 - group.beta2) * g[i] * g[i];
        u[i] = s.m[i] / (1 - std::pow(group.beta1, count)) /
               (std::sqrt(s.v[i] / (1 - std::pow(group.beta2, count))) + group.eps);
      }
    }
    move(spec, group, lr, u, s);
  }

  std::map<std::string, State> states;

 private:
  static std::size_t size_of(const ParamSpec& spec) {
    return static_cast<std::size_t>(spec.size() /
                                    (spec.shape.size() == 3 ? spec.shape[0] : 1));
  }
  static double norm(const Values& x, std::size_t first, std::size_t n) {
    double sum = 0;
    for (std::size_t i = first; i < first + n; ++i) sum += x[i] * x[i];
    return std::sqrt(sum);
  }
  static void orthogonalise(const ParamSpec& spec, Values& u) {
    const std::size_t axes = spec.shape.size(), size = size_of(spec);
    for (std::size_t first = 0; first < u.size(); first += size) {
      Matrix x{spec.shape[axes - 2], spec.shape[axes - 1],
               Values(u.begin() + first, u.begin() + first + size)};
      x = newton_schulz_reference(x);
      std::copy(x.v.begin(), x.v.end(), u.begin() + first);
    }
  }
  void move(const ParamSpec& spec, const ParamGroup& group, double lr, const Values& u,
            State& s) const {
    if (!keeps_norm(group.kind)) {
      const bool matrix = spec.kind == ParamSpec::matrix;
      const double decay = group.decay_matrices_only && !matrix ? 0 : group.weight_decay;
      const std::size_t axes = spec.shape.size();
      const double stretch =
          orthogonalises(group.kind)
              ? std::sqrt(std::max(
                    1.0, double(spec.shape[axes - 1]) / double(spec.shape[axes - 2])))
              : 1.0;
      for (std::size_t i = 0; i < u.size(); ++i)
        s.w[i] -= lr * (stretch * u[i] + decay * s.w[i]);
      return;
    }
    const bool whole = layer_ && spec.expert;
    const std::size_t size = whole ? u.size() : size_of(spec);
    for (std::size_t first = 0; first < u.size(); first += size) {
      double radius = whole ? 0 : s.radius[first / size];
      if (whole)
        for (const double r : s.radius) radius = std::hypot(radius, r);
      const double length = std::max(norm(u, first, size), 1e-10);
      for (std::size_t i = first; i < first + size; ++i)
        s.w[i] -= lr * radius * u[i] / length;
      const double moved = std::max(norm(s.w, first, size), 1e-10);
      for (std::size_t i = first; i < first + size; ++i) s.w[i] *= radius / moved;
    }
  }
  std::vector<ParamGroup> groups_;
  bool layer_;
};

/// Largest error of this rank's masters after `steps` steps against the loops.
template <class S>
double error_against_loops(OptimizerCase<S>& c, int steps,
                           double* update_norm = nullptr) {
  ReferenceOptimizer reference(c.deck);
  // Initial values do not depend on the grid: one rank's store has them whole.
  const OptimizerCase<S> whole(c.deck);
  for (const ParamSlot& slot : whole.slots())
    reference.start(slot.spec, whole.masters(slot));
  double moved = 0;
  for (int k = 1; k <= steps; ++k) {
    const Tensors gradients = whole_gradients(c.slots(), k);
    c.step(gradients, 1.0 / k, 0.5);
    moved = 0;
    for (const ParamSlot& slot : c.slots()) {
      const Values before = reference.states.at(slot.spec.name).w;
      reference.step(slot.spec, gradients.at(slot.spec.name), k, 1.0 / k, 0.5);
      const Values& after = reference.states.at(slot.spec.name).w;
      for (std::size_t i = 0; i < after.size(); ++i)
        moved += (after[i] - before[i]) * (after[i] - before[i]);
    }
  }
  if (update_norm) *update_norm = std::sqrt(moved);
  double worst = 0;
  for (const ParamSlot& slot : c.slots()) {
    const Values& w = reference.states.at(slot.spec.name).w;
    const auto first = w.begin() + slot.row0 * slot.row_size;
    worst = std::max(worst,
                     relative_error(c.masters(slot), Values(first, first + slot.size())));
  }
  return worst;
}

}  // namespace capstan::test
