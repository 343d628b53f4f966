// Embedding: lookup, groups of equal tokens, gradient of the table.
#include <gtest/gtest.h>

#include "kernels/embedding.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;
using Ints = std::vector<std::int32_t>;

TEST(Embedding, CopiesRowsAndGivesZeroForPadding) {
  const index_t vocabulary = 7, width = 37;
  const Ints tokens = {3, -1, 0, 6, 3, -1};
  const Values table = as_float(normal_values(vocabulary * width, 1));
  View2<float> y("y", 6, width);
  fill(y, NAN);
  embedding<float>(view_ints(tokens), view2<float>(vocabulary, width, table), y);
  const Values out = values(y);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    for (index_t d = 0; d < width; ++d) {
      const double expected = tokens[t] < 0 ? 0 : table[tokens[t] * width + d];
      EXPECT_EQ(out[t * width + d], expected);
    }
  }
}

TEST(TokenGroups, SortedByTokenThenRow) {
  const Ints tokens = {5, 2, -1, 5, 0, 2, 5};
  const TokenGroups g = group_tokens(tokens.data(), 7);
  EXPECT_EQ(g.tokens, (Ints{0, 2, 5}));
  EXPECT_EQ(g.starts, (Ints{0, 1, 3, 6}));
  EXPECT_EQ(g.order, (Ints{4, 1, 5, 0, 3, 6}));
}

TEST(TokenGroups, NothingButPaddingAndNothingAtAll) {
  const Ints tokens = {-1, -1};
  for (const index_t n : {0, 2}) {
    const TokenGroups g = group_tokens(tokens.data(), n);
    EXPECT_TRUE(g.tokens.empty() && g.order.empty());
    EXPECT_EQ(g.starts, (Ints{0}));
  }
}

struct Case {
  index_t rows, vocabulary, width;
};
class EmbeddingBackward : public testing::TestWithParam<Case> {
 protected:
  const Case c = GetParam();
  Values dy = as_float(normal_values(c.rows * c.width, 1));
  Ints tokens = Ints(c.rows);
  void SetUp() override {
    // Zipf-like: token 0 comes often; some padding, whose gradient is NaN.
    const Rng rng(3, 4);
    for (index_t t = 0; t < c.rows; ++t) {
      const double u = rng.uniform(static_cast<std::uint64_t>(t));
      tokens[t] = static_cast<std::int32_t>(c.vocabulary * u * u * u);
      if (t % 11 == 5) tokens[t] = -1;
      for (index_t d = 0; tokens[t] < 0 && d < c.width; ++d) dy[t * c.width + d] = NAN;
    }
  }
  template <class S>
  Values run(double before) {
    const TokenGroups g = group_tokens(tokens.data(), c.rows);
    View2<Acc<S>> d_table("d_table", c.vocabulary, c.width);
    fill(d_table, Acc<S>(before));
    embedding_backward<S>(view_ints(g.order), view_ints(g.starts), view_ints(g.tokens),
                          view2<S>(c.rows, c.width, dy), d_table);
    return values(d_table);
  }
};

TEST_P(EmbeddingBackward, AddsRowsOfEqualTokens) {
  Values expected(c.vocabulary * c.width, 1.5);
  for (index_t t = 0; t < c.rows; ++t) {
    for (index_t d = 0; tokens[t] >= 0 && d < c.width; ++d) {
      expected[tokens[t] * c.width + d] += dy[t * c.width + d];
    }
  }
  EXPECT_LT(relative_error(run<double>(1.5), expected), 1e-14);
  EXPECT_LT(relative_error(run<float>(1.5), expected), 1e-6);
}

TEST_P(EmbeddingBackward, OneThreadGivesTheSameBits) {
  const Values two = run<float>(0.1);
  Values one;
  with_one_thread([&] { one = run<float>(0.1); });
  EXPECT_EQ(one, two);
}

TEST_P(EmbeddingBackward, IsTheAdjointOfTheLookup) {
  // <lookup(table), dy> = <table, backward(dy)>, and the lookup is linear.
  const Values table = normal_values(c.vocabulary * c.width, 9);
  View2<double> y("y", c.rows, c.width);
  embedding<double>(view_ints(tokens), view2<double>(c.vocabulary, c.width, table), y);
  const Values out = values(y);
  double left = 0;
  for (std::size_t i = 0; i < out.size(); ++i) left += out[i] != 0 ? out[i] * dy[i] : 0;
  EXPECT_NEAR(left, dot(table, run<double>(0)), 1e-11 * (1 + std::fabs(left)));
}

INSTANTIATE_TEST_SUITE_P(Cases, EmbeddingBackward,
                         testing::Values(Case{1, 1, 1}, Case{40, 9, 5}, Case{500, 50, 67},
                                         Case{300, 2, 130}));

}  // namespace
}  // namespace capstan
