#include "data/corpus.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <unordered_set>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/byte_tokenizer.hpp"
#include "data/token_file.hpp"

namespace capstan {

namespace fs = std::filesystem;
namespace bt = byte_tokenizer;

namespace {
struct Candidate {
  std::string path;
  index_t bytes;
};

bool wanted(const std::string& path, const std::vector<std::string>& suffixes) {
  if (suffixes.empty()) return true;
  return std::any_of(suffixes.begin(), suffixes.end(), [&](const std::string& suffix) {
    return path.size() >= suffix.size() &&
           path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0;
  });
}

void walk(const fs::path& folder, const CorpusSpec& spec, std::vector<Candidate>& found,
          CorpusReport& report) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    entries.push_back(*it);
  if (error) {
    ++report.unreadable;
    report.notes.push_back(folder.string() + ": " + error.message());
  }
  std::sort(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    if (entry.is_symlink(error)) {
      ++report.skipped_links;
    } else if (entry.is_directory(error)) {
      walk(entry.path(), spec, found, report);
    } else if (entry.is_regular_file(error)) {
      if (wanted(entry.path().string(), spec.suffixes)) {
        found.push_back(
            {entry.path().string(), static_cast<index_t>(entry.file_size(error))});
      } else {
        ++report.skipped_suffix;
      }
    }
  }
}

std::vector<Candidate> collect(const CorpusSpec& spec, CorpusReport& report) {
  std::vector<Candidate> found;
  std::string missing;
  for (const auto& path : spec.paths) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      walk(path, spec, found, report);
    } else if (fs::is_regular_file(path, error)) {
      found.push_back({path, static_cast<index_t>(fs::file_size(path, error))});
    } else {
      missing += (missing.empty() ? "" : "\n") + path + ": no such file or folder";
    }
  }
  if (!missing.empty()) throw Error(Exit::file, missing);
  return found;
}

bool read_file(const std::string& path, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  text.assign(std::istreambuf_iterator<char>(in), {});
  return !in.bad();
}

double entropy(const std::array<index_t, bt::kVocab>& counts, index_t total) {
  double sum = 0;
  for (const index_t n : counts) {
    if (n > 0) sum -= static_cast<double>(n) * std::log(static_cast<double>(n));
  }
  return std::log(static_cast<double>(total)) + sum / static_cast<double>(total);
}
}  // namespace

CorpusReport make_corpus(const CorpusSpec& spec,
                         const std::function<void(index_t, index_t)>& progress) {
  CorpusReport report;
  const std::vector<Candidate> files = collect(spec, report);
  index_t bytes = 0, done = 0;
  for (const auto& file : files) bytes += file.bytes;
  TokenFileWriter writer(spec.prefix, IdType::uint16);
  std::unordered_set<std::uint64_t> seen;
  std::array<index_t, bt::kVocab> counts{};
  std::string text;
  for (const auto& file : files) {
    done += file.bytes;
    if (!read_file(file.path, text)) {
      ++report.unreadable;
      report.notes.push_back(file.path + ": cannot be read");
    } else if (static_cast<index_t>(text.size()) < spec.min_bytes) {
      ++report.skipped_short;
    } else if (!bt::is_text(text)) {
      ++report.skipped_binary;
    } else if (!seen.insert(hash_bytes(text.data(), text.size())).second) {
      ++report.skipped_copies;
    } else {
      std::vector<std::int32_t> ids = bt::encode(text);
      ids.push_back(bt::kEndOfDocument);
      for (const std::int32_t id : ids) ++counts[id];
      writer.append(ids);
      ++report.documents;
      report.tokens += static_cast<index_t>(ids.size());
      report.bytes += static_cast<index_t>(text.size());
    }
    progress(done, bytes);
  }
  if (report.documents == 0) {
    throw Error(Exit::file, "no text found in " + std::to_string(files.size()) +
                                " files: nothing written");
  }
  writer.finish();
  report.unigram_entropy = entropy(counts, report.tokens);
  return report;
}

}  // namespace capstan
