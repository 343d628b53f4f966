// Arrays, attributes and virtual datasets of HDF5 files; errors that name file and
// dataset.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "io/file.hpp"
#include "io/publish.hpp"
#include "unit/io/folder.hpp"

using namespace capstan;
using Mode = H5File::Mode;

namespace {

template <class T>
std::vector<T> numbers(std::int64_t n) {
  std::vector<T> v(n);
  for (std::int64_t i = 0; i < n; ++i) v[i] = static_cast<T>(1 + 3 * i);
  return v;
}

/// Writes an array in two parts, reads it whole and in part.
template <class T>
void goes_around(const std::string& path, Element element, const Extents& shape) {
  const auto v = numbers<T>(count_of(shape));
  const std::int64_t half = shape[0] / 2, row = count_of(shape) / shape[0];
  Extents low(shape.size(), 0), high = low, n_low = shape, n_high = shape;
  high[0] = half;
  n_low[0] = half;
  n_high[0] = shape[0] - half;
  H5File out(path, Mode::create);
  out.create("a/b/x", element, shape);
  out.write("a/b/x", element, v.data(), low, n_low);
  out.write("a/b/x", element, v.data() + half * row, high, n_high);
  out.close();

  const H5File in(path, Mode::read);
  EXPECT_EQ(in.datasets(), (std::vector<std::string>{"a/b/x"}));
  EXPECT_EQ(in.info("a/b/x").element, element);
  EXPECT_EQ(in.info("a/b/x").shape, shape);
  std::vector<T> all(v.size()), part(v.size() - half * row);
  in.read("a/b/x", element, all.data(), low, shape);
  in.read("a/b/x", element, part.data(), high, n_high);
  EXPECT_EQ(all, v);
  EXPECT_EQ(part, std::vector<T>(v.begin() + half * row, v.end()));
}

/// The text of the Error(Exit::file) that f throws.
template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::file);
    return e.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(File, arrays_of_every_type_and_rank) {
  const test::Folder folder;
  goes_around<double>(folder / "f", Element::f64, {5});
  goes_around<float>(folder / "f", Element::f32, {4, 3});
  goes_around<std::uint16_t>(folder / "f", Element::bf16, {3, 2, 4});
  goes_around<std::int64_t>(folder / "f", Element::i64, {2, 3, 2, 2});
  goes_around<std::int32_t>(folder / "f", Element::i32, {7, 1});
  goes_around<std::uint64_t>(folder / "f", Element::u64, {3});
  goes_around<std::uint8_t>(folder / "f", Element::u8, {9});
}

TEST(File, parts_of_inner_axes_and_empty_parts) {
  const test::Folder folder;
  H5File file(folder / "f", Mode::create);
  const auto v = numbers<double>(24);
  file.put("x", Element::f64, {2, 3, 4}, v.data());
  double got[4] = {0, 0, 0, 0};
  file.read("x", Element::f64, got, {1, 1, 2}, {1, 2, 2});
  EXPECT_EQ(got[0], v[12 + 4 + 2]);
  EXPECT_EQ(got[3], v[12 + 8 + 3]);
  file.read("x", Element::f64, nullptr, {0, 0, 0}, {0, 3, 4});
  file.put("none", Element::i32, {0, 5}, nullptr);
  EXPECT_EQ(file.info("none").shape, (Extents{0, 5}));
  const std::vector<std::string> texts = {"one", "", "three"};
  file.put_texts("texts", texts);
  EXPECT_EQ(file.read_texts("texts"), texts);
}

