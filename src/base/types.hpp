#pragma once
/// \file Index and scalar types, View aliases, explicit copies between host and device.
#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bf16.hpp"

namespace capstan {

using index_t = std::int64_t;

using Exec = Kokkos::DefaultExecutionSpace;
using Mem = Exec::memory_space;
using Layout = Kokkos::LayoutRight;
/// True when Views can be dereferenced by host code (OpenMP, Serial).
inline constexpr bool kOnHost =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;

template <class T>
using View1 = Kokkos::View<T*, Layout, Mem>;
template <class T>
using View2 = Kokkos::View<T**, Layout, Mem>;
template <class T>
using View3 = Kokkos::View<T***, Layout, Mem>;
template <class T>
using View4 = Kokkos::View<T****, Layout, Mem>;
template <class T>
using HostView1 = Kokkos::View<T*, Layout, Kokkos::HostSpace>;

/// Explicit instantiation of a file's templates: CAPSTAN_INSTANTIATE(MACRO) expands
/// MACRO(S) once per scalar type of the build; CAPSTAN_INSTANTIATE_ACC(MACRO) once per
/// Acc<S>, for what knows sums, statistics and state only.
#define CAPSTAN_INSTANTIATE(MACRO) MACRO(double) MACRO(float) MACRO(bf16)
#define CAPSTAN_INSTANTIATE_ACC(MACRO) MACRO(double) MACRO(float)

/// Copies n elements between host memory and device memory; both wait until done.
template <class T>
void copy_to_device(const T* host, T* device, index_t n) {
  if (n == 0) return;
  HostView1<const T> from(host, n);
  View1<T> to(device, n);
  Kokkos::deep_copy(to, from);
}
template <class T>
void copy_to_host(const T* device, T* host, index_t n) {
  if (n == 0) return;
  View1<const T> from(device, n);
  HostView1<T> to(host, n);
  Kokkos::deep_copy(to, from);
}
template <class T>
std::vector<T> to_host(const View1<T>& v) {
  std::vector<std::remove_const_t<T>> out(v.extent(0));
  copy_to_host<std::remove_const_t<T>>(v.data(), out.data(), v.extent(0));
  return out;
}

/// A rank-1 View on the elements of a contiguous View of any rank.
template <class V>
View1<typename V::value_type> flat(const V& v) {
  return View1<typename V::value_type>(v.data(), v.size());
}

/// Sets every element (asynchronous on a GPU).
template <class V>
void fill(const V& v, typename V::non_const_value_type value) {
  if (v.size() > 0) Kokkos::deep_copy(Exec(), v, value);
}

/// Waits for every kernel that was launched.
inline void fence() {
  Kokkos::fence();
}

}  // namespace capstan
