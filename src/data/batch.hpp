#pragma once
/// \file A batch of packed sequences on the host.
#include <cstdint>
#include <vector>

namespace capstan {

using index_t = std::int64_t;

/// Arrays of sequences x seq_len, a sequence contiguous.
struct Batch {
  index_t sequences = 0, seq_len = 0;
  std::vector<std::int32_t> tokens;  ///< ids; 0 at padding
  std::vector<std::int32_t>
      targets;  ///< the next token; -1 where nothing is predicted: at
                ///< padding, the last token of a sequence or of a document
  std::vector<std::int32_t> segments;  ///< documents of a sequence from 0; -1 at padding
};

}  // namespace capstan
