#pragma once
/// \file The compute stream of a GPU alone: what travels on another stream (NCCL) goes on
/// meanwhile. Kokkos::fence() and copies without an execution space wait for all of the
/// device. On hosts these are plain waits and copies.
#include "base/types.hpp"

namespace capstan {

/// Waits for what was launched on the compute stream.
inline void fence_compute() {
  Exec().fence();
}

/// Copies n elements on the compute stream and waits until they are there.
template <class T>
void stream_to_host(const T* device, T* host, index_t n) {
  if (n == 0) return;
  Kokkos::deep_copy(Exec(), HostView1<T>(host, n), View1<const T>(device, n));
  fence_compute();
}
template <class T>
void stream_to_device(const T* host, T* device, index_t n) {
  if (n == 0) return;
  Kokkos::deep_copy(Exec(), View1<T>(device, n), HostView1<const T>(host, n));
  fence_compute();
}

}  // namespace capstan
