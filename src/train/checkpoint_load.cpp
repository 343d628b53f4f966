#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "io/publish.hpp"
#include "train/checkpoint_index.hpp"

namespace capstan {

namespace fs = std::filesystem;
using namespace ckpt;

namespace {

/// A stored piece and what of it this rank wants (null: its hash only).
struct Job {
  index_t piece = 0;
  const TensorPiece* wanted = nullptr;
};

std::map<std::string, index_t> tensors_by_name(const Index& index) {
  std::map<std::string, index_t> names;
  for (std::size_t t = 0; t < index.tensors.size(); ++t)
    names[index.tensors[t].name] = static_cast<index_t>(t);
  return names;
}

bool overlap(const StoredPiece& stored, const TensorPiece& wanted) {
  return stored.row0 < wanted.row0 + wanted.rows &&
         wanted.row0 < stored.row0 + stored.rows;
}

/// Tensors that are absent or of another shape or type.
std::vector<std::string> wanted_problems(const Index& index,
                                         const std::vector<TensorPiece>& wanted) {
  std::vector<std::string> problems;
  const auto names = tensors_by_name(index);
  for (const TensorPiece& w : wanted) {
    const auto found = names.find(w.name);
    if (found == names.end()) {
      problems.push_back("missing: tensor " + w.name);
      continue;
    }
    const StoredTensor& t = index.tensors[found->second];
    if (t.shape != w.shape || t.element != w.element)
      problems.push_back("mis-shaped: tensor " + w.name + " is " + name_of(t.element) +
                         " " + text_of(t.shape) + " in the checkpoint, " +
                         name_of(w.element) + " " + text_of(w.shape) +
                         " in the deck's model");
  }
  return problems;
}

/// Tensors of the checkpoint that no rank wants. Collective.
std::vector<std::string> extra_tensors(const Index& index,
                                       const std::vector<TensorPiece>& wanted,
                                       const Comm& world) {
  std::vector<std::uint8_t> used(index.tensors.size(), 0);
  const auto names = tensors_by_name(index);
  for (const TensorPiece& w : wanted)
    if (const auto found = names.find(w.name); found != names.end())
      used[found->second] = 1;
  world.all_reduce_host(used.data(), static_cast<index_t>(used.size()), Reduce::max);
  std::vector<std::string> problems;
  for (std::size_t t = 0; t < used.size(); ++t)
    if (used[t] == 0)
      problems.push_back("extra: tensor " + index.tensors[t].name +
                         " is in the checkpoint, not in the deck's model");
  return problems;
}

/// What this rank reads: pieces that overlap what it wants, and with check_all its share
/// of the pieces that nobody reads. Collective. Sorted, so that each shard is opened
/// once.
std::vector<Job> plan_jobs(const Index& index, const std::vector<TensorPiece>& wanted,
                           bool check_all, const Comm& world) {
  std::vector<std::vector<index_t>> pieces_of(index.tensors.size());
  for (std::size_t p = 0; p < index.pieces.size(); ++p)
    pieces_of[index.pieces[p].tensor].push_back(static_cast<index_t>(p));
  const auto names = tensors_by_name(index);
  std::vector<Job> jobs;
  std::vector<std::uint8_t> read(index.pieces.size(), 0);
  for (const TensorPiece& w : wanted)
    for (const index_t p : pieces_of[names.at(w.name)])
      if (overlap(index.pieces[p], w)) {
        jobs.push_back({p, &w});
        read[p] = 1;
      }
  world.all_reduce_host(read.data(), static_cast<index_t>(read.size()), Reduce::max);
  for (std::size_t p = 0; p < read.size(); ++p)
    if (check_all && read[p] == 0 &&
        index.pieces[p].shard % world.size() == static_cast<index_t>(world.rank()))
      jobs.push_back({static_cast<index_t>(p), nullptr});
  std::stable_sort(jobs.begin(), jobs.end(), [&](const Job& a, const Job& b) {
    return index.pieces[a.piece].shard < index.pieces[b.piece].shard;
  });
  return jobs;
}

/// Reads a stored piece, checks it, and stores the rows that are wanted.
void run_job(const H5File& shard, const Index& index, const Job& job,
             std::vector<char>& buffer) {
  const StoredPiece& stored = index.pieces[job.piece];
  const index_t row_bytes = index.tensors[stored.tensor].row_bytes();
  stream_piece(
      shard, index, stored, buffer, [&](index_t first, index_t n, const char* data) {
        if (job.wanted == nullptr) return;
        const TensorPiece& w = *job.wanted;
        const index_t at = stored.row0 + first;  // row of the tensor at `data`
        const index_t from = std::max(at, w.row0), to = std::min(at + n, w.row0 + w.rows);
        if (from < to) w.store(from - w.row0, to - from, data + (from - at) * row_bytes);
      });
}

/// Opens each shard once and runs `run(shard, job)`; collects what goes wrong.
template <class F>
std::vector<std::string> run_by_shard(const std::string& folder, const Index& index,
                                      const std::vector<Job>& jobs, const F& run) {
  std::vector<std::string> problems;
  H5File shard;
  index_t open = -1;
  bool usable = false;
  for (const Job& job : jobs) {
    const index_t wanted = index.pieces[job.piece].shard;
    try {
      if (wanted != open) {
        open = wanted;
        usable = false;
        shard = open_shard(folder, index, wanted);
        usable = true;
      }
      if (usable) run(shard, job);
    } catch (const Error& e) {
      problems.push_back(e.what());
    }
  }
  return problems;
}

[[noreturn]] void refuse(const std::string& path,
                         const std::vector<std::string>& problems) {
  throw Error(Exit::file,
              format("checkpoint %s cannot be used, %zu problem%s:\n  ", path.c_str(),
                     problems.size(), problems.size() == 1 ? "" : "s") +
                  join(problems, "\n  "));
}

/// The index, read by every rank; nothing where some rank could not. `problems`, agreed:
/// those of reading it, or else of the files.
std::optional<Index> agreed_index(const std::string& path, const Comm& world,
                                  std::vector<std::string>& problems) {
  Index index;
  std::vector<std::string> mine;
  try {
    index = read_index(path);
  } catch (const Error& e) {
    mine.push_back(e.what());
  }
  problems = agree(mine, world);
  if (!problems.empty()) return {};
  if (world.rank() == 0) mine = structure_problems(path, index);
  problems = agree(mine, world);
  return index;
}

}  // namespace

CheckpointInfo load_checkpoint(const std::string& path,
                               const std::vector<TensorPiece>& wanted, const Comm& world,
                               const LoadOptions& options) {
  std::vector<std::string> problems;
  const auto agreed = agreed_index(path, world, problems);
  if (!agreed) refuse(path, problems);
  const Index& index = *agreed;
  auto more = agree(wanted_problems(index, wanted), world);
  if (!options.only_wanted) {
    const auto extra = extra_tensors(index, wanted, world);
    more.insert(more.end(), extra.begin(), extra.end());
  }
  // Shapes that do not agree cannot be read; damaged files are read as far as they go, so
  // that all of what is wrong with them is in one list.
  if (more.empty()) {
    const auto jobs = plan_jobs(index, wanted, options.check_all, world);
    std::vector<char> buffer;
    more = agree(run_by_shard(path, index, jobs,
                              [&](const H5File& shard, const Job& job) {
                                run_job(shard, index, job, buffer);
                              }),
                 world);
  }
  problems.insert(problems.end(), more.begin(), more.end());
  if (!problems.empty()) refuse(path, agree(problems, world));
  return {path, index.attributes};
}

CheckpointInfo load_latest(const std::string& folder,
                           const std::vector<TensorPiece>& wanted, const Comm& world,
                           Log& log, const LoadOptions& options) {
  std::string text;
  if (world.rank() == 0) {
    const std::vector<std::string> choices = latest_checkpoints(folder);
    if (!choices.empty() && !fs::exists(folder + "/latest"))
      log.warn("%s/latest is missing; trying the newest checkpoint", folder.c_str());
    text = join(choices, "\n");
  }
  std::string all_problems;
  for (const std::string& path : split_lines(world.broadcast_text(text, 0))) {
    try {
      CheckpointInfo info = load_checkpoint(path, wanted, world, options);
      if (!all_problems.empty() && world.rank() == 0)
        log.warn("falling back to %s, the newest checkpoint that is intact",
                 path.c_str());
      return info;
    } catch (const Error& e) {
      if (e.code() != Exit::file) throw;
      all_problems += std::string("\n") + e.what();
      if (world.rank() == 0) log.warn("%s", e.what());
    }
  }
  throw Error(Exit::file, "no usable checkpoint in " + folder + all_problems);
}

std::vector<std::string> verify_checkpoint(const std::string& path, const Comm& world) {
  std::vector<std::string> problems;
  const auto agreed = agreed_index(path, world, problems);
  if (!agreed) return problems;
  const Index& index = *agreed;
  std::vector<std::uint64_t> sums(index.tensors.size(), 0);
  std::vector<char> buffer;
  const auto check = [&](const H5File& shard, const Job& job) {
    const StoredPiece& stored = index.pieces[job.piece];
    const StoredTensor& tensor = index.tensors[stored.tensor];
    const int width = static_cast<int>(bytes_of(tensor.element));
    const index_t size = tensor.row_bytes() / width;
    stream_piece(shard, index, stored, buffer,
                 [&](index_t first, index_t n, const char* data) {
                   sums[stored.tensor] +=
                       hash_indexed(data, n * size, width, (stored.row0 + first) * size);
                 });
  };
  auto more =
      agree(run_by_shard(path, index, plan_jobs(index, {}, true, world), check), world);
  world.all_reduce_host(sums.data(), static_cast<index_t>(sums.size()), Reduce::sum);
  for (std::size_t t = 0; t < sums.size() && more.empty() && problems.empty(); ++t)
    if (sums[t] != index.tensors[t].checksum)
      more.push_back("checksum differs: tensor " + index.tensors[t].name);
  problems.insert(problems.end(), more.begin(), more.end());
  return agree(problems, world);
}

}  // namespace capstan
