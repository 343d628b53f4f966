// A full disk during a save: reported, nothing left behind, the next save works.
#include <gtest/gtest.h>

#include <fstream>

#include "io/publish.hpp"
#include "unit/train/checkpoint_case.hpp"

using namespace capstan;
using namespace capstan::test;

TEST(FullDisk, a_save_is_reported_and_leaves_the_last_one) {
  with_small_disk("2m", [](const std::string& disk) {
    const SaveOptions options{disk + "/ckpt", 2, 0};
    const Comm self = Comm::self();
    CaseState state(case_tensors(), Split::even, 0, 1);
    state.fill(1);
    ASSERT_TRUE(save_checkpoint(options, 1, state.pieces, {}, self).ok);
    const std::vector<CaseTensor> large = {{"params/large", Element::f32, {3000, 1000}}};
    CaseState big(large, Split::even, 0, 1);
    const SaveResult result = save_checkpoint(options, 2, big.pieces, {}, self);
    EXPECT_FALSE(result.ok);
    EXPECT_TRUE(says(result.problem, "No space left on device")) << result.problem;
    EXPECT_TRUE(says(result.problem, "step_00000002.part/shard_00000.h5"))
        << result.problem;
    EXPECT_FALSE(std::filesystem::exists(options.folder + "/step_00000002.part"));
    EXPECT_EQ(read_text(options.folder + "/latest"), "step_00000001\n");
    state.fill(3);
    EXPECT_TRUE(save_checkpoint(options, 3, state.pieces, {}, self).ok);
    CaseState back(case_tensors(), Split::even, 0, 1);
    load_checkpoint(options.folder + "/step_00000003", back.pieces, self);
    EXPECT_EQ(back.wrong(3), 0);
  });
}

TEST(FullDisk, a_disk_without_any_room) {
  with_small_disk("1m", [](const std::string& disk) {
    {
      std::ofstream junk(disk + "/junk", std::ios::binary);
      const std::string block(4096, 'x');
      while (junk << block << std::flush) {
      }
    }
    CaseState state(case_tensors(), Split::even, 0, 1);
    const SaveOptions options{disk + "/ckpt", 2, 0};
    const SaveResult result = save_checkpoint(options, 2, state.pieces, {}, Comm::self());
    EXPECT_FALSE(result.ok);
    EXPECT_TRUE(says(result.problem, "No space left")) << result.problem;
    std::filesystem::remove(disk + "/junk");
    EXPECT_TRUE(save_checkpoint(options, 2, state.pieces, {}, Comm::self()).ok);
  });
}
