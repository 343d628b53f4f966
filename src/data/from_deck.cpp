#include "data/from_deck.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "data/byte_tokenizer.hpp"

namespace capstan {

namespace {
std::string last_part(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

/// Files and weights of one block; a range of tokens where they hold (`last` 0: open).
struct Range {
  std::string block;
  index_t first = 0, last = 0;
  std::vector<std::string> files;
  std::vector<double> weights;
};

/// The deck has checked that weights, if any, are as many as files.
Range read_range(const Deck& deck, const std::string& block) {
  Range r;
  r.block = block;
  r.files = deck.texts(block + "/files");
  r.weights = deck.reals(block + "/weights");
  if (r.weights.empty()) r.weights.assign(r.files.size(), kBySize);
  return r;
}

class Builder {
 public:
  explicit Builder(const Deck& deck) {
    base_ = read_range(deck, "data");
    for (const int i : deck.numbered("mixture")) {
      const std::string block = "mixture" + std::to_string(i);
      ranges_.push_back(read_range(deck, block));
      ranges_.back().first = deck.integer(block + "/first_tokens");
      ranges_.back().last = deck.integer(block + "/last_tokens");
    }
    std::stable_sort(ranges_.begin(), ranges_.end(),
                     [](const Range& a, const Range& b) { return a.first < b.first; });
    name_sources();
    index_t at = 0;  // up to where the stages reach; -1: to the end
    for (const Range& range : ranges_) {
      if (at < 0 || range.first < at)
        problems_ += "\n" + range.block + ": overlaps another one";
      if (at >= 0 && range.first > at) add_stage(base_, at);
      add_stage(range, range.first);
      at = range.last == 0 ? -1 : range.last;
    }
    if (at >= 0) add_stage(base_, at);
  }

  void finish(SamplerSpec& spec) {
    if (!problems_.empty()) throw Error(Exit::deck, "data of the deck:" + problems_);
    spec.sources = sources_;
    spec.mixture = stages_;
  }

 private:
  void name_sources() {
    std::vector<std::string> files = base_.files;
    for (const Range& r : ranges_)
      files.insert(files.end(), r.files.begin(), r.files.end());
    std::map<std::string, std::vector<std::string>> by_name;
    for (const auto& file : files) {
      if (index_.count(file) > 0) continue;
      index_[file] = sources_.size();
      sources_.push_back({last_part(file), {file}});
      by_name[last_part(file)].push_back(file);
    }
    for (const auto& [name, same] : by_name) {
      if (same.size() < 2) continue;
      for (const auto& file : same) sources_[index_[file]].name = file;
    }
  }
  void add_stage(const Range& range, index_t from) {
    if (range.files.empty()) {
      problems_ += format("\nno data/files, and no mixture holds at token %lld",
                          static_cast<long long>(from));
    }
    MixtureStage stage{from, std::vector<double>(sources_.size(), 0), false};
    stage.permuted = range.block != base_.block;
    for (std::size_t i = 0; i < range.files.size(); ++i) {
      double& weight = stage.weights[index_[range.files[i]]];
      if (weight != 0)
        problems_ += "\n" + range.block + "/files: twice " + range.files[i];
      weight = range.weights[i];
    }
    stages_.push_back(stage);
  }

  std::string problems_;
  Range base_;
  std::vector<Range> ranges_;
  std::vector<SourceSpec> sources_;
  std::map<std::string, std::size_t> index_;
  std::vector<MixtureStage> stages_;
};
}  // namespace

SamplerSpec sampler_spec(const Deck& deck, const std::vector<LengthStage>& lengths) {
  SamplerSpec spec;
  Builder(deck).finish(spec);
  spec.lengths = lengths;
  if (lengths.empty()) spec.lengths = {{0, deck.integer("model/seq_len")}};
  spec.vocab = deck.integer("model/vocab");
  // Megatron files carry their documents; the id matters to flat files only.
  if (deck.text("data/tokenizer") == "byte") {
    spec.end_of_document = byte_tokenizer::kEndOfDocument;
  }
  spec.window_tokens = deck.integer("data/window_tokens");
  spec.valid_fraction = deck.real("data/valid_fraction");
  spec.seed = static_cast<std::uint64_t>(deck.integer("job/seed"));
  return spec;
}

bool order_differs(const SamplerSpec& before, const SamplerSpec& now, index_t tokens) {
  using Weights = std::vector<std::pair<std::string, double>>;
  using Stage = std::tuple<index_t, bool, Weights>;
  const auto stages = [&](const SamplerSpec& spec) {
    std::vector<Stage> out;
    for (const MixtureStage& stage : spec.mixture) {
      if (stage.from_tokens >= tokens) continue;
      Weights weights;
      for (std::size_t s = 0; s < spec.sources.size(); ++s) {
        if (stage.weights[s] != 0)
          weights.emplace_back(spec.sources[s].name, stage.weights[s]);
      }
      out.emplace_back(stage.from_tokens, stage.permuted, weights);
    }
    return out;
  };
  return tokens > 0 && stages(before) != stages(now);
}

}  // namespace capstan
