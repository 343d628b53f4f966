#!/usr/bin/env bash
# build_kokkos.sh PREFIX host|host-debug|cuda
#
# Builds Kokkos 3.4.01 out of Debian 12's own source package `trilinos` and installs it
# into PREFIX. For machines that have no Kokkos; a site's own one (3.4 to 5.x) is used
# where CMake finds it, and then this script is not needed. Needs apt, cmake, ninja, g++
# (and nvcc for `cuda`).
#   host        OpenMP and Serial, for the machine that compiles
#   host-debug  the same with bounds checks on every View
#   cuda        OpenMP, Serial and CUDA for compute capability 9.0 (PTX serves newer GPUs)
# The log is PREFIX.log. An unfinished build leaves no PREFIX.
set -euo pipefail
. "$(dirname "$0")/private_apt.sh"

if [ $# -ne 2 ]; then
  echo "usage: $0 PREFIX host|host-debug|cuda" >&2
  exit 2
fi
prefix=$1
variant=$2
version=13.2.0-4
jobs=$(nproc)
[ "$jobs" -le 8 ] || jobs=8

mkdir -p "$(dirname "$prefix")"
prefix=$(cd "$(dirname "$prefix")" && pwd)/$(basename "$prefix")
log=$prefix.log
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'echo "Kokkos ($variant) was not built; the log is $log" >&2' ERR
: >"$log"

# Fetches trilinos_13.2.0.orig.tar.gz and leaves its Kokkos in $work/kokkos.
fetch_source() {
  local apt_options
  private_apt "$work" deb-src bookworm
  apt-get "${apt_options[@]}" update >>"$log" 2>&1
  (cd "$work" && apt-get "${apt_options[@]}" source --download-only "trilinos=$version") \
    >>"$log" 2>&1
  tar xf "$work"/trilinos_13.2.0.orig.tar.gz -C "$work" --strip-components=2 \
    Trilinos-trilinos-release-13-2-0/packages/kokkos
}

# Kokkos 3.4 is older than CUDA 13, C++20 for nvcc and compute capability 9.0.
edit_for_cuda() {
  local k=$1
  # CUDA 13 has no __half2double, and its other __half2x take exactly __half.
  local half='static_cast<__half>(val)'
  sed -i -e "s/__half2double(val)/static_cast<double>(__half2float($half))/" \
    -e "s/return \(__half2[a-z_]*\)(val);/return \1($half);/" \
    "$k/core/src/Cuda/Kokkos_Cuda_Half.hpp"
  # cudaMemPrefetchAsync takes a location and flags instead of a device number.
  local old='cudaMemPrefetchAsync(ptr, bytes, space.cuda_device(),'
  old+='\n *space.cuda_stream())'
  local new='cudaMemPrefetchAsync(ptr, bytes,'
  new+=' cudaMemLocation{cudaMemLocationTypeDevice, space.cuda_device()}, 0,'
  new+=' space.cuda_stream())'
  sed -i -z "s/$old/$new/" "$k/core/src/Cuda/Kokkos_CudaSpace.cpp"
  # The check of the C++ standard refuses 20 with nvcc.
  sed -i 's/"-std=c++14;-std=c++17"/"-std=c++14;-std=c++17;-std=c++20"/' \
    "$k/cmake/kokkos_test_cxx_std.cmake"
  # The newest architecture that 3.4 knows is 8.0: that name stands for sm_90 here.
  sed -i 's/CHECK_CUDA_ARCH(AMPERE80  sm_80)/CHECK_CUDA_ARCH(AMPERE80  sm_90)/' \
    "$k/cmake/kokkos_arch.cmake"
  # The wrapper defaults to an architecture that CUDA 13 dropped, turns c++2a into c++14,
  # and must pass -std=c++20 on.
  local known='--std=c++11|-std=c++11|--std=c++14|-std=c++14|--std=c++20|-std=c++20)'
  sed -i -E -e 's/^default_arch=.*/default_arch="sm_90"/' \
    -e 's/\|--std=c\+\+2a\|-std=c\+\+2a//' \
    -e "s/^  --std=c\+\+11\|-std=c\+\+11\|--std=c\+\+14\|-std=c\+\+14\)/  $known/" \
    "$k/bin/nvcc_wrapper"
}

options=(-DCMAKE_BUILD_TYPE=Release)
case $variant in
  host) options+=(-DCMAKE_CXX_FLAGS=-march=native) ;;
  host-debug)
    options+=(-DCMAKE_CXX_FLAGS=-march=native -DKokkos_ENABLE_DEBUG=ON
      -DKokkos_ENABLE_DEBUG_BOUNDS_CHECK=ON)
    ;;
  cuda)
    options+=(-DCMAKE_CXX_COMPILER="$work/kokkos/bin/nvcc_wrapper" -DKokkos_ENABLE_CUDA=ON
      -DKokkos_ENABLE_CUDA_LAMBDA=ON -DKokkos_ARCH_AMPERE80=ON)
    ;;
  *)
    echo "unknown variant '$variant': host, host-debug or cuda" >&2
    exit 2
    ;;
esac

fetch_source
[ "$variant" != cuda ] || edit_for_cuda "$work/kokkos"
# hwloc off: thread placement is left to OpenMP and to the MPI launcher.
cmake -S "$work/kokkos" -B "$work/build" -G Ninja -DCMAKE_INSTALL_PREFIX="$prefix" \
  -DCMAKE_CXX_STANDARD=20 -DCMAKE_CXX_EXTENSIONS=OFF \
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
  -DKokkos_ENABLE_SERIAL=ON -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_HWLOC=OFF \
  "${options[@]}" >>"$log" 2>&1
cmake --build "$work/build" -j"$jobs" >>"$log" 2>&1
cmake --install "$work/build" --prefix "$prefix.part" >>"$log" 2>&1
rm -rf "$prefix"
mv "$prefix.part" "$prefix"
