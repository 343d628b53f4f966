#pragma once
/// \file The order of the training data: a pure function of (seed, tokens seen).
///
/// The training documents of a source, one after another, are a stream. It is cut into
/// windows: the largest multiple of seq_len in window_tokens, the last window being
/// shorter. Each epoch visits the windows of a source in an order of its own, and the
/// sequences of a window in an order of its own; a tail shorter than one sequence is left
/// out. The sources take turns as their weights say (data/draws.hpp). Nothing here knows
/// the grid or the size of a step: training sequences are numbered from 0, and sequence g
/// is the same for everyone.
///
/// Weights and the sequence length may change at a token count. New weights go on in each
/// source where it is. A new sequence length starts each source at its next window, so
/// nothing is repeated, and what is left of the window in progress is skipped for that
/// epoch.
/// A boundary takes effect at the first whole sequence at or after it.
#include "data/batch.hpp"
#include "data/draws.hpp"
#include "data/source.hpp"

namespace capstan {

/// A weight that stands for the number of training tokens of the source.
inline constexpr double kBySize = -1;

/// From this many tokens on (0 first, ascending), these weights.
struct MixtureStage {
  index_t from_tokens = 0;
  std::vector<double> weights;  ///< one per source, >= 0 or kBySize
  bool permuted = false;        ///< Draws of blocks in an order of their own
};
/// From this many tokens on (0 first, ascending), this sequence length: the history of a
/// run whose sequence length was changed at a restart.
struct LengthStage {
  index_t from_tokens = 0;
  index_t seq_len = 0;
};

struct SamplerSpec {
  std::vector<SourceSpec> sources;
  std::vector<MixtureStage> mixture;  ///< empty: all by size, throughout
  std::vector<LengthStage> lengths;   ///< at least one
  index_t vocab = 0;
  index_t end_of_document = -1;
  index_t window_tokens = 1048576;
  double valid_fraction = 0;
  std::uint64_t seed = 0;
};

/// Where a training sequence lies in its source.
struct Place {
  int source = 0;
  index_t epoch = 0;
  index_t first = 0;    ///< token of the source's training stream
  index_t tokens = 0;   ///< seq_len, or less where the whole source is shorter
  index_t seq_len = 0;  ///< padded to this
};

class Sampler {
 public:
  /// Opens the sources. Error(Exit::file) lists the problems of all files,
  /// Error(Exit::deck) those of the spec.
  explicit Sampler(const SamplerSpec& spec);

  /// The number of the first sequence not yet seen after `tokens_seen` tokens (padding
  /// counts).
  index_t sequence_after(index_t tokens_seen) const;
  /// Sequence length at training sequence g.
  index_t seq_len(index_t g) const { return leg_of(g).seq_len; }
  Place place(index_t g) const;
  /// Training sequences [g, g + n); all of one length.
  Batch train(index_t g, index_t n) const;

  /// Held-out sequences of seq_len tokens, in the order of the sources and their
  /// documents.
  index_t valid_sequences(index_t seq_len) const;
  Batch valid(const std::vector<index_t>& sequences, index_t seq_len) const;
  /// At most `n` held-out sequences, evenly spread, ascending: the same at each
  /// evaluation.
  std::vector<index_t> valid_choice(index_t n, index_t seq_len) const;

  const std::vector<Source>& sources() const { return sources_; }
  /// Training sequences drawn from source s before sequence g, all epochs together.
  index_t drawn(int s, index_t g) const;
  /// One line per source: name, documents, tokens, hash. Kept in a checkpoint.
  std::string fingerprint() const;
  /// What differs between a kept fingerprint and this one, a line per source. Empty: same
  /// data.
  std::vector<std::string> fingerprint_differences(const std::string& kept) const;

 private:
  struct Start {
    index_t epoch = 0,
            at = 0;     ///< sequences of the epoch before the leg, in the leg's length
    index_t drawn = 0;  ///< sequences of the source before the leg
  };
  /// A stretch of constant weights and sequence length.
  struct Leg {
    index_t first = 0;  ///< training sequence
    index_t from_tokens = 0;
    index_t seq_len = 0;
    int draws = 0;  ///< of draws_
    std::vector<Start> start;
  };
  /// The windows of a source at a sequence length.
  struct Windows {
    index_t count = 0;      ///< the shorter last one included
    index_t sequences = 0;  ///< of a whole window
    index_t last = 0;       ///< sequences of the last window, may be 0
    index_t tokens = 0;     ///< of a whole window
    index_t per_epoch() const { return (count - 1) * sequences + last; }
  };
  Windows windows(int source, index_t seq_len) const;
  std::uint64_t key(int source, index_t epoch, index_t what) const;
  /// (visit, sequence in it) of the epoch's sequence `at`, and back for the start of a
  /// visit.
  void split(int source, index_t epoch, index_t seq_len, index_t at, index_t& visit,
             index_t& inside) const;
  index_t before_visit(int source, index_t epoch, index_t seq_len, index_t visit) const;
  const Leg& leg_of(index_t g) const;
  void check(const SamplerSpec& spec) const;
  void build_legs(const SamplerSpec& spec);
  void start_leg(const Leg& before, Leg& leg) const;
  void fill(const Source& source, Part part, index_t first, index_t n, index_t seq_len,
            Batch& batch) const;

  std::vector<Source> sources_;
  std::vector<Draws> draws_;
  std::vector<Leg> legs_;
  index_t window_tokens_;
  std::uint64_t seed_;
};

}  // namespace capstan
