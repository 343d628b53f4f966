#pragma once
/// \file The one knob: what <scale> derives from a width by the published rule
/// (marin-community/marin#8435): shape, batch, length, learning rates, betas, eps.
#include <functional>
#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace capstan {

/// Learning rate of Adam groups:
/// 0.087571 tokens^-0.3461 hidden^-0.3448 sqrt(tokens_per_step).
double published_adam_rate(double tokens, double hidden, double tokens_per_step);
/// That of MuonH and AdamH groups: 13/3 of it, at most `cap`.
double published_muonh_rate(double adam_rate, double cap);
/// clip(0.999^(tokens_per_step / 131072), 0.95, 0.9999)
double published_beta2(double tokens_per_step);
/// 9.676e-18 sqrt(tokens / tokens_per_step)
double published_eps(double tokens, double tokens_per_step);
/// Largest divisor of `heads` up to heads / part, at least 1.
index_t published_kv_heads(index_t heads, index_t part);

/// One derived key.
struct Derived {
  std::string path, text;  ///< text in canonical form
  std::string rule;        ///< in words, for the echo
};

struct ScaleResult {
  std::vector<Derived> values;
  struct Problem {
    std::string path, what;
  };
  std::vector<Problem> problems;  ///< what must be given because no rule knows it
};

/// What a path has been given, or null.
using GivenValue = std::function<const std::string*(const std::string& path)>;

/// Every key that the rule knows a value for, whether it was given or not; the values
/// follow those that were given (a given batch gives another learning rate). `groups`:
/// numbers of the <groupN> blocks of the deck. Nothing where scale/hidden is 0. Where no
/// group has a `match` and <optimizer> no kind, the published groups are derived.
ScaleResult derive_scale(const GivenValue& given, const std::vector<int>& groups);

/// Warnings of a deck that uses <scale>: outside the range that the rule was fitted in,
/// and where its cap binds. None for other decks.
std::vector<std::string> scale_notes(const Deck& deck);

}  // namespace capstan
