#include "train/stage_links.hpp"

#include <algorithm>

namespace capstan {

template <class S>
StageLinks<S>::StageLinks(const Grid& grid, Sizes sizes, Context& ctx)
    : grid_(grid),
      sizes_(std::move(sizes)),
      ctx_(ctx),
      has_previous_(!grid.first_stage()),
      has_next_(!grid.last_stage()) {
  if (has_previous_) inputs_ = make_buffers(sizes_.in_flight + 1);
  if (has_next_) outputs_ = make_buffers(2);
  if (sizes_.backward) gradients_ = make_buffers(1 + int(has_next_) + int(has_previous_));
  if (has_previous_) receive(inputs_, 0, grid_.to_previous.activations, 0);
  if (has_next_ && sizes_.backward) receive(gradients_, 0, grid_.to_next.gradients, 1);
}

template <class S>
std::vector<typename StageLinks<S>::Buffer> StageLinks<S>::make_buffers(index_t n) {
  const index_t most = *std::max_element(sizes_.tokens.begin(), sizes_.tokens.end());
  std::vector<Buffer> ring(static_cast<std::size_t>(n));
  const char* name = has_previous_ || has_next_ ? "pipeline" : "block";
  for (Buffer& b : ring)
    b.memory = ctx_.arena.template take2<S>(name, most, sizes_.width);
  return ring;
}

template <class S>
View2<S> StageLinks<S>::part(std::vector<Buffer>& ring, index_t i) const {
  return View2<S>(at(ring, i).memory.data(), sizes_.tokens[i], sizes_.width);
}

template <class S>
void StageLinks<S>::wait(Buffer& buffer) {
  if (!buffer.pending) return;
  ctx_.timers.begin("pipeline_wait");
  const double begin = ctx_.timers.wall();
  buffer.pending.wait();
  ctx_.timers.end();  // on a GPU, after what the stream waits for
  waited_ += ctx_.timers.wall() - begin;
}

/// Starts to receive message i, where there is one.
template <class S>
void StageLinks<S>::receive(std::vector<Buffer>& ring, index_t i, const Comm& from,
                            int rank) {
  if (i >= static_cast<index_t>(sizes_.tokens.size())) return;
  wait(at(ring, i));  // it may still be sent from
  at(ring, i).pending = from.receive(flat(part(ring, i)), rank);
}

template <class S>
View2<S> StageLinks<S>::input(index_t i) {
  if (!has_previous_) return {};
  receive(inputs_, i + 1, grid_.to_previous.activations, 0);
  wait(at(inputs_, i));
  return part(inputs_, i);
}

template <class S>
View2<S> StageLinks<S>::output(index_t i) {
  if (!has_next_) return {};
  wait(at(outputs_, i));
  return part(outputs_, i);
}

template <class S>
void StageLinks<S>::send_output(index_t i) {
  if (!has_next_) return;
  at(outputs_, i).pending = grid_.to_next.activations.send(flat(part(outputs_, i)), 1);
}

template <class S>
View2<S> StageLinks<S>::gradient(index_t i) {
  if (has_next_) receive(gradients_, i + 1, grid_.to_next.gradients, 1);
  wait(at(gradients_, i));
  return part(gradients_, i);
}

template <class S>
void StageLinks<S>::send_gradient(index_t i) {
  if (!has_previous_) return;
  at(gradients_, i).pending =
      grid_.to_previous.gradients.send(flat(part(gradients_, i)), 0);
}

template <class S>
void StageLinks<S>::finish() {
  for (auto* ring : {&inputs_, &outputs_, &gradients_})
    for (Buffer& buffer : *ring) wait(buffer);
}

#define CAPSTAN_STAGE_LINKS(S) template class StageLinks<S>;
CAPSTAN_INSTANTIATE(CAPSTAN_STAGE_LINKS)

}  // namespace capstan
