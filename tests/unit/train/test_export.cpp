// Export of weights into several files: bytes where the header says they are.
#include <gtest/gtest.h>

#include <cstring>

#include "io/publish.hpp"
#include "train/export.hpp"
#include "unit/train/checkpoint_case.hpp"

using namespace capstan;
using namespace capstan::test;

namespace {

/// The data of a file, behind 8 bytes of length and the JSON.
std::string data_of(const std::string& path) {
  const std::string all = read_text(path);
  std::uint64_t size = 0;
  std::memcpy(&size, all.data(), 8);
  return all.substr(8 + size);
}

template <class T>
std::string bytes_of_state(int tensor, index_t n, int version) {
  std::vector<T> values(n);
  for (index_t i = 0; i < n; ++i)
    values[i] = static_cast<T>(state_value(tensor, i, version));
  return {reinterpret_cast<const char*>(values.data()), n * sizeof(T)};
}

class Export : public testing::Test {
 protected:
  void SetUp() override {
    CaseState state(case_tensors(), Split::even, 0, 1);
    state.fill(3);
    const std::string model =
        "<model>\nhidden = 8\nlayers = 1\nheads = 1\nhead_dim = 8\n";
    Attributes about = case_attributes(7);
    about["deck"] = model + "vocab = 9\nseq_len = 4\n<moe>\nexperts = 2\ntop_k = 1\n" +
                    "expert_width = 8\n<batch>\nsequences = 1\n";
    for (const char* name : {"run", "deck_hash", "version", "scalar"})
      about[name] = std::string("\"quoted\"");
    ASSERT_TRUE(
        save_checkpoint({folder.path() + "/ckpt"}, 7, state.pieces, about, Comm::self())
            .ok);
    spec.checkpoint = "latest";
    spec.folder = folder.path() + "/ckpt";
    spec.out = folder.path() + "/out";
  }
  Folder folder;
  ExportSpec spec;
};

}  // namespace

TEST_F(Export, one_file_when_all_fits) {
  const ExportResult result = export_weights(spec);
  EXPECT_EQ(result.tensors, 3);  // neither moments nor counters
  EXPECT_EQ(result.bytes, 120 + 512 + 32);
  EXPECT_EQ(result.files, 1);
  const std::string config = read_text(spec.out + "/config.json");
  EXPECT_TRUE(says(config, "\"run\": \"\\\"quoted\\\"\"")) << config;
  EXPECT_TRUE(says(config, "\"hidden\": 8")) << config;
}

TEST_F(Export, several_files_and_their_map) {
  spec.file_bytes = 150;
  EXPECT_EQ(export_weights(spec).files, 3);
  const std::string stem = spec.out + "/model-0000";
  const std::string tail = "-of-00003.safetensors";
  const std::string map = read_text(spec.out + "/model.safetensors.index.json");
  EXPECT_TRUE(says(map, "\"total_size\": 664")) << map;
  const std::string table = bytes_of_state<float>(0, 30, 3);
  const std::string up = bytes_of_state<double>(1, 64, 3);
  const std::string bias = bytes_of_state<float>(2, 8, 3);
  std::vector<std::string> wanted = {table, up, bias};
  for (int i = 1; i <= 3; ++i) {
    const std::string found = data_of(stem + std::to_string(i) + tail);
    const auto match = std::find(wanted.begin(), wanted.end(), found);
    ASSERT_NE(match, wanted.end()) << "file " << i;
    wanted.erase(match);
  }
}

TEST_F(Export, a_missing_shard_is_an_error_and_leaves_nothing) {
  std::filesystem::remove(spec.folder + "/step_00000007/shard_00000.h5");
  EXPECT_TRUE(says(file_error([&] { export_weights(spec); }), "shard_00000.h5"));
  EXPECT_FALSE(std::filesystem::exists(spec.out));
}
