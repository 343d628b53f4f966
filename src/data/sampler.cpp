#include "data/sampler.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/rng.hpp"
#include "data/permutation.hpp"

namespace capstan {

namespace {
constexpr index_t ceil_div(index_t a, index_t b) {
  return (a + b - 1) / b;
}
long long wide(index_t n) {
  return n;
}

/// Whole windows hold the same tokens for lengths that are mixed in one run.
index_t window_of(index_t window_tokens, index_t seq_len) {
  return std::max<index_t>(1, window_tokens / seq_len) * seq_len;
}

template <class Stage>
void check_stages(const std::vector<Stage>& stages, const char* what,
                  std::string& problems) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const bool ok = i == 0 ? stages[i].from_tokens == 0
                           : stages[i].from_tokens > stages[i - 1].from_tokens;
    if (!ok) problems += format("\n%s: starts must be 0 and then ascend", what);
  }
}
}  // namespace

void Sampler::check(const SamplerSpec& spec) const {
  std::string problems;
  if (spec.sources.empty()) problems += "\nno data source";
  if (spec.lengths.empty()) problems += "\nno sequence length";
  check_stages(spec.mixture, "mixture stages", problems);
  check_stages(spec.lengths, "sequence lengths", problems);
  for (const auto& stage : spec.mixture) {
    if (stage.weights.size() != spec.sources.size()) {
      problems += "\na mixture stage needs one weight per source";
    }
  }
  for (const auto& [from, seq_len] : spec.lengths) {
    if (seq_len < 1) {
      problems += "\nsequence length must be at least 1";
      break;
    }
    const index_t window = window_of(spec.window_tokens, seq_len);
    const index_t first = window_of(spec.window_tokens, spec.lengths[0].seq_len);
    if (window != first) {
      problems += format(
          "\nsequence length %lld cuts windows of %lld tokens, the run began with "
          "%lld: take one that divides %lld",
          wide(seq_len), wide(window), wide(first), wide(first));
    }
  }
  for (std::size_t i = 0; i < spec.sources.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (spec.sources[i].name == spec.sources[j].name) {
        problems += "\ntwo data sources are named " + spec.sources[i].name;
      }
    }
  }
  if (!problems.empty()) throw Error(Exit::deck, "data:" + problems);
}

Sampler::Sampler(const SamplerSpec& spec)
    : window_tokens_(spec.window_tokens), seed_(spec.seed) {
  check(spec);
  std::string problems;
  for (const auto& source : spec.sources) {
    try {
      sources_.emplace_back(source, spec.vocab, spec.end_of_document,
                            spec.valid_fraction);
      if (sources_.back().tokens(Part::train) == 0) {
        problems += "\ndata source " + source.name +
                    " has no training document: all of them "
                    "are held out";
      }
    } catch (const Error& error) {
      problems += "\n" + std::string(error.what());
    }
  }
  if (!problems.empty()) throw Error(Exit::file, problems.substr(1));
  build_legs(spec);
}

void Sampler::build_legs(const SamplerSpec& spec) {
  std::vector<MixtureStage> mixture = spec.mixture;
  if (mixture.empty())
    mixture.push_back({0, std::vector<double>(sources_.size(), kBySize)});
  for (auto& stage : mixture) {
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      if (stage.weights[s] != kBySize) continue;
      stage.weights[s] = static_cast<double>(sources_[s].tokens(Part::train));
    }
    // The key knows the stage by its start, so that stages added later move nothing.
    draws_.emplace_back(stage.weights, stage.permuted,
                        mix64(seed_) ^ static_cast<std::uint64_t>(stage.from_tokens));
  }
  std::vector<index_t> starts;
  for (const auto& stage : mixture) starts.push_back(stage.from_tokens);
  for (const auto& stage : spec.lengths) starts.push_back(stage.from_tokens);
  std::sort(starts.begin(), starts.end());
  for (const index_t start : starts) {
    Leg leg;
    for (const auto& stage : spec.lengths) {
      if (stage.from_tokens <= start) leg.seq_len = stage.seq_len;
    }
    for (std::size_t i = 0; i < mixture.size(); ++i) {
      if (mixture[i].from_tokens <= start) leg.draws = static_cast<int>(i);
    }
    leg.from_tokens = start;
    leg.start.resize(sources_.size());
    if (!legs_.empty()) {
      // The first sequence that begins at or after the boundary, in the length so far.
      const Leg& before = legs_.back();
      const index_t n = ceil_div(start - before.from_tokens, before.seq_len);
      leg.from_tokens = before.from_tokens + n * before.seq_len;
      leg.first = before.first + n;
      start_leg(before, leg);
      if (n == 0) legs_.pop_back();
    }
    legs_.push_back(leg);
  }
}

