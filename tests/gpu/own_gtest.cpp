// Tests that hold and tests that must fail, for check_own_gtest.py: names that begin with
// Fails must be reported, the others not.
#include <gtest/gtest.h>

#include <stdexcept>

namespace {

struct Point {
  int x, y;
};
class Odd : public testing::TestWithParam<int> {};
class FailsWithPoints : public testing::TestWithParam<Point> {
 protected:
  void SetUp() override { prepared_ = true; }
  bool prepared_ = false;
};
template <class T>
class Typed : public testing::Test {};
using Two = testing::Types<float, double>;
TYPED_TEST_SUITE(Typed, Two);
[[noreturn]] void refuse() {
  throw std::invalid_argument("refused");
}

}  // namespace

TEST(Holds, Comparisons) {
  EXPECT_EQ(2 + 2, 4);
  EXPECT_NE(std::string("a"), "b");
  EXPECT_LT(1, 2);
  EXPECT_LE(2, 2);
  EXPECT_GT(2.5, 2);
  EXPECT_GE(2, 2);
  EXPECT_NEAR(1.0, 1.05, 0.1);
  EXPECT_DOUBLE_EQ(0.1 + 0.2, 0.3);
  EXPECT_EQ((std::vector<int>{1, 2}), (std::vector<int>{1, 2})) << "with a message";
  if (false)
    EXPECT_TRUE(false);
  else
    EXPECT_FALSE(false);
}
TEST(Holds, Exceptions) {
  EXPECT_THROW(refuse(), std::invalid_argument);
  EXPECT_NO_THROW(std::string("x").at(0));
}
TEST(Holds, Skipped) {
  GTEST_SKIP() << "not here";
  ADD_FAILURE();
}
INSTANTIATE_TEST_SUITE_P(Numbers, Odd, testing::Values(1, 3, 5));
TEST_P(Odd, HoldsForEach) {
  SCOPED_TRACE(testing::Message() << "number " << GetParam());
  EXPECT_EQ(GetParam() % 2, 1);
}
TYPED_TEST(Typed, HoldsForBoth) {
  EXPECT_GE(sizeof(TypeParam), 4u);
}

TEST(Fails, Equal) {
  EXPECT_EQ(1, 2) << "one is not two";
}
TEST(Fails, NotANumberIsNear) {
  EXPECT_NEAR(NAN, 1.0, 1e9);
}
TEST(Fails, Vectors) {
  EXPECT_EQ((std::vector<int>{1, 2}), (std::vector<int>{1, 3}));
}
TEST(Fails, NothingThrown) {
  EXPECT_THROW(std::string(), std::invalid_argument);
}
TEST(Fails, AnotherTypeThrown) {
  EXPECT_THROW(refuse(), std::out_of_range);
}
TEST(Fails, Uncaught) {
  refuse();
}
TEST(Fails, AtTheAssertion) {
  ASSERT_TRUE(false);
  std::printf("an assertion did not leave the body\n");
}
TEST_P(FailsWithPoints, ForTheSecond) {
  ASSERT_TRUE(prepared_);
  EXPECT_EQ(GetParam().x, GetParam().y);
}
INSTANTIATE_TEST_SUITE_P(Pairs, FailsWithPoints,
                         testing::Values(Point{1, 1}, Point{1, 2}));
TYPED_TEST(Typed, FailsForDouble) {
  EXPECT_EQ(sizeof(TypeParam), 4u);
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