TEST(File, attributes) {
  const test::Folder folder;
  const std::string deck(100000, 'd');  // more than an old-format header holds
  H5File file(folder / "f", Mode::create);
  file.put("group/x", Element::i32, {0}, nullptr);
  file.set("/", "count", std::int64_t(-7));
  file.set("/", "hash", std::uint64_t(0xffffffffffffffffull));
  file.set("/", "rate", 0.1);
  file.set("/", "deck", deck);
  file.set("/", "empty", std::string());
  file.set("group/x", "grid", std::vector<std::int64_t>{1, 2, 3});
  file.set("/", "count", std::int64_t(8));
  file.close();
  const H5File in(folder / "f", Mode::read);
  EXPECT_EQ(std::get<std::int64_t>(*in.get("/", "count")), 8);
  EXPECT_EQ(std::get<std::uint64_t>(*in.get("/", "hash")), 0xffffffffffffffffull);
  EXPECT_EQ(std::get<double>(*in.get("/", "rate")), 0.1);
  EXPECT_EQ(std::get<std::string>(*in.get("/", "deck")), deck);
  EXPECT_EQ(std::get<std::string>(*in.get("/", "empty")), "");
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(*in.get("group/x", "grid")),
            (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_FALSE(in.get("/", "absent").has_value());
  EXPECT_FALSE(in.get("nowhere", "absent").has_value());
  EXPECT_EQ(in.attributes("/").size(), 5u);
  EXPECT_TRUE(in.has("group/x"));
  EXPECT_TRUE(in.has("/group"));
  EXPECT_FALSE(in.has("group/y"));
  EXPECT_FALSE(in.has("nowhere/x"));
}

TEST(File, errors_name_the_file_and_the_dataset) {
  const test::Folder folder;
  const std::string path = folder / "f.h5";
  EXPECT_TRUE(says(refusal([&] { H5File(path, Mode::read); }), "f.h5"));
  EXPECT_TRUE(
      says(refusal([&] { H5File(folder / "no/f.h5", Mode::create); }), "no/f.h5"));
  std::ofstream(path) << "not HDF5";
  EXPECT_TRUE(says(refusal([&] { H5File(path, Mode::read); }), "f.h5"));
  const auto v = numbers<double>(6);
  H5File file(path, Mode::create);
  file.put("x", Element::f64, {2, 3}, v.data());
  double out[6];
  const auto absent = refusal([&] { file.read("group/y", Element::f64, out, {0}, {1}); });
  EXPECT_TRUE(says(absent, "group/y") && says(absent, path)) << absent;
  const auto rank = refusal([&] { file.read("x", Element::f64, out, {0}, {6}); });
  EXPECT_TRUE(says(rank, "1 axes") && says(rank, "x")) << rank;
  const auto beyond = refusal([&] { file.read("x", Element::f64, out, {1, 0}, {2, 3}); });
  EXPECT_TRUE(says(beyond, "dataset x of " + path)) << beyond;
  const auto twice = refusal([&] { file.create("x", Element::f64, {1}); });
  EXPECT_TRUE(says(twice, "create dataset x of " + path)) << twice;
}

TEST(File, a_truncated_file_is_refused) {
  const test::Folder folder;
  const auto v = numbers<double>(1000);
  {
    H5File file(folder / "f", Mode::create);
    file.put("x", Element::f64, {1000}, v.data());
  }
  std::filesystem::resize_file(folder / "f", 4000);
  EXPECT_TRUE(says(refusal([&] { H5File(folder / "f", Mode::read); }), "truncated"));
}

TEST(File, virtual_datasets_follow_their_folder) {
  const test::Folder folder;
  make_folders(folder / "one.part");
  const auto v = numbers<float>(12);
  for (int i = 0; i < 2; ++i) {
    H5File shard(folder / format("one.part/s%d", i), Mode::create);
    shard.put("p/x", Element::f32, {2, 3}, v.data() + 6 * i);
  }
  {
    H5File meta(folder / "one.part/meta", Mode::create);
    meta.create_virtual("x", Element::f32, {5, 3},
                        {{"s0", "p/x", 0, 2}, {"s1", "p/x", 2, 2}, {"s1", "p/x", 4, 0}});
    meta.close();
  }
  publish(folder / "one");
  const H5File meta(folder / "one/meta", Mode::read);
  std::vector<float> got(15);
  meta.read("x", Element::f32, got.data(), {0, 0}, {5, 3});
  EXPECT_EQ(std::vector<float>(got.begin(), got.begin() + 12), v);
  EXPECT_TRUE(std::isnan(got[12]) && std::isnan(got[14]));
}

TEST(File, threads_share_the_library) {
  const test::Folder folder;
  const auto work = [&](int id) {
    for (int k = 0; k < 20; ++k) {
      const std::string path = folder / format("t%d", id);
      const std::vector<double> v(100, id + k);
      H5File out(path, Mode::create);
      out.put("a/x", Element::f64, {100}, v.data());
      out.close();
      std::vector<double> got(100);
      H5File(path, Mode::read).read("a/x", Element::f64, got.data(), {0}, {100});
      EXPECT_EQ(got, v);
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
}

TEST(File, a_full_disk_shows_before_anything_is_written) {
  test::with_small_disk("300k", [](const std::string& disk) {
    const std::vector<double> v(100000, 1.0);
    const std::string path = disk + "/f";
    const auto text = refusal([&] { H5File(path, Mode::create, 900000); });
    EXPECT_TRUE(says(text, path) && says(text, "No space left")) << text;
    std::filesystem::remove(path);
    {
      H5File file(path, Mode::create, 1000);
      const auto later = refusal([&] { file.reserve(900000); });
      EXPECT_TRUE(says(later, "No space left")) << later;
      file.put("x", Element::f64, {100}, v.data());
      file.close();
    }
    EXPECT_EQ(H5File(path, Mode::read).info("x").shape, Extents{100});
    {
      H5File file(path, Mode::create, 250000);
      EXPECT_LT(std::filesystem::space(disk).available, 60000u);
      file.put("x", Element::f64, {100}, v.data());
      file.close();
    }
    EXPECT_GT(std::filesystem::space(disk).available, 250000u)
        << "what was reserved in vain is given back";
    H5File unreserved(path, Mode::create);
    const auto full =
        refusal([&] { unreserved.put("group/x", Element::f64, {100000}, v.data()); });
    unreserved.discard();
    EXPECT_TRUE(says(full, "write dataset group/x of " + path)) << full;
    EXPECT_GT(std::filesystem::space(disk).available, 250000u);
  });
}

TEST(File, a_discarded_file_is_empty_and_the_library_goes_on) {
  const test::Folder folder;
  const std::vector<double> v(1000, 1.0);
  H5File file(folder / "f", Mode::create);
  file.put("x", Element::f64, {1000}, v.data());
  file.discard();
  EXPECT_THROW(H5File(folder / "f", Mode::read).info("x"), Error);
  H5File again(folder / "f", Mode::create);
  again.put("x", Element::f64, {1000}, v.data());
  again.close();
  EXPECT_EQ(H5File(folder / "f", Mode::read).info("x").shape, Extents{1000});
}
