#include "model/batch.hpp"

#include <algorithm>

namespace capstan {

namespace {
View1<std::int32_t> upload(const std::vector<std::int32_t>& host, Context& ctx) {
  const auto view = ctx.arena.take1<std::int32_t>("batch", host.size());
  copy_to_device(host.data(), view.data(), static_cast<index_t>(host.size()));
  return view;
}
}  // namespace

DeviceBatch upload_batch(const std::vector<std::int32_t>& tokens,
                         const std::vector<std::int32_t>& targets,
                         const std::vector<std::int32_t>& segments, index_t seq_len,
                         index_t first_token, bool for_backward, Context& ctx) {
  DeviceBatch batch;
  batch.seq_len = seq_len;
  batch.sequences = static_cast<index_t>(tokens.size()) / seq_len;
  batch.first_token = first_token;
  batch.valid = std::count_if(segments.begin(), segments.end(),
                              [](std::int32_t segment) { return segment >= 0; });
  batch.tokens = upload(tokens, ctx);
  batch.targets = upload(targets, ctx);
  batch.segments = upload(segments, ctx);
  if (for_backward) {
    const TokenGroups groups =
        group_tokens(tokens.data(), static_cast<index_t>(tokens.size()));
    batch.order = upload(groups.order, ctx);
    batch.starts = upload(groups.starts, ctx);
    batch.ids = upload(groups.tokens, ctx);
  }
  return batch;
}

}  // namespace capstan
