// The optimizers on all tensors of the tiny deck, against plain loops in double.
#include <gtest/gtest.h>

#include "unit/optim/optimizer_case.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

template <class S>
class Optimizers : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Optimizers, Scalars);

template <class S>
constexpr double kTolerance = sizeof(S) == 4 ? 3e-5 : 1e-11;

std::vector<std::string> all_of(const std::string& kind) {
  return {
      "group1/match=*/w_*, */shared_*, */latent_down, */latent_up, */gate_down, "
      "*/gate_up, */router, embed/table, head/table",
      "group1/kind=" + kind, "group1/betas=0.9, 0.95"};
}

}  // namespace

TYPED_TEST(Optimizers, EqualTheLoops) {
  using S = TypeParam;
  std::vector<std::vector<std::string>> decks = {
      {}, {"optimizer/norm_scope=layer"}, all_of("muonh"), all_of("adamh")};
  decks.push_back(all_of("muon"));
  decks.back().push_back("group1/weight_decay=0.1");
  decks.push_back(all_of("adamw"));
  decks.back().push_back("group1/weight_decay=0.1");
  for (const auto& keys : decks) {
    OptimizerCase<S> c(optimizer_deck(keys));
    double moved = 0;
    EXPECT_LE(error_against_loops(c, 3, &moved), kTolerance<S>)
        << (keys.size() > 1 ? keys[1]
            : keys.empty()  ? "published"
                            : keys[0]);
    EXPECT_NEAR(c.optimizer.update_norm(c.grid) / moved, 1, 1e-4);
  }
}

TYPED_TEST(Optimizers, KeepEachNormOverManySteps) {
  using S = TypeParam;
  OptimizerCase<S> c(optimizer_deck());
  std::map<std::string, Values> before;
  const auto norms = [&](std::size_t i) {
    const Values w = c.masters(c.slots()[i]);
    const auto& shape = c.slots()[i].spec.shape;
    const index_t size = c.slots()[i].global_size() / (shape.size() > 2 ? shape[0] : 1);
    Values out;
    for (auto p = w.begin(); p != w.end(); p += size) {
      const Values one(p, p + size);
      out.push_back(std::sqrt(dot(one, one)));
    }
    return out;
  };
  for (std::size_t i = 0; i < c.slots().size(); ++i)
    before[c.slots()[i].spec.name] = norms(i);
  const Tensors odd = whole_gradients(c.slots(), 1), even = whole_gradients(c.slots(), 2);
  for (int k = 0; k < 30; ++k) c.step(k % 2 ? odd : even);
  int kept = 0;
  for (std::size_t i = 0; i < c.slots().size(); ++i) {
    if (c.optimizer.slots()[i].radius.empty()) continue;
    ++kept;
    EXPECT_LE(relative_error(norms(i), before.at(c.slots()[i].spec.name)), 1e-7)
        << c.slots()[i].spec.name;
  }
  EXPECT_GT(kept, 30);
}

/// Norms in double, over 1,000 steps, of a model that is small enough for them.
TEST(OptimizerNorms, StayOverAThousandSteps) {
  for (const char* precision : {"float", "bf16"}) {
    OptimizerCase<float> c(optimizer_deck(
        {"model/layers=1", "model/hidden=16", "model/head_dim=4", "model/vocab=32",
         "moe/experts=4", std::string("optimizer/ns_precision=") + precision}));
    const Tensors odd = whole_gradients(c.slots(), 1),
                  even = whole_gradients(c.slots(), 2);
    for (int k = 0; k < 1000; ++k) c.step(k % 3 ? odd : even);
    int kept = 0;
    for (std::size_t i = 0; i < c.slots().size(); ++i) {
      const Values& radius = c.optimizer.slots()[i].radius;
      const Values w = c.masters(c.slots()[i]);
      const std::size_t size = radius.empty() ? 0 : w.size() / radius.size();
      for (std::size_t m = 0; m < radius.size(); ++m, ++kept) {
        const Values one(w.begin() + m * size, w.begin() + (m + 1) * size);
        EXPECT_NEAR(std::sqrt(dot(one, one)) / radius[m], 1, 1e-6)
            << c.slots()[i].spec.name;
      }
    }
    EXPECT_GT(kept, 20);
  }
}

/// One step: what bf16 products change of the update is within their rounding, see
/// tests/unit/kernels/test_newton_schulz.cpp; momentum and norms know nothing of it.
TEST(OptimizerNorms, ProductsInBf16StayNearFloat) {
  OptimizerCase<float> exact(optimizer_deck());
  OptimizerCase<float> rounded(optimizer_deck({"optimizer/ns_precision=bf16"}));
  const OptimizerCase<float> start(optimizer_deck());
  const Tensors g = whole_gradients(exact.slots(), 1);
  exact.step(g);
  rounded.step(g);
  for (std::size_t i = 0; i < exact.slots().size(); ++i) {
    const ParamSlot& slot = exact.slots()[i];
    const auto kind = exact.optimizer.groups()[exact.optimizer.slots()[i].group].kind;
    EXPECT_EQ(values(exact.optimizer.slots()[i].first),
              values(rounded.optimizer.slots()[i].first));
    Values off = rounded.masters(slot), moved = exact.masters(slot);
    const Values before = start.masters(slot);
    for (std::size_t k = 0; k < off.size(); ++k) {
      off[k] -= moved[k];
      moved[k] -= before[k];
    }
    const double most = orthogonalises(kind) ? 14.0 / 512 : 0;
    EXPECT_LE(std::sqrt(dot(off, off)), most * std::sqrt(dot(moved, moved)))
        << slot.spec.name;
  }
}

