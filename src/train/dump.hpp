#pragma once
/// \file diag/dump.<step>.h5: one whole step, so that anyone can check Capstan with
/// another framework. Schema in postprocess/README.
#include <map>
#include <string>
#include <vector>

#include "data/loader.hpp"
#include "io/file.hpp"
#include "train/stepper.hpp"

namespace capstan {

/// Collects the routing of every layer and micro-batch of a step. Give it to
/// Model::set_probe before the gradients of the step, then write().
template <class S>
class Dump {
 public:
  Dump(Model<S>& model, const Grid& grid, index_t step_tokens);
  ~Dump();

  /// Writes the file on rank 0 of the state before the update. Collective over the world.
  void write(const std::string& path, const Deck& deck, const Loader& loader,
             std::int64_t tokens_before, const StepReport& report);

 private:
  struct Layer {
    std::vector<Acc<S>> logits, weights;
    std::vector<std::int32_t> experts, slot;
  };
  static void collect(void* self, index_t layer, const DeviceBatch& batch,
                      const typename MoeLayer<S>::Saved& saved);
  template <class T>
  std::vector<T> in_data_order(const std::vector<T>& mine, index_t width) const;
  std::vector<Acc<S>> whole(const ParamSlot& slot, const View1<Acc<S>>& buffer) const;
  template <class T, class F>
  std::vector<T> from_stage(index_t stage, index_t n, const F& make) const;
  void write_params(H5File* file);
  void write_routing(H5File* file);

  Model<S>& model_;
  const Grid& grid_;
  index_t local_tokens_;
  index_t micro_batches_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace capstan
