// The whole model in bf16 against double at the same weights.
#include <gtest/gtest.h>

#include <cstdio>

#include "unit/model/small_model.hpp"

namespace capstan::test {
namespace {

/// Masters that bf16 holds exactly, so that every type computes with the same weights.
template <class S>
void round_masters(Rig<S>& rig) {
  const auto masters = rig.model.params().masters();
  std::vector<Acc<S>> typed;
  for (const double x : values(masters)) typed.push_back(float(bf16(float(x))));
  copy_to_device<Acc<S>>(typed.data(), masters.data(), masters.extent(0));
  rig.model.params().refresh_weights();
}

/// ||a - b|| / ||b||.
double distance(const Values& a, const Values& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error / size);
}

/// The experts of all tokens of the step in all layers, by the logits and biases.
template <class S>
Values logits_of(Rig<S>& rig) {
  Values all;
  for (index_t l = 0; l < rig.model.shape().layers; ++l) {
    const Values v = values(rig.model.routers().logits(l, 0, rig.host.tokens.size()));
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}

TEST(Bf16Model, Measure) {
  for (int seed = 1; seed < 7; ++seed) {
    Rig<bf16> b(small_shape(), 4, seed);
    Rig<float> f(small_shape(), 4, seed);
    Rig<double> d(small_shape(), 4, seed);
    round_masters(b), round_masters(f), round_masters(d);
    const double lb = b.train(), lf = f.train(), ld = d.train();
    std::printf("seed %d loss %.8f %.8f %.8f logits %.4f\n", seed, lb, lf, ld,
                distance(logits_of(b), logits_of(d)));
    const auto& p = d.model.params();
    const auto& pb = b.model.params();
    const auto& pf = f.model.params();
    for (const ParamSlot& slot : p.slots())
      std::printf("  %-28s %.4f  float %.2g\n", slot.spec.name.c_str(),
                  distance(values(pb.part(pb.gradients(), slot)),
                           values(p.part(p.gradients(), slot))),
                  distance(values(pf.part(pf.gradients(), slot)),
                           values(p.part(p.gradients(), slot))));
  }
}

}  // namespace
}  // namespace capstan::test
