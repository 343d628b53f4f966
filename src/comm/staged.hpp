#pragma once
/// \file Between device memory and the verbs on host memory. For this floor.
#include "comm/impl.hpp"

namespace capstan {

inline Pending pending(Finish finish) {
  if (!finish) return {};
  return Pending(std::make_shared<Pending::State>(std::move(finish)));
}

/// The stream of an execution space that has one (a cudaStream_t), else null.
template <class E>
void* stream_of(const E& exec) {
  if constexpr (requires { exec.cuda_stream(); })
    return static_cast<void*>(exec.cuda_stream());
  else
    return nullptr;
}

/// Device memory as host code may give it to MPI: itself, or a copy of it on the host.
template <class T>
class Staged {
 public:
  Staged(T* device, index_t n) : device_(device), n_(n) {
    if constexpr (!kOnHost) host_.resize(n);
  }
  T* host() {
    if constexpr (kOnHost) return device_;
    return host_.data();
  }
  void fetch() {
    fence();
    if constexpr (!kOnHost) copy_to_host(device_, host_.data(), n_);
  }
  void put_back() {
    if constexpr (!kOnHost) copy_to_device(host_.data(), device_, n_);
  }

 private:
  T* device_;
  index_t n_;
  std::vector<T> host_;
};

}  // namespace capstan
