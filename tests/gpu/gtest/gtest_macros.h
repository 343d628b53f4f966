#pragma once
/// \file The macros of gtest.h. A check is an `if` with an empty branch, so that a
/// message can be streamed behind it and a dangling `else` binds to nothing.

#define RUN_ALL_TESTS ::testing::run_all

#define CAPSTAN_TEST_NAME(suite, name) suite##_##name##_Test
#define CAPSTAN_TEST_CLASS(suite, name, base)           \
  struct CAPSTAN_TEST_NAME(suite, name) : public base { \
    void TestBody();                                    \
  };
#define TEST(suite, name) CAPSTAN_TEST_IN(suite, name, ::testing::Test)
#define TEST_F(suite, name) CAPSTAN_TEST_IN(suite, name, suite)
#define CAPSTAN_TEST_IN(suite, name, base)                                        \
  CAPSTAN_TEST_CLASS(suite, name, base)                                           \
  [[maybe_unused]] static const int suite##_##name##_added = ::testing::add_test( \
      #suite "." #name, ::testing::run_fixture<CAPSTAN_TEST_NAME(suite, name)>);  \
  void CAPSTAN_TEST_NAME(suite, name)::TestBody()

#define TEST_P(suite, name)                                                          \
  CAPSTAN_TEST_CLASS(suite, name, suite)                                             \
  [[maybe_unused]] static const int suite##_##name##_added =                         \
      ::testing::add_param_test<suite>(                                              \
          #suite "." #name, ::testing::run_fixture<CAPSTAN_TEST_NAME(suite, name)>); \
  void CAPSTAN_TEST_NAME(suite, name)::TestBody()
#define INSTANTIATE_TEST_SUITE_P(prefix, suite, ...)           \
  [[maybe_unused]] static const int suite##_##prefix##_added = \
      ::testing::add_values<suite>(__VA_ARGS__)

#define TYPED_TEST_SUITE(suite, types) using suite##_types = types
#define TYPED_TEST(suite, name)                                                    \
  template <class T>                                                               \
  struct CAPSTAN_TEST_NAME(suite, name) : public suite<T> {                        \
    using TypeParam = T;                                                           \
    void TestBody();                                                               \
  };                                                                               \
  [[maybe_unused]] static const int suite##_##name##_added =                       \
      ::testing::add_typed_tests<CAPSTAN_TEST_NAME(suite, name)>(#suite "." #name, \
                                                                 suite##_types{}); \
  template <class T>                                                               \
  void CAPSTAN_TEST_NAME(suite, name)<T>::TestBody()

#define CAPSTAN_CHECK(leave, fatal, ...)                                 \
  switch (0)                                                             \
  case 0:                                                                \
  default:                                                               \
    if (const ::testing::Outcome outcome = (__VA_ARGS__)) {              \
    } else                                                               \
      leave ::testing::Report{__FILE__, __LINE__, outcome.text, fatal} = \
          ::testing::Message()
#define CAPSTAN_COMPARE(a, b, op)             \
  ::testing::compare(#a " " #op " " #b, a, b, \
                     [](const auto& x, const auto& y) { return x op y; })

#define EXPECT_EQ(a, b) CAPSTAN_CHECK(, false, CAPSTAN_COMPARE(a, b, ==))
#define EXPECT_NE(a, b) CAPSTAN_CHECK(, false, CAPSTAN_COMPARE(a, b, !=))
#define EXPECT_LT(a, b) CAPSTAN_CHECK(, false, CAPSTAN_COMPARE(a, b, <))
#define EXPECT_LE(a, b) CAPSTAN_CHECK(, false, CAPSTAN_COMPARE(a, b, <=))
#define EXPECT_GT(a, b) CAPSTAN_CHECK(, false, CAPSTAN_COMPARE(a, b, >))
#define EXPECT_GE(a, b) CAPSTAN_CHECK(, false, CAPSTAN_COMPARE(a, b, >=))
#define EXPECT_TRUE(a) CAPSTAN_CHECK(, false, ::testing::truth(#a, bool(a), true))
#define EXPECT_FALSE(a) CAPSTAN_CHECK(, false, ::testing::truth(#a, bool(a), false))
#define EXPECT_NEAR(a, b, by) CAPSTAN_CHECK(, false, ::testing::near(#a, a, b, by))
#define EXPECT_DOUBLE_EQ(a, b) \
  CAPSTAN_CHECK(, false,       \
                ::testing::near(#a, a, b, 4 * DBL_EPSILON * std::fabs(double(b))))
#define EXPECT_THROW(statement, type) \
  CAPSTAN_CHECK(, false, ::testing::throws<type>(#statement, [&] { statement; }))
#define EXPECT_NO_THROW(statement) \
  CAPSTAN_CHECK(, false, ::testing::throws_nothing(#statement, [&] { statement; }))

#define ASSERT_EQ(a, b) CAPSTAN_CHECK(return, true, CAPSTAN_COMPARE(a, b, ==))
#define ASSERT_LT(a, b) CAPSTAN_CHECK(return, true, CAPSTAN_COMPARE(a, b, <))
#define ASSERT_LE(a, b) CAPSTAN_CHECK(return, true, CAPSTAN_COMPARE(a, b, <=))
#define ASSERT_GT(a, b) CAPSTAN_CHECK(return, true, CAPSTAN_COMPARE(a, b, >))
#define ASSERT_TRUE(a) CAPSTAN_CHECK(return, true, ::testing::truth(#a, bool(a), true))

#define FAIL() CAPSTAN_CHECK(return, true, ::testing::Outcome{false, "failed"})
#define ADD_FAILURE() CAPSTAN_CHECK(, false, ::testing::Outcome{false, "failed"})
#define GTEST_SKIP() return ::testing::Skip() = ::testing::Message()
#define SCOPED_TRACE(text) const ::testing::Trace scoped_trace(::testing::text_of(text))
