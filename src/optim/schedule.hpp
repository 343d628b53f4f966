#pragma once
/// \file Learning-rate schedule as a function of tokens, so that a change of batch or
/// context moves nothing: step n (from 1) uses n x tokens per step.
#include <cstdint>

namespace capstan {

/// Linear warm-up from 0 over warmup_fraction of the tokens, then linear decay to
/// final_fraction of the peak at the last token; constant beyond it.
struct Schedule {
  std::int64_t tokens = 0;  ///< of the whole run; 0 = constant at the peak
  double warmup_fraction = 0.01, final_fraction = 0.05;

  /// Learning rate / peak for the step that ends after `seen` tokens.
  double factor(std::int64_t seen) const {
    if (tokens <= 0) return 1.0;
    const double x = static_cast<double>(seen) / static_cast<double>(tokens);
    if (x < warmup_fraction) return x / warmup_fraction;
    if (x >= 1.0) return final_fraction;
    return 1.0 - (1.0 - final_fraction) * (x - warmup_fraction) / (1.0 - warmup_fraction);
  }
};

}  // namespace capstan
