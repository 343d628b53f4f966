#include <algorithm>
#include <map>
#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "data/sampler.hpp"

namespace capstan {

void Sampler::fill(const Source& source, Part part, index_t first, index_t n,
                   index_t seq_len, Batch& batch) const {
  const auto at = static_cast<index_t>(batch.tokens.size());
  batch.tokens.resize(at + seq_len, 0);
  batch.targets.resize(at + seq_len, -1);
  batch.segments.resize(at + seq_len, -1);
  std::vector<std::uint8_t> ends(static_cast<std::size_t>(n));
  source.read(part, first, n, batch.tokens.data() + at, batch.segments.data() + at,
              ends.data());
  for (index_t i = 0; i + 1 < n; ++i) {
    if (!ends[i]) batch.targets[at + i] = batch.tokens[at + i + 1];
  }
  ++batch.sequences;
  batch.seq_len = seq_len;
}

Batch Sampler::train(index_t g, index_t n) const {
  Batch batch;
  for (index_t i = 0; i < n; ++i) {
    const Place p = place(g + i);
    if (i > 0 && p.seq_len != batch.seq_len) {
      throw Error(Exit::deck, "data: the sequence length changes inside a step");
    }
    fill(sources_[p.source], Part::train, p.first, p.tokens, p.seq_len, batch);
  }
  return batch;
}

namespace {
/// Sequences of a held-out stream; one that is shorter than a sequence is padded.
index_t sequences_of(const Source& source, index_t seq_len) {
  const index_t tokens = source.tokens(Part::valid);
  return tokens > 0 ? std::max<index_t>(1, tokens / seq_len) : 0;
}
}  // namespace

index_t Sampler::valid_sequences(index_t seq_len) const {
  index_t n = 0;
  for (const Source& source : sources_) n += sequences_of(source, seq_len);
  return n;
}

Batch Sampler::valid(const std::vector<index_t>& sequences, index_t seq_len) const {
  Batch batch;
  batch.seq_len = seq_len;
  for (index_t i : sequences) {
    require(i >= 0 && i < valid_sequences(seq_len), "sampler: no such held-out sequence");
    std::size_t s = 0;
    while (i >= sequences_of(sources_[s], seq_len))
      i -= sequences_of(sources_[s++], seq_len);
    const index_t tokens = sources_[s].tokens(Part::valid);
    const index_t n = std::min(seq_len, tokens - i * seq_len);
    fill(sources_[s], Part::valid, i * seq_len, n, seq_len, batch);
  }
  return batch;
}

std::vector<index_t> Sampler::valid_choice(index_t n, index_t seq_len) const {
  const index_t all = valid_sequences(seq_len);
  const index_t take = std::min(n, all);
  std::vector<index_t> choice;
  for (index_t i = 0; i < take; ++i) {
    const auto spread =
        static_cast<double>(i) * static_cast<double>(all) / static_cast<double>(take);
    choice.push_back(static_cast<index_t>(spread));
  }
  return choice;
}

std::string Sampler::fingerprint() const {
  std::string text;
  for (const Source& source : sources_) {
    text += format("%s\t%lld documents\t%lld train + %lld held-out tokens\t%s\n",
                   source.name().c_str(), static_cast<long long>(source.documents()),
                   static_cast<long long>(source.tokens(Part::train)),
                   static_cast<long long>(source.tokens(Part::valid)),
                   hex(source.content_hash()).c_str());
  }
  return text;
}

std::vector<std::string> Sampler::fingerprint_differences(const std::string& kept) const {
  const auto parse = [](const std::string& text) {
    std::map<std::string, std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      const std::size_t tab = line.find('\t');
      const std::string rest = tab == std::string::npos ? "" : line.substr(tab + 1);
      lines[line.substr(0, tab)] = rest;
    }
    return lines;
  };
  const auto before = parse(kept), now = parse(fingerprint());
  std::vector<std::string> differences;
  for (const auto& [name, line] : before) {
    const auto found = now.find(name);
    if (found == now.end()) {
      differences.push_back("data source " + name + ": gone (was " + line + ")");
    } else if (found->second != line) {
      differences.push_back("data source " + name + ": was " + line + ", is " +
                            found->second);
    }
  }
  for (const auto& [name, line] : now) {
    if (before.count(name) == 0) differences.push_back("data source " + name + ": new");
  }
  return differences;
}

}  // namespace capstan
