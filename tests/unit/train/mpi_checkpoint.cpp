// Checkpoints on several ranks: any split reads any split, damage is found and listed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "io/publish.hpp"
#include "unit/train/checkpoint_case.hpp"

using namespace capstan;
using namespace capstan::test;
namespace fs = std::filesystem;

namespace {

/// A folder that all ranks share.
class SharedFolder {
 public:
  explicit SharedFolder(const Comm& world) : world_(world) {
    if (world.rank() == 0) folder_ = std::make_unique<Folder>();
    path = world.broadcast_text(folder_ ? folder_->path() : "", 0);
  }
  ~SharedFolder() { world_.barrier(); }
  std::string path;

 private:
  Comm world_;
  std::unique_ptr<Folder> folder_;
};

/// f() on rank 0 while the others wait.
template <class F>
void on_first(const Comm& world, const F& f) {
  world.barrier();
  if (world.rank() == 0) f();
  world.barrier();
}

class Checkpoint : public testing::Test {
 protected:
  Comm world = Comm::world();
  SharedFolder folder{world};
  SaveOptions options{folder.path + "/ckpt", 2, 0};

  SaveResult save(index_t step, Split split, int version) {
    CaseState state(case_tensors(), split, world.rank(), world.size());
    state.fill(version);
    return save_checkpoint(options, step, state.pieces, case_attributes(step), world);
  }
  void expect_loads(const std::string& path, Split split, int version) {
    CaseState state(case_tensors(), split, world.rank(), world.size());
    const CheckpointInfo info = load_checkpoint(path, state.pieces, world);
    EXPECT_EQ(state.wrong(version), 0);
    EXPECT_EQ(info.integer("tokens"), info.integer("step") * 100);
    EXPECT_EQ(info.real("rate"), 0.25);
  }
  std::string refusal(const std::string& path) {
    CaseState state(case_tensors(), Split::everybody_all, world.rank(), world.size());
    return file_error([&] { load_checkpoint(path, state.pieces, world); });
  }
  /// Shard and dataset of the piece that holds row 0 of embed/table.
  std::pair<std::string, std::string> some_piece(const std::string& path, index_t shard) {
    return {path + format("/shard_%05d.h5", int(shard)),
            format("rank_%05d/params/embed/table", int(shard))};
  }
  void flip(const std::string& path, index_t shard) {
    on_first(world, [&] {
      const auto [file, dataset] = some_piece(path, shard);
      H5File h5(file, H5File::Mode::edit);
      float x = 0;
      h5.read(dataset, Element::f32, &x, {0, 1}, {1, 1});
      x = std::nextafter(x, 1e9f);
      h5.write(dataset, Element::f32, &x, {0, 1}, {1, 1});
      h5.close();
    });
  }
};

}  // namespace

TEST_F(Checkpoint, any_split_reads_any_split) {
  const auto splits = {Split::even, Split::last_rank_all, Split::first_rank_one};
  std::uint64_t hash = 0;
  index_t step = 0;
  for (const Split written : splits) {
    const SaveResult result = save(++step, written, 3);
    ASSERT_TRUE(result.ok) << result.problem;
    EXPECT_EQ(result.bytes, 4 * 30 + 8 * 64 + 4 * 8 + 4 * 30 + 4 * 5);
    if (hash != 0) {
      EXPECT_EQ(result.state_hash, hash) << "the same state, split otherwise";
    }
    hash = result.state_hash;
    for (const Split read : splits) expect_loads(result.path, read, 3);
    expect_loads(result.path, Split::everybody_all, 3);
    EXPECT_TRUE(verify_checkpoint(result.path, world).empty());
  }
  EXPECT_NE(save(++step, Split::even, 4).state_hash, hash);
}

TEST_F(Checkpoint, other_numbers_of_ranks_read_and_write) {
  const int few = (world.size() + 1) / 2;
  const Comm part = world.split(world.rank() < few ? 0 : 1, world.rank());
  if (world.rank() < few) {
    CaseState state(case_tensors(), Split::even, part.rank(), part.size());
    state.fill(1);
    const auto result =
        save_checkpoint(options, 7, state.pieces, case_attributes(7), part);
    EXPECT_TRUE(result.ok) << result.problem;
  }
  world.barrier();
  const std::string path = options.folder + "/step_00000007";
  expect_loads(path, Split::even, 1);
  const SaveResult result = save(8, Split::even, 2);
  if (world.rank() < few) {
    CaseState state(case_tensors(), Split::first_rank_one, part.rank(), part.size());
    load_checkpoint(result.path, state.pieces, part);
    EXPECT_EQ(state.wrong(2), 0);
  }
  world.barrier();
}

TEST_F(Checkpoint, replicas_write_shares_of_device_memory) {
  const Extents shape = {7, 5};
  View1<float> values("values", 35);
  const std::vector<float> host = [] {
    std::vector<float> v(35);
    for (int i = 0; i < 35; ++i) v[i] = static_cast<float>(i);
    return v;
  }();
  copy_to_device(host.data(), values.data(), 35);
  const auto whole = device_piece<float>("params/x", shape, 0, 7, values);
  const auto mine = share_of(whole, world.rank(), world.size());
  const auto hash = state_hash({mine}, world);
  const SaveResult result = save_checkpoint(options, 1, {mine}, {}, world);
  ASSERT_TRUE(result.ok) << result.problem;
  EXPECT_EQ(result.state_hash, hash);
  fill(values, -1.0f);
  load_checkpoint(result.path, {whole}, world);
  EXPECT_EQ(to_host(values), host);
}

