#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>

namespace capstan {

Schedule Schedule::from_deck(const Deck& deck) {
  Schedule s;
  const std::string& shape = deck.text("schedule/shape");
  s.shape = shape == "cosine"     ? Shape::cosine
            : shape == "wsd"      ? Shape::wsd
            : shape == "constant" ? Shape::constant
                                  : Shape::linear;
  s.tokens = deck.integer("schedule/tokens");
  s.warmup_fraction = deck.real("schedule/warmup_fraction");
  s.final_fraction = deck.real("schedule/final_fraction");
  s.decay_fraction = deck.real("schedule/decay_fraction");
  s.reaim_from = deck.integer("schedule/reaim_from_tokens");
  s.planned = deck.integer("schedule/planned_tokens");
  return s;
}

/// The schedule of a run of `length` tokens whose length never changed.
double Schedule::planned_factor(std::int64_t seen, std::int64_t length) const {
  const double x = static_cast<double>(seen) / static_cast<double>(length);
  if (x < warmup_fraction) return x / warmup_fraction;
  if (shape == Shape::constant) return 1.0;
  if (x >= 1.0) return final_fraction;
  const double drop = 1.0 - final_fraction;
  if (shape == Shape::wsd) {
    const double start = std::max(1.0 - decay_fraction, warmup_fraction);
    return x <= start ? 1.0 : 1.0 - drop * (x - start) / (1.0 - start);
  }
  const double y = (x - warmup_fraction) / (1.0 - warmup_fraction);
  return shape == Shape::cosine
             ? final_fraction + 0.5 * drop * (1.0 + std::cos(std::acos(-1.0) * y))
             : 1.0 - drop * y;
}

double Schedule::factor(std::int64_t seen) const {
  if (tokens <= 0) return 1.0;
  if (reaim_from <= 0) return planned_factor(seen, tokens);
  if (seen <= reaim_from) return planned_factor(seen, planned);
  if (seen >= tokens) return final_fraction;
  const double from = planned_factor(reaim_from, planned);
  const double y =
      static_cast<double>(seen - reaim_from) / static_cast<double>(tokens - reaim_from);
  return from + (final_fraction - from) * y;
}

}  // namespace capstan
