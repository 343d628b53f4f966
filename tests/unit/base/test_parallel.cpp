// par_for, par_sum, par_rows and the operations of a team.
#include <gtest/gtest.h>

#include "base/parallel.hpp"
#include "unit/check.hpp"

namespace capstan {
namespace {

using namespace test;

TEST(ParFor, VisitsEveryIndexOnce) {
  for (const index_t n : {0, 1, 2, 3, 1000}) {
    View1<std::int32_t> visits("v", n);
    par_for(
        "test", n, KOKKOS_LAMBDA(index_t i) { visits(i) += 1; });
    for (const double v : values(visits)) EXPECT_EQ(v, 1);
  }
}

TEST(ParSum, AddsTermsAndGivesZeroForNone) {
  const auto sum = [](index_t n) {
    return par_sum<std::int64_t>(
        "test", n, KOKKOS_LAMBDA(index_t i, std::int64_t & total) { total += i * i; });
  };
  EXPECT_EQ(sum(0), 0);
  EXPECT_EQ(sum(-1), 0);
  EXPECT_EQ(sum(1000), 332833500);
}

TEST(ParSum, IsRepeatable) {
  const Values x = normal_values(10001, 1);
  const auto v = view1<float>(x);
  const auto sum = [&] {
    return par_sum<float>(
        "test", 10001, KOKKOS_LAMBDA(index_t i, float& total) { total += v(i); });
  };
  const float first = sum();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(sum(), first);
}

/// Sum and maximum of the first n of `x` by a team, in precision T.
template <class T>
std::pair<double, double> reduce(const Values& x, index_t n, T least) {
  const auto v = view1<T>(x);
  View1<T> out("out", 2);
  par_rows(
      "test", 1, 0, KOKKOS_LAMBDA(const Team& team, index_t) {
        const T sum = team.sum(n, [&](index_t i) { return v(i); });
        const T most = team.max(n, least, [&](index_t i) { return v(i); });
        team.once([&] {
          out(0) = sum;
          out(1) = most;
        });
      });
  const Values r = values(out);
  return {r[0], r[1]};
}

TEST(Team, SumAndMaximumForEveryRest) {
  const Values x = as_float(normal_values(200, 3));
  for (index_t n = 0; n <= 100; ++n) {
    double sum = 0, most = -5;
    for (index_t i = 0; i < n; ++i) {
      sum += x[i];
      most = std::max(most, x[i]);
    }
    const auto d = reduce<double>(x, n, -5.0);
    const auto f = reduce<float>(x, n, -5.0f);
    EXPECT_NEAR(d.first, sum, 1e-13) << n;
    EXPECT_NEAR(f.first, sum, 1e-5) << n;
    EXPECT_EQ(d.second, most) << n;
    EXPECT_EQ(f.second, most) << n;
  }
}

TEST(Team, MaximumSeesEveryPlaceAndTheLeast) {
  for (index_t place = 0; place < 37; ++place) {
    Values x(37, -3.0);
    x[place] = 2;
    EXPECT_EQ(reduce<float>(x, 37, -10.0f).second, 2) << place;
    EXPECT_EQ(reduce<double>(x, 37, 4.0).second, 4) << place;
  }
}

TEST(Team, SumCarriesNaNFromEveryPlace) {
  for (index_t place = 0; place < 37; ++place) {
    Values x(37, 1.0);
    x[place] = NAN;
    EXPECT_TRUE(std::isnan(reduce<float>(x, 37, 0.0f).first)) << place;
  }
}

TEST(ParRows, EachRowHasItsOwnAlignedScratch) {
  constexpr index_t rows = 500, n = 33;
  View2<std::int64_t> out("out", rows, n);
  View1<std::int32_t> misaligned("m", rows);
  par_rows(
      "test", rows, n * sizeof(std::int64_t),
      KOKKOS_LAMBDA(const Team& team, index_t row) {
        auto* scratch = reinterpret_cast<std::int64_t*>(team.scratch());
        team.once([&] {
          misaligned(row) = reinterpret_cast<std::uintptr_t>(team.scratch()) % 64 != 0;
        });
        team.each(n, [&](index_t i) { scratch[i] = row * n + i; });
        team.barrier();
        team.each(n, [&](index_t i) { out(row, i) = scratch[n - 1 - i]; });
      });
  const Values v = values(out);
  for (index_t row = 0; row < rows; ++row) {
    for (index_t i = 0; i < n; ++i) ASSERT_EQ(v[row * n + i], row * n + n - 1 - i);
  }
  for (const double m : values(misaligned)) EXPECT_EQ(m, 0);
}

TEST(ParRows, ScratchMayGrowFromKernelToKernel) {
  for (const int bytes : {64, 100000, 8, 300000}) {
    View1<std::int32_t> last("l", 4);
    par_rows(
        "test", 4, bytes, KOKKOS_LAMBDA(const Team& team, index_t row) {
          team.each(bytes,
                    [&](index_t i) { team.scratch()[i] = static_cast<char>(row + 1); });
          team.barrier();
          team.once([&] { last(row) = team.scratch()[bytes - 1]; });
        });
    EXPECT_EQ(values(last), (Values{1, 2, 3, 4}));
  }
}

TEST(ParRows, NoRowsNoCall) {
  View1<std::int32_t> called("c", 1);
  for (const index_t rows : {0, -3}) {
    par_rows(
        "test", rows, 16, KOKKOS_LAMBDA(const Team&, index_t) { called(0) = 1; });
  }
  EXPECT_EQ(values(called), Values{0});
}

}  // namespace
}  // namespace capstan