void Sampler::start_leg(const Leg& before, Leg& leg) const {
  for (int s = 0; s < static_cast<int>(sources_.size()); ++s) {
    const Start& from = before.start[s];
    Start& to = leg.start[s];
    const index_t n = draws_[before.draws].count(s, leg.first - before.first);
    const index_t per_epoch = windows(s, before.seq_len).per_epoch();
    to.drawn = from.drawn + n;
    to.epoch = from.epoch + (from.at + n) / per_epoch;
    to.at = (from.at + n) % per_epoch;
    if (leg.seq_len == before.seq_len || to.at == 0) continue;
    index_t visit = 0, inside = 0;
    split(s, to.epoch, before.seq_len, to.at, visit, inside);
    visit += inside > 0;
    to.at = before_visit(s, to.epoch, leg.seq_len, visit);
  }
}

Sampler::Windows Sampler::windows(int source, index_t seq_len) const {
  Windows w;
  w.tokens = window_of(window_tokens_, seq_len);
  w.sequences = w.tokens / seq_len;
  const index_t stream = sources_[source].tokens(Part::train);
  // The count does not depend on the length, so that the order of the windows does not
  // either.
  w.count = ceil_div(stream, w.tokens);
  w.last = (stream - (w.count - 1) * w.tokens) / seq_len;
  if (w.per_epoch() == 0) w.last = 1;  // a source shorter than one sequence: padded
  return w;
}

std::uint64_t Sampler::key(int source, index_t epoch, index_t what) const {
  const std::uint64_t stream = stream_of(sources_[source].name());
  return mix64(mix64(mix64(mix64(seed_) ^ stream) ^ static_cast<std::uint64_t>(epoch)) ^
               static_cast<std::uint64_t>(what));
}

void Sampler::split(int source, index_t epoch, index_t seq_len, index_t at,
                    index_t& visit, index_t& inside) const {
  const Windows w = windows(source, seq_len);
  const index_t shorter = Permutation(w.count, key(source, epoch, -1)).find(w.count - 1);
  const index_t end_of_shorter = shorter * w.sequences + w.last;
  if (at < shorter * w.sequences) {
    visit = at / w.sequences;
    inside = at % w.sequences;
  } else if (at < end_of_shorter) {
    visit = shorter;
    inside = at - shorter * w.sequences;
  } else {
    visit = shorter + 1 + (at - end_of_shorter) / w.sequences;
    inside = (at - end_of_shorter) % w.sequences;
  }
}

index_t Sampler::before_visit(int source, index_t epoch, index_t seq_len,
                              index_t visit) const {
  const Windows w = windows(source, seq_len);
  const index_t shorter = Permutation(w.count, key(source, epoch, -1)).find(w.count - 1);
  return visit * w.sequences - (visit > shorter ? w.sequences - w.last : 0);
}

const Sampler::Leg& Sampler::leg_of(index_t g) const {
  require(g >= 0, "sampler: a negative sequence number");
  std::size_t i = legs_.size() - 1;
  while (legs_[i].first > g) --i;
  return legs_[i];
}

index_t Sampler::sequence_after(index_t tokens_seen) const {
  std::size_t i = legs_.size() - 1;
  while (i > 0 && legs_[i].from_tokens > tokens_seen) --i;
  return legs_[i].first + (tokens_seen - legs_[i].from_tokens) / legs_[i].seq_len;
}

index_t Sampler::drawn(int s, index_t g) const {
  const Leg& leg = leg_of(g);
  return leg.start[s].drawn + draws_[leg.draws].count(s, g - leg.first);
}

Place Sampler::place(index_t g) const {
  const Leg& leg = leg_of(g);
  const Draws& draws = draws_[leg.draws];
  Place place;
  place.source = draws.source(g - leg.first);
  place.seq_len = leg.seq_len;
  const Start& start = leg.start[place.source];
  const Windows w = windows(place.source, leg.seq_len);
  const index_t at = start.at + draws.count(place.source, g - leg.first);
  place.epoch = start.epoch + at / w.per_epoch();
  index_t visit = 0, inside = 0;
  split(place.source, place.epoch, leg.seq_len, at % w.per_epoch(), visit, inside);
  const index_t window =
      Permutation(w.count, key(place.source, place.epoch, -1)).at(visit);
  const index_t sequences = window == w.count - 1 ? w.last : w.sequences;
  const Permutation order(sequences, key(place.source, place.epoch, window));
  place.first = window * w.tokens + order.at(inside) * leg.seq_len;
  place.tokens =
      std::min(leg.seq_len, sources_[place.source].tokens(Part::train) - place.first);
  return place;
}

}  // namespace capstan
