#pragma once
/// \file The part of GoogleTest that Capstan's unit tests use, for the checks on GPUs: a
/// node with CUDA, NCCL and Kokkos need not have GoogleTest, and nvcc takes minutes over
/// the real header. Bodies of tests are public members, because nvcc allows no device
/// lambda in a private one. The same sources are compiled with GoogleTest on hosts.
#include <cfloat>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace testing {

/// What is streamed after a check.
class Message {
 public:
  template <class T>
  Message& operator<<(const T& value) {
    text_ << value;
    return *this;
  }
  std::string text() const { return text_.str(); }
  friend std::ostream& operator<<(std::ostream& out, const Message& m) {
    return out << m.text();
  }

 private:
  std::ostringstream text_;
};

/// The test that runs, and the totals.
struct State {
  int failures = 0, failed_tests = 0, skipped_tests = 0;
  bool fatal = false, skipped = false;
  std::string name, filter = "*";
  std::vector<std::string> traces;
};
inline State& state() {
  static State s;
  return s;
}

struct TestCase {
  std::string name;
  std::function<void()> run;
};
inline std::vector<TestCase>& cases() {
  static std::vector<TestCase> list;
  return list;
}

class Test {
 public:
  virtual ~Test() = default;
  virtual void SetUp() {}
  virtual void TearDown() {}
  static bool HasFatalFailure() { return state().fatal; }
};

template <class T>
class TestWithParam : public Test {
 public:
  using ParamType = T;
  static const T& GetParam() { return *current(); }
  static const T*& current() {
    static const T* value = nullptr;
    return value;
  }
};

/// Runs the body of fixture F between its SetUp and TearDown.
template <class F>
void run_fixture() {
  F test;
  Test& base = test;  // SetUp may be protected in F
  base.SetUp();
  if (!state().fatal) test.TestBody();
  base.TearDown();
}

inline int add_test(std::string name, std::function<void()> run) {
  cases().push_back({std::move(name), std::move(run)});
  return 0;
}

template <class... T>
struct Types {};

template <template <class> class F, class... T>
int add_typed_tests(const std::string& name, Types<T...>) {
  int n = 0;
  (add_test(name + "/" + std::to_string(n++), run_fixture<F<T>>), ...);
  return 0;
}

/// Tests and values of one suite with parameters; they meet in RUN_ALL_TESTS, since
/// either may be registered first.
template <class Suite>
struct Parametrised {
  using Value = typename Suite::ParamType;
  static Parametrised& get() {
    static Parametrised p;
    return p;
  }
  Parametrised() {
    add_test("", [this] {
      for (const TestCase& test : tests)
        for (std::size_t i = 0; i < values.size(); ++i)
          add_test(test.name + "/" + std::to_string(i), [this, run = test.run, i] {
            Suite::current() = &values[i];
            run();
          });
    });
  }
  std::vector<TestCase> tests;
  std::vector<Value> values;
};

template <class Suite>
int add_param_test(const std::string& name, std::function<void()> run) {
  Parametrised<Suite>::get().tests.push_back({name, std::move(run)});
  return 0;
}
template <class... A>
std::tuple<A...> Values(A... values) {
  return {std::move(values)...};
}
template <class Suite, class Tuple>
int add_values(Tuple list) {
  auto& to = Parametrised<Suite>::get().values;
  std::apply([&](const auto&... v) { (to.push_back(v), ...); }, list);
  return 0;
}

template <class T>
std::string text_of(const T& v) {
  std::ostringstream out;
  out.precision(17);
  if constexpr (requires { out << v; }) {
    out << v;
  } else if constexpr (requires { v.begin(); }) {
    out << "{";
    for (const auto& x : v) out << " " << text_of(x);
    out << " }";
  } else {
    out << "(" << sizeof(v) << " bytes)";
  }
  return out.str();
}

/// Whether a check held, and what to print if not.
struct Outcome {
  bool held;
  std::string text;
  explicit operator bool() const { return held; }
};