TEST_F(Checkpoint, tensors_larger_than_a_block) {
  const std::vector<CaseTensor> big = {{"params/big", Element::f32, {19, 1 << 20}}};
  CaseState out(big, Split::first_rank_one, world.rank(), world.size());
  out.fill(1);
  const auto result = save_checkpoint(options, 1, out.pieces, case_attributes(1), world);
  ASSERT_TRUE(result.ok) << result.problem;
  CaseState in(big, Split::even, world.rank(), world.size());
  load_checkpoint(result.path, in.pieces, world);
  EXPECT_EQ(in.wrong(1), 0);
  EXPECT_TRUE(verify_checkpoint(result.path, world).empty());
}

TEST_F(Checkpoint, everything_wrong_is_in_one_list) {
  const SaveResult result = save(5, Split::even, 1);
  const index_t last = world.size() - 1;
  flip(result.path, last);
  on_first(world, [&] {
    std::ofstream(result.path + "/shard_00099.h5") << "x";
    if (last > 0) fs::remove(result.path + "/shard_00000.h5");
  });
  const std::string text = refusal(result.path);
  EXPECT_TRUE(
      says(text, format("corrupt (hash differs): params/embed/table in %s/shard_%05d",
                        result.path.c_str(), int(last))))
      << text;
  EXPECT_TRUE(says(text, "extra file: " + result.path + "/shard_00099.h5")) << text;
  if (last > 0) {
    EXPECT_TRUE(says(text, "no such file: " + result.path + "/shard_00000.h5")) << text;
  }
  const auto problems = verify_checkpoint(result.path, world);
  EXPECT_EQ(problems.size(), last > 0 ? 3u : 2u);
  EXPECT_TRUE(says(text, last > 0 ? "3 problems" : "2 problems")) << text;
}

TEST_F(Checkpoint, truncated_and_foreign_shards) {
  const SaveResult older = save(5, Split::even, 1), newer = save(6, Split::even, 1);
  on_first(world, [&] {
    fs::copy_file(older.path + "/shard_00000.h5", newer.path + "/shard_00000.h5",
                  fs::copy_options::overwrite_existing);
    const std::string shard = older.path + "/shard_00000.h5";
    fs::resize_file(shard, fs::file_size(shard) / 2);
  });
  EXPECT_TRUE(says(refusal(older.path), "shard_00000.h5 is truncated"));
  EXPECT_TRUE(
      says(refusal(newer.path), "foreign file, from another save: " + newer.path));
  on_first(world, [&] {
    H5File meta(newer.path + "/meta.h5", H5File::Mode::edit);
    const std::int64_t other = 1;
    meta.write("pieces/row0", Element::i64, &other, {0}, {1});
    meta.close();
  });
  EXPECT_TRUE(says(refusal(newer.path), "meta.h5 is damaged"));
  on_first(world, [&] { fs::resize_file(newer.path + "/meta.h5", 100); });
  EXPECT_TRUE(says(refusal(newer.path), "meta.h5 is truncated"));
  EXPECT_TRUE(says(refusal(options.folder + "/step_00000099"), "no such checkpoint"));
}

TEST_F(Checkpoint, a_piece_of_another_shape) {
  const SaveResult result = save(5, Split::even, 1);
  on_first(world, [&] {
    H5File h5(result.path + "/shard_00000.h5", H5File::Mode::edit);
    const std::vector<float> x(100, 0.0f);
    h5.put("rank_00000/other", Element::f32, {10, 10}, x.data());
    h5.rename("rank_00000/params/embed/table", "rank_00000/hidden");
    h5.rename("rank_00000/other", "rank_00000/params/embed/table");
    h5.close();
  });
  EXPECT_TRUE(
      says(refusal(result.path), "mis-shaped: params/embed/table in " + result.path));
}

TEST_F(Checkpoint, tensors_that_do_not_match_the_model) {
  const SaveResult result = save(5, Split::even, 1);
  std::vector<CaseTensor> tensors = case_tensors();
  tensors[0].shape = {10, 4};
  tensors[1].element = Element::f32;
  tensors[3].name = "optimizer/second/embed/table";
  CaseState state(tensors, Split::even, world.rank(), world.size());
  const auto text =
      file_error([&] { load_checkpoint(result.path, state.pieces, world); });
  EXPECT_TRUE(says(text, "mis-shaped: tensor params/embed/table is float32 [10, 3]"))
      << text;
  EXPECT_TRUE(says(text, "params/layer_000/moe/w_up is float64")) << text;
  EXPECT_TRUE(says(text, "missing: tensor optimizer/second/embed/table")) << text;
  EXPECT_TRUE(says(text, "extra: tensor optimizer/first/embed/table")) << text;
  EXPECT_TRUE(says(text, "4 problems")) << text;

  tensors = case_tensors();
  tensors.resize(3);
  CaseState some(tensors, Split::even, world.rank(), world.size());
  LoadOptions only;
  only.only_wanted = true;
  load_checkpoint(result.path, some.pieces, world, only);
  EXPECT_EQ(some.wrong(1), 0);
}

