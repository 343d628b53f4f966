#pragma once
/// \file Learning-rate schedule as a function of tokens, so that a change of batch or
/// context moves nothing: step n (from 1) uses n x tokens per step.
#include <cstdint>

#include "deck/deck.hpp"

namespace capstan {

/// Linear warm-up from 0 over warmup_fraction of the tokens, then the shape, down to
/// final_fraction of the peak at the last token (constant: no decay); the same beyond it.
struct Schedule {
  enum class Shape { linear, cosine, wsd, constant };
  Shape shape = Shape::linear;
  std::int64_t tokens = 0;  ///< of the whole run; 0 = constant at the peak, no warm-up
  double warmup_fraction = 0.01, final_fraction = 0.05;
  double decay_fraction = 0.2;  ///< of wsd
  /// Where the length was changed during the run: up to `reaim_from` a schedule of
  /// `planned` tokens, then straight from its rate to final_fraction at `tokens`.
  std::int64_t reaim_from = 0, planned = 0;

  static Schedule from_deck(const Deck& deck);

  /// Learning rate / peak for the step that ends after `seen` tokens.
  double factor(std::int64_t seen) const;

 private:
  double planned_factor(std::int64_t seen, std::int64_t length) const;
};

}  // namespace capstan
