#include "model/param.hpp"

#include "base/parallel.hpp"
#include "base/rng.hpp"
#include "kernels/swiglu.hpp"
#include "model/stage.hpp"

namespace capstan {

namespace {

constexpr index_t kAlign = 64;  // elements: every tensor starts on a cache line

index_t align(index_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}

ParamSlot make_slot(const ParamSpec& spec, const Grid& grid) {
  ParamSlot slot;
  slot.spec = spec;
  for (std::size_t i = 1; i < spec.shape.size(); ++i) slot.row_size *= spec.shape[i];
  const index_t parts = spec.expert ? grid.n_expert : 1;
  slot.rows = spec.shape[0] / parts;
  slot.row0 = spec.expert ? slot.rows * grid.expert : 0;
  return slot;
}

/// value[i] of a truncated normal, by global index.
template <class S>
void draw_normal(View1<S> out, index_t first, double std, std::uint64_t seed,
                 std::uint64_t stream) {
  const Rng rng(seed, stream);
  par_for(
      "init_normal", out.extent(0), KOKKOS_LAMBDA(index_t i) {
        out(i) =
            S(std * rng.truncated_normal(static_cast<std::uint64_t>(first + i), 3.0));
      });
}

}  // namespace

index_t ParamSlot::global_size() const {
  index_t n = 1;
  for (const index_t extent : spec.shape) n *= extent;
  return n;
}

template <class S>
ParamStore<S>::ParamStore(const ModelShape& shape, const Grid& grid, Context& ctx) {
  const Stage stage = stage_of(shape, grid);
  for (const bool expert : {false, true}) {
    index_t& total = expert ? expert_size_ : dense_size_;
    for (const ParamSpec& spec : param_list(shape)) {
      if (spec.expert != expert || spec.kind == ParamSpec::state) continue;
      if (!stage.holds(spec)) continue;
      ParamSlot slot = make_slot(spec, grid);
      slot.offset = dense_size_ + expert_size_;
      total += align(slot.size());
      index_[spec.name] = slots_.size();
      slots_.push_back(slot);
    }
  }
  for (const ParamSlot& slot : slots_) {
    owned_.push_back({0, slot.rows});
    master_offset_.push_back(slot.offset);
  }
  masters_ = make1<Acc<S>>(ctx.ledger, "masters", size());
  gradients_ = make1<Acc<S>>(ctx.ledger, "gradients", size());
  if constexpr (std::is_same_v<S, Acc<S>>) {
    weights_ = masters_;
  } else {
    weights_ = make1<S>(ctx.ledger, "weights", size());
  }
}

template <class S>
void ParamStore<S>::own(const std::vector<OwnedRows>& owned, Context& ctx) {
  require(owned.size() == slots_.size(), "owned rows: one entry for each slot");
  owned_ = owned;
  sharded_ = true;
  constexpr bool kShared = std::is_same_v<S, Acc<S>>;
  index_t kept = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const ParamSlot& slot = slots_[i];
    master_offset_[i] = kShared ? slot.offset + owned[i].first * slot.row_size : kept;
    kept += align(owned_size(i));
  }
  if constexpr (!kShared) {
    ctx.ledger.sub("masters", size() * index_t(sizeof(Acc<S>)));
    masters_ = View1<Acc<S>>();
    masters_ = make1<Acc<S>>(ctx.ledger, "masters", kept);
  }
}

template <class S>
void ParamStore<S>::initialise(std::uint64_t seed) {
  constexpr bool kShared = std::is_same_v<S, Acc<S>>;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const ParamSlot& slot = slots_[i];
    // Weights that are masters have values on every rank that holds them.
    const index_t first = kShared ? 0 : owned_[i].first;
    const auto values = kShared ? part(masters_, slot) : owned_masters(i);
    switch (slot.spec.kind) {
      case ParamSpec::matrix:
        draw_normal<Acc<S>>(values, (slot.row0 + first) * slot.row_size,
                            slot.spec.init_std, seed, stream_of(slot.spec.name));
        break;
      case ParamSpec::gain:
        fill(values, Acc<S>(1));
        break;
      case ParamSpec::conv:  // identity: tap 0 is the current token
        fill(values, Acc<S>(0));
        if (first == 0 && values.extent(0) > 0)
          fill(View1<Acc<S>>(values.data(), slot.row_size), Acc<S>(1));
        break;
      default:
        fill(values, Acc<S>(0));
    }
  }
  refresh_weights();
}

template <class S>
const ParamSlot& ParamStore<S>::slot(const std::string& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw Error(Exit::internal, "no tensor is called " + name);
  return slots_[found->second];
}

template <class S>
Tensor<S> ParamStore<S>::tensor(const std::string& name) const {
  const ParamSlot& s = slot(name);
  const index_t cols = s.spec.shape.back();
  return {part(weights_, s), part(gradients_, s), s.size() / cols, cols};
}

template <class S>
View1<Acc<S>> ParamStore<S>::dense_gradients() const {
  return View1<Acc<S>>(gradients_.data(), dense_size_);
}

template <class S>
View1<Acc<S>> ParamStore<S>::expert_gradients() const {
  return View1<Acc<S>>(gradients_.data() + dense_size_, expert_size_);
}

template <class S>
void ParamStore<S>::refresh_weights() {
  if constexpr (!std::is_same_v<S, Acc<S>>) {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      round_to<S>(owned_masters(i), owned_part(weights_, i));
  }
}

#define CAPSTAN_PARAM(S) template class ParamStore<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_PARAM)

}  // namespace capstan