TYPED_TEST(Optimizers, AnExpertWithoutTokensKeepsItsBits) {
  using S = TypeParam;
  OptimizerCase<S> c(optimizer_deck());
  const ParamSlot slot = c.params.slot("layer_001/moe/w_up");
  const index_t size = slot.size() / slot.rows;
  const Values before = c.masters(slot);
  for (int k = 1; k <= 3; ++k) c.step(whole_gradients(c.slots(), k));
  const Values after = c.masters(slot);
  for (index_t e = 0; e < slot.rows; ++e) {
    const auto first = static_cast<std::ptrdiff_t>(e * size);
    const bool same = std::equal(after.begin() + first, after.begin() + first + size,
                                 before.begin() + first);
    EXPECT_EQ(same, e == 3) << e;
  }
  EXPECT_TRUE(non_finite_tensors<S>(c.params, c.params.masters(), c.grid).empty());
}

TYPED_TEST(Optimizers, MomentumIsNotOrthogonalised) {
  using S = TypeParam;
  OptimizerCase<S> c(optimizer_deck());
  const Tensors g1 = whole_gradients(c.slots(), 1), g2 = whole_gradients(c.slots(), 2);
  c.step(g1);
  c.step(g2);
  const std::string name = "layer_000/attn/w_q";
  Values expected = g1.at(name);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = 0.95 * expected[i] + g2.at(name)[i];
  for (std::size_t i = 0; i < c.slots().size(); ++i) {
    if (c.slots()[i].spec.name != name) continue;
    EXPECT_LE(relative_error(values(c.optimizer.slots()[i].first), expected), 1e-6);
    EXPECT_EQ(c.optimizer.slots()[i].second.extent(0), 0u);
  }
}

TYPED_TEST(Optimizers, OneNormOfALayerIsOverAllItsExperts) {
  using S = TypeParam;
  OptimizerCase<S> layer(optimizer_deck({"optimizer/norm_scope=layer"}));
  OptimizerCase<S> matrix(optimizer_deck());
  for (std::size_t i = 0; i < layer.slots().size(); ++i) {
    const ParamSpec& spec = layer.slots()[i].spec;
    const Values &all = layer.optimizer.slots()[i].radius,
                 &each = matrix.optimizer.slots()[i].radius;
    if (each.empty()) continue;
    const bool shared = spec.name.find("shared_") != std::string::npos;
    EXPECT_EQ(all.size(), shared ? 2u : 1u) << spec.name;
    EXPECT_EQ(each.size(), spec.expert ? 8u : shared ? 2u : 1u) << spec.name;
    if (spec.expert) {
      EXPECT_NEAR(all[0] / std::sqrt(dot(each, each)), 1, 1e-12);
    }
  }
}

TEST(OptimizerGroups, KindsThatDoNotSuitATensorAreRefused) {
  const auto problems = [](const std::string& match, const std::string& kind) {
    const Deck d = optimizer_deck({"group1/match=" + match, "group1/kind=" + kind});
    return group_problems(d, param_list(ModelShape::from_deck(d)));
  };
  EXPECT_TRUE(problems("*/w_*", "muonh").empty());
  EXPECT_TRUE(problems("*", "adamw").empty());
  const auto gates = problems("*/head_gate", "muonh");
  ASSERT_EQ(gates.size(), 3u);
  EXPECT_EQ(gates[0],
            "layer_000/attn/head_gate is in <group1>, kind = muonh, but starts at zero");
  EXPECT_NE(problems("final/norm", "adamh").at(0).find("is no matrix"),
            std::string::npos);
  EXPECT_EQ(problems("*/sconv_k", "muon").size(), 3u);
  EXPECT_THROW(OptimizerCase<float>(optimizer_deck({"group1/match=*"})), Error);
}

TEST(OptimizerGroups, AMatrixOfZerosCannotKeepItsNorm) {
  OptimizerCase<float> c(optimizer_deck());
  fill(c.params.part(c.params.masters(), c.params.slot("layer_002/attn/w_o")), 0.0f);
  try {
    c.optimizer.start(c.ctx);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::deck);
    EXPECT_NE(std::string(error.what()).find("layer_002/attn/w_o"), std::string::npos);
  }
}

TEST(OptimizerGroups, NamesWhatIsNotFinite) {
  OptimizerCase<float> c(optimizer_deck());
  EXPECT_TRUE(non_finite_tensors<float>(c.params, c.params.gradients(), c.grid).empty());
  const float bad = std::nanf("");
  const auto part = c.params.part(c.params.gradients(), c.params.slot("final/norm"));
  copy_to_device<float>(&bad, part.data() + 3, 1);
  EXPECT_EQ(non_finite_tensors<float>(c.params, c.params.gradients(), c.grid),
            std::vector<std::string>{"final/norm"});
}