TEST_F(Checkpoint, a_save_that_fails_on_one_rank_fails_on_all_and_leaves_nothing) {
  const SaveResult good = save(5, Split::even, 1);
  CaseState state(case_tensors(), Split::even, world.rank(), world.size());
  if (world.rank() == world.size() - 1)
    state.pieces[1].fetch = [](index_t, index_t, void*) {
      throw Error(Exit::file, "no room on this disk");
    };
  const auto result =
      save_checkpoint(options, 6, state.pieces, case_attributes(6), world);
  EXPECT_FALSE(result.ok);
  EXPECT_TRUE(says(result.problem, "no room on this disk")) << result.problem;
  EXPECT_EQ(list_checkpoints(options.folder), (std::vector<std::string>{good.path}));
  EXPECT_FALSE(fs::exists(options.folder + "/step_00000006.part"));
  EXPECT_EQ(read_text(options.folder + "/latest"), "step_00000005\n");
  expect_loads(good.path, Split::even, 1);
  const SaveResult again = save(6, Split::even, 2);
  EXPECT_TRUE(again.ok) << again.problem;
  expect_loads(again.path, Split::even, 2);
}

TEST_F(Checkpoint, old_ones_are_removed_and_stale_parts) {
  options.keep_every = 3;
  on_first(world, [&] {
    make_folders(options.folder + "/step_00000002.part");
    std::ofstream(options.folder + "/step_00000002.part/shard_00000.h5") << "half";
  });
  for (index_t step = 1; step <= 8; ++step)
    ASSERT_TRUE(save(step, Split::even, int(step)).ok) << step;
  const std::string stem = options.folder + "/step_0000000";
  EXPECT_EQ(list_checkpoints(options.folder),
            (std::vector<std::string>{stem + "8", stem + "7", stem + "6", stem + "3"}));
  EXPECT_FALSE(fs::exists(options.folder + "/step_00000002.part"));
  expect_loads(stem + "3", Split::even, 3);
}

TEST_F(Checkpoint, the_same_step_again_replaces) {
  save(5, Split::even, 1);
  const SaveResult result = save(5, Split::last_rank_all, 2);
  ASSERT_TRUE(result.ok) << result.problem;
  expect_loads(result.path, Split::even, 2);
  EXPECT_FALSE(fs::exists(result.path + ".part"));
}

TEST_F(Checkpoint, latest_falls_back_to_the_newest_that_is_intact) {
  options.keep_last = 4;
  for (index_t step = 1; step <= 4; ++step) save(step, Split::even, int(step));
  CaseState state(case_tensors(), Split::even, world.rank(), world.size());
  Log log(world.rank(), true);
  log.open(folder.path + "/log");
  EXPECT_EQ(load_latest(options.folder, state.pieces, world, log).integer("step"), 4);
  EXPECT_EQ(state.wrong(4), 0);
  EXPECT_EQ(fs::exists(folder.path + "/log") ? fs::file_size(folder.path + "/log") : 0,
            0u);

  flip(options.folder + "/step_00000004", 0);
  on_first(world, [&] { fs::remove(options.folder + "/step_00000003/meta.h5"); });
  EXPECT_EQ(load_latest(options.folder, state.pieces, world, log).integer("step"), 2);
  EXPECT_EQ(state.wrong(2), 0);
  if (world.rank() == 0) {
    const std::string text = read_text(folder.path + "/log");
    EXPECT_TRUE(says(text, "step_00000004 cannot be used")) << text;
    EXPECT_TRUE(says(text, "falling back to " + options.folder + "/step_00000002"))
        << text;
  }
  EXPECT_TRUE(says(refusal(options.folder + "/step_00000004"), "corrupt"))
      << "a path that was named never falls back";
  on_first(world, [&] {
    for (const auto& path : list_checkpoints(options.folder))
      fs::remove(path + "/meta.h5");
  });
  const auto none =
      file_error([&] { load_latest(options.folder, state.pieces, world, log); });
  EXPECT_TRUE(says(none, "no usable checkpoint in " + options.folder)) << none;
  EXPECT_TRUE(says(
      file_error([&] { load_latest(folder.path + "/absent", state.pieces, world, log); }),
      "no usable checkpoint"));
}

TEST_F(Checkpoint, h5py_reads_whole_tensors) {
  const SaveResult result = save(40, Split::first_rank_one, 3);
  int code = 0;
  on_first(world, [&] {
    const std::string script = CAPSTAN_SOURCE_DIR "/tests/unit/train/read_checkpoint.py";
    code = std::system(("/usr/bin/python3 " + script + " " + result.path + " 3").c_str());
  });
  if (WIFEXITED(code) && WEXITSTATUS(code) == 77) GTEST_SKIP() << "no h5py";
  EXPECT_EQ(code, 0);
}
