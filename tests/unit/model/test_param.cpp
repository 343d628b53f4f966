// Initial values: norms by the published formula, independence of the grid.
#include <gtest/gtest.h>

#include "unit/model/small_model.hpp"

namespace capstan::test {
namespace {

double norm(const Values& v) {
  return std::sqrt(dot(v, v));
}

TEST(Param, InitialNormsFollowTheFormula) {
  ModelShape s = small_shape();
  s.hidden = 128;
  s.latent_width = s.expert_width = s.shared_width = 64;
  s.head_dim = 32;
  s.vocab = 512;
  s.init_std = 0.5 / std::sqrt(128.0);
  Context ctx(0, true);
  const Grid grid;
  ParamStore<double> params(s, grid, ctx);
  params.initialise(1);
  for (const ParamSlot& slot : params.slots()) {
    const Values v = values(params.part(params.masters(), slot));
    const double n = static_cast<double>(slot.size());
    // 0.98658 = standard deviation of a normal cut at +-3 sigma; gains and identities are
    // exact.
    double expected = 0, tolerance = 1e-12;
    if (slot.spec.kind == ParamSpec::matrix) {
      expected = std::sqrt(n) * s.init_std * 0.98658;
      tolerance = 4.0 / std::sqrt(2 * n);
      for (const double x : v) ASSERT_LE(std::fabs(x), 3 * s.init_std);
    } else if (slot.spec.kind == ParamSpec::gain) {
      expected = std::sqrt(n);
    } else if (slot.spec.kind == ParamSpec::conv) {
      expected = std::sqrt(n / ModelShape::sconv_taps);
    }
    EXPECT_NEAR(norm(v), expected, tolerance * expected) << slot.spec.name;
  }
}

TEST(Param, ExpertShardsAreRowsOfTheWhole) {
  const ModelShape s = small_shape();
  Context ctx(0, true);
  const Grid whole;
  ParamStore<double> all(s, whole, ctx);
  all.initialise(7);
  for (int e = 0; e < 4; ++e) {
    Grid part;
    part.n_expert = 4;
    part.expert = e;
    ParamStore<double> mine(s, part, ctx);
    mine.initialise(7);
    for (const ParamSlot& slot : mine.slots()) {
      const Values here = values(mine.part(mine.masters(), slot));
      const Values there = values(all.part(all.masters(), all.slot(slot.spec.name)));
      const auto first = there.begin() + slot.row0 * slot.row_size;
      EXPECT_EQ(here, Values(first, first + slot.size())) << slot.spec.name;
      EXPECT_EQ(slot.rows, slot.spec.expert ? 2 : slot.spec.shape[0]);
    }
  }
}

TEST(Param, NoTwoExpertsStartEqual) {
  Rig<float> rig(small_shape());
  const ParamSlot& slot = rig.model.params().slot("layer_000/moe/w_up");
  const Values v = values(rig.model.params().part(rig.model.params().masters(), slot));
  const auto expert = [&](index_t e) {
    return Values(v.begin() + e * slot.row_size, v.begin() + (e + 1) * slot.row_size);
  };
  for (index_t e = 1; e < slot.rows; ++e) EXPECT_NE(expert(0), expert(e));
}

TEST(Param, UnknownTensorIsNamed) {
  Rig<float> rig(small_shape());
  try {
    rig.model.params().tensor("layer_000/attn/w_z");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer_000/attn/w_z"), std::string::npos);
  }
}

}  // namespace
}  // namespace capstan::test
