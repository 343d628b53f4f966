#include "train/dump.hpp"

#include "base/build_info.hpp"
#include "base/hash.hpp"
#include "train/checkpoint.hpp"

namespace capstan {

template <class S>
Dump<S>::Dump(Model<S>& model, const Grid& grid, index_t step_tokens)
    : model_(model),
      grid_(grid),
      local_tokens_(step_tokens / grid.n_dense()),
      layers_(static_cast<std::size_t>(model.stage().layers.count())) {
  model_.set_probe(&Dump::collect, this);
}

template <class S>
Dump<S>::~Dump() {
  model_.set_probe(nullptr, nullptr);
}

template <class S>
void Dump<S>::collect(void* self, index_t layer, const DeviceBatch&,
                      const typename MoeLayer<S>::Saved& saved) {
  auto& dump = *static_cast<Dump*>(self);
  Layer& to = dump.layers_.at(layer);
  fence();
  const auto append = [](auto& list, const auto& view) {
    using T = typename std::decay_t<decltype(list)>::value_type;
    const std::vector<T> values = to_host<T>(flat(view));
    list.insert(list.end(), values.begin(), values.end());
  };
  append(to.logits, saved.logits);
  append(to.weights, saved.weights);
  append(to.experts, saved.routed);
  append(to.slot, saved.plan.slot);
  if (layer == 0) ++dump.micro_batches_;
}

/// Rows of all tokens of the step in data order: micro-batch, then rank, then place.
template <class S>
template <class T>
std::vector<T> Dump<S>::in_data_order(const std::vector<T>& mine, index_t width) const {
  const index_t ranks = grid_.n_dense(), n = local_tokens_ * width;
  std::vector<T> all(ranks * n), ordered;
  grid_.dense.all_gather_host(mine.data(), all.data(), n);
  const index_t piece = n / micro_batches_;
  for (index_t m = 0; m < micro_batches_; ++m) {
    for (index_t r = 0; r < ranks; ++r) {
      const auto first = all.begin() + r * n + m * piece;
      ordered.insert(ordered.end(), first, first + piece);
    }
  }
  return ordered;
}

/// A tensor at its global shape, from the ranks of the expert group.
template <class S>
std::vector<Acc<S>> Dump<S>::whole(const ParamSlot& slot,
                                   const View1<Acc<S>>& buffer) const {
  const auto mine = to_host<Acc<S>>(model_.params().part(buffer, slot));
  if (!slot.spec.expert || grid_.n_expert == 1) return mine;
  std::vector<Acc<S>> all(slot.global_size());
  grid_.expert_group.all_gather_host(mine.data(), all.data(), slot.size());
  return all;
}

/// What make() gives on a stage, on all stages.
template <class S>
template <class T, class F>
std::vector<T> Dump<S>::from_stage(index_t stage, index_t n, const F& make) const {
  std::vector<T> values;
  if (stage == grid_.pipe) values = make();
  values.resize(static_cast<std::size_t>(n));
  grid_.pipeline.broadcast_host(values.data(), n, static_cast<int>(stage));
  return values;
}

template <class S>
void Dump<S>::write_params(H5File* file) {
  constexpr Element kElement = element_of<Acc<S>>();
  const ModelShape& shape = model_.shape();
  ParamStore<S>& params = model_.params();
  for (const ParamSpec& spec : param_list(shape)) {
    index_t stage = 0;
    while (!stage_of(shape, grid_.n_pipe, stage).holds(spec)) ++stage;
    const auto values = [&](const View1<Acc<S>>& buffer) {
      return from_stage<Acc<S>>(stage, spec.size(), [&] {
        if (spec.kind != ParamSpec::state) return whole(params.slot(spec.name), buffer);
        const index_t row = spec.layer - model_.stage().layers.first;
        return to_host<Acc<S>>(model_.routers().bias(row));
      });
    };
    const Extents extents(spec.shape.begin(), spec.shape.end());
    const auto masters = values(params.masters());
    if (file != nullptr)
      file->put("params/" + spec.name, kElement, extents, masters.data());
    if (spec.kind == ParamSpec::state) continue;
    const auto gradients = values(params.gradients());
    if (file != nullptr)
      file->put("grads/" + spec.name, kElement, extents, gradients.data());
  }
}

template <class S>
void Dump<S>::write_routing(H5File* file) {
  constexpr Element kElement = element_of<Acc<S>>();
  const index_t e = model_.shape().experts, k = model_.shape().top_k;
  const index_t t = local_tokens_ * grid_.n_dense();
  const auto ranges = split_layers(model_.shape(), grid_.n_pipe);
  for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
    for (index_t l = ranges[stage].first; l < ranges[stage].last; ++l) {
      const auto gathered = [&](auto member, index_t width) {
        using T = typename std::decay_t<decltype(Layer().*member)>::value_type;
        return from_stage<T>(index_t(stage), t * width, [&] {
          return in_data_order(layers_[l - ranges[stage].first].*member, width);
        });
      };
      const auto logits = gathered(&Layer::logits, e);
      const auto weights = gathered(&Layer::weights, k);
      const auto experts = gathered(&Layer::experts, k);
      const auto slot = gathered(&Layer::slot, k);
      if (file == nullptr) continue;
      std::vector<std::uint8_t> accepted(experts.size());
      for (std::size_t i = 0; i < experts.size(); ++i) accepted[i] = slot[i] >= 0 ? 1 : 0;
      const std::string group = format("router/layer_%03d/", int(l));
      file->put(group + "logits", kElement, {t, e}, logits.data());
      file->put(group + "weights", kElement, {t, k}, weights.data());
      file->put(group + "experts", Element::i32, {t, k}, experts.data());
      file->put(group + "accepted", Element::u8, {t, k}, accepted.data());
    }
  }
}

template <class S>
void Dump<S>::write(const std::string& path, const Deck& deck, const Loader& loader,
                    std::int64_t tokens_before, const StepReport& report) {
  H5File file;
  H5File* out = nullptr;
  if (grid_.world.rank() == 0) {
    file = H5File(path, H5File::Mode::create);
    out = &file;
    const Batch batch = loader.whole_step(tokens_before);
    const Extents shape = {batch.sequences, batch.seq_len};
    file.put("batch/tokens", Element::i32, shape, batch.tokens.data());
    file.put("batch/targets", Element::i32, shape, batch.targets.data());
    file.put("batch/segments", Element::i32, shape, batch.segments.data());
    // The group /loss holds attributes only; an element gives it a place.
    const double total = report.total();
    file.put("loss/total", Element::f64, {1}, &total);
    file.set("loss", "total", total);
    file.set("loss", "cross_entropy", report.cross_entropy);
    file.set("loss", "z_loss", report.z_loss);
    file.set("loss", "aux", report.aux);
    file.set("loss", "tokens", report.counted_tokens);
    file.set("/", "deck", deck.dump());
    file.set("/", "deck_hash", hex(deck.hash()));
    file.set("/", "step", report.step);
    file.set("/", "version", std::string(build_info().version));
  }
  write_params(out);
  write_routing(out);
  if (out != nullptr) file.close();
}

#define CAPSTAN_DUMP(S) template class Dump<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_DUMP)

}  // namespace capstan
