#pragma once
/// \file Weights of a checkpoint as safetensors with the canonical names, for other
/// programs. Needs neither the model nor a grid: pieces are copied as they lie.
#include <string>

#include "base/log.hpp"

namespace capstan {

struct ExportSpec {
  std::string checkpoint;  ///< folder step_NNNNNNNN, or "latest"
  std::string folder;      ///< of the run's checkpoints
  std::string out;         ///< new folder; must not exist
  /// Tensors go into files of at most so many bytes (a larger tensor has its own file).
  std::int64_t file_bytes = 5'000'000'000;
};

struct ExportResult {
  std::int64_t tensors = 0, bytes = 0, files = 0;
};

/// Writes OUT/model.safetensors (or model-NNNNN-of-NNNNN.safetensors and
/// model.safetensors.index.json) and OUT/config.json: masters and router biases, bit for
/// bit, every hash of the checkpoint checked on the way. One process. Error(Exit::file).
ExportResult export_weights(const ExportSpec& spec);

}  // namespace capstan
