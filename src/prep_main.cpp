/// \file capstan-prep: text files or folders -> token files PREFIX.bin and PREFIX.idx.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.hpp"
#include "data/byte_tokenizer.hpp"
#include "data/corpus.hpp"

namespace {

using capstan::CorpusReport;
using capstan::CorpusSpec;
using capstan::Error;
using capstan::Exit;

constexpr const char* kHelp =
    R"(capstan-prep: text -> token files of Capstan (Megatron .bin/.idx)

  capstan-prep -o PREFIX [options] PATH...

  PATH              text file, or folder that is walked; every file becomes a document
  -o PREFIX         writes PREFIX.bin and PREFIX.idx (under .part names until complete)
  --suffix LIST     of the files in folders take these only, for example .py,.txt
  --min-bytes N     skip files shorter than this (default 1)
  -q                no progress
  -h                this text

Tokens are bytes (ids 0 to 255); id 256 ends each document, so <model> vocab must be
at least 257. Skipped and counted: what is not UTF-8 text, copies of an earlier file,
symbolic links inside folders. The same paths give the same files.
Exit codes: 0 done, 2 usage, 4 a file is missing or cannot be read or written.
)";

/// A line on standard error: rewritten on a terminal, else one every 10 seconds.
class Progress {
 public:
  explicit Progress(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (drawn_ && terminal_) std::fprintf(stderr, "\r\033[K");
  }
  void operator()(capstan::index_t bytes_done, capstan::index_t bytes) {
    if (quiet_) return;
    const double now = seconds();
    if (now - last_ < (terminal_ ? 0.2 : 10.0)) return;
    last_ = now;
    drawn_ = true;
    const auto done = static_cast<double>(bytes_done), all = static_cast<double>(bytes);
    const double share = all > 0 ? done / all : 1.0;
    const double left = share > 0 ? now * (1 - share) / share : 0;
    std::fprintf(stderr, "%sprep: %.0f of %.0f MB, %.0f MB/s, %.0f s to finish%s",
                 terminal_ ? "\r\033[K" : "", done * 1e-6, all * 1e-6, done * 1e-6 / now,
                 left, terminal_ ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  double seconds() const {
    const auto since = std::chrono::steady_clock::now() - start_;
    return std::chrono::duration<double>(since).count();
  }
  bool quiet_, terminal_, drawn_ = false;
  double last_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Options {
  CorpusSpec corpus;
  bool help = false, quiet = false;
};

Options parse(int argc, char** argv) {
  Options options;
  const auto bad = [](const std::string& text) {
    throw Error(Exit::deck, text + " (capstan-prep -h shows the usage)");
  };
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) bad(word + " needs a value");
      return argv[++i];
    };
    if (word == "-h" || word == "--help") {
      options.help = true;
    } else if (word == "-q") {
      options.quiet = true;
    } else if (word == "-o") {
      options.corpus.prefix = value();
    } else if (word == "--suffix") {
      std::string list = value() + ",";
      for (std::size_t at = 0, comma; (comma = list.find(',', at)) != list.npos;
           at = comma + 1) {
        if (comma > at) options.corpus.suffixes.push_back(list.substr(at, comma - at));
      }
    } else if (word == "--min-bytes") {
      const std::string number = value();
      char* end = nullptr;
      options.corpus.min_bytes = std::strtoll(number.c_str(), &end, 10);
      if (number.empty() || *end != 0 || options.corpus.min_bytes < 0) {
        bad("--min-bytes: not a number of bytes: " + number);
      }
    } else if (word.size() > 1 && word[0] == '-') {
      bad("unknown option " + word);
    } else {
      options.corpus.paths.push_back(word);
    }
  }
  if (options.help) return options;
  if (options.corpus.prefix.empty()) bad("no output: give -o PREFIX");
  if (options.corpus.paths.empty()) bad("no input: name files or folders");
  return options;
}

void print(const std::string& prefix, const CorpusReport& report) {
  constexpr std::size_t kShown = 5;
  for (std::size_t i = 0; i < report.notes.size() && i < kShown; ++i) {
    std::fprintf(stderr, "WARNING: %s\n", report.notes[i].c_str());
  }
  if (report.notes.size() > kShown) {
    std::fprintf(stderr, "WARNING: and %zu more\n", report.notes.size() - kShown);
  }
  const auto n = [](capstan::index_t value) { return static_cast<long long>(value); };
  std::printf("PREP: wrote %s.bin %s.idx\n", prefix.c_str(), prefix.c_str());
  std::printf("PREP: documents=%lld tokens=%lld bytes=%lld vocab=%d end_of_document=%d\n",
              n(report.documents), n(report.tokens), n(report.bytes),
              capstan::byte_tokenizer::kVocab, capstan::byte_tokenizer::kEndOfDocument);
  std::printf(
      "PREP: skipped binary=%lld short=%lld copies=%lld other_suffix=%lld links=%lld "
      "unreadable=%lld\n",
      n(report.skipped_binary), n(report.skipped_short), n(report.skipped_copies),
      n(report.skipped_suffix), n(report.skipped_links), n(report.unreadable));
  std::printf("PREP: unigram_entropy_nats=%.4f\n", report.unigram_entropy);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (options.help) {
      std::fputs(kHelp, stdout);
      return 0;
    }
    CorpusReport report;
    {
      Progress progress(options.quiet);
      report = capstan::make_corpus(options.corpus, std::ref(progress));
    }
    print(options.corpus.prefix, report);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "ERROR: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ERROR: %s\n", error.what());
    return static_cast<int>(Exit::internal);
  }
}