template <class A, class B, class Compare>
Outcome compare(const char* what, const A& a, const B& b, Compare holds) {
  if (holds(a, b)) return {true, ""};
  return {false, std::string(what) + ": " + text_of(a) + ", " + text_of(b)};
}
inline Outcome near(const char* what, double a, double b, double by) {
  if (std::fabs(a - b) <= by || a == b) return {true, ""};
  return {false, std::string(what) + ": " + text_of(a) + ", " + text_of(b) +
                     " differ by more than " + text_of(by)};
}
inline Outcome truth(const char* what, bool value, bool wanted) {
  return {value == wanted, std::string(what) + (wanted ? " is false" : " is true")};
}
/// What running f throws: an E (held), something else, nothing.
template <class E, class F>
Outcome throws(const char* what, const F& f) {
  try {
    f();
  } catch (const E&) {
    return {true, ""};
  } catch (...) {
    return {false, std::string(what) + " throws something else"};
  }
  return {false, std::string(what) + " throws nothing"};
}
template <class F>
Outcome throws_nothing(const char* what, const F& f) {
  try {
    f();
  } catch (...) {
    return {false, std::string(what) + " throws"};
  }
  return {true, ""};
}

/// Records a failure; the assignment takes the message, so that `return Report = ...`
/// leaves the body.
struct Report {
  const char* file;
  int line;
  std::string text;
  bool fatal;
  void operator=(const Message& message) const {
    std::fprintf(stderr, "%s:%d: %s: %s %s\n", file, line, state().name.c_str(),
                 text.c_str(), message.text().c_str());
    for (const std::string& t : state().traces)
      std::fprintf(stderr, "  in %s\n", t.c_str());
    ++state().failures;
    state().fatal = state().fatal || fatal;
  }
};
struct Skip {
  void operator=(const Message& message) const {
    std::printf("skipped %s: %s\n", state().name.c_str(), message.text().c_str());
    state().skipped = true;
  }
};
struct Trace {
  explicit Trace(std::string text) { state().traces.push_back(std::move(text)); }
  ~Trace() { state().traces.pop_back(); }
};

/// Does `name` match one of the patterns (with *) that colons separate?
inline bool matches(const char* pattern, const char* name) {
  if (*pattern == 0 || *pattern == ':') return *name == 0;
  if (*pattern == '*')
    return matches(pattern + 1, name) || (*name != 0 && matches(pattern, name + 1));
  return *pattern == *name && matches(pattern + 1, name + 1);
}
inline bool selected(const std::string& name) {
  for (const char* p = state().filter.c_str(); p != nullptr; p = std::strchr(p, ':')) {
    if (*p == ':') ++p;
    if (matches(p, name.c_str())) return true;
  }
  return false;
}

/// Of the command line only --gtest_filter=PATTERNS.
inline void InitGoogleTest(int* argc, char** argv) {
  for (int i = 1; i < *argc; ++i)
    if (std::strncmp(argv[i], "--gtest_filter=", 15) == 0) state().filter = argv[i] + 15;
}

inline void run_case(const TestCase& test) {
  State& s = state();
  s.name = test.name;
  s.failures = 0;
  s.fatal = s.skipped = false;
  try {
    test.run();
  } catch (const std::exception& e) {
    Report{"exception", 0, e.what(), true} = Message();
  }
  s.failed_tests += s.failures > 0;
  s.skipped_tests += s.skipped;
}

inline int run_all() {
  // Suites with parameters add their tests at the end of the list.
  const std::size_t registered = cases().size();
  for (std::size_t i = 0; i < registered; ++i)
    if (cases()[i].name.empty()) std::function<void()>(cases()[i].run)();
  int run = 0;
  for (const TestCase& test : cases()) {
    if (test.name.empty() || !selected(test.name)) continue;
    run_case(test);
    ++run;
  }
  const State& s = state();
  std::printf("%d tests: %d failed, %d skipped\n", run, s.failed_tests, s.skipped_tests);
  return s.failed_tests > 0 || run == 0 ? 1 : 0;
}

}  // namespace testing

#include "gtest/gtest_macros.h"
