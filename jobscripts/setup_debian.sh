#!/usr/bin/env bash
# setup_debian.sh [--debug] [--browser]: what Capstan needs on Debian 12, by package name,
# and a Kokkos where there is none. Run it again at any time: it does only what is
# missing. Works as root or with sudo. --debug adds the Kokkos with bounds checks that the
# preset cpu-debug wants; --browser adds Chromium, in which tests look at the run page.
#
# Kokkos goes into ${CAPSTAN_CACHE:-$HOME/.cache/capstan}, where CMakeLists.txt looks when
# find_package sees no other one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/private_apt.sh"

packages=(
  g++ cmake ninja-build ccache git clang-format   # build and style
  openmpi-bin libopenmpi-dev                      # MPI
  libhdf5-openmpi-dev hdf5-tools                  # parallel HDF5
  libdnnl-dev libopenblas-openmp-dev              # GEMM; openmp shares the threads
  libgtest-dev libbenchmark-dev                   # tests
  python3 python3-numpy python3-h5py python3-matplotlib  # post-processing
  python3-torch                                   # reference, peer of speed
  slurm-wlm munge                                 # tests of the job scripts
)
variants=(host)
for argument in "$@"; do
  case $argument in
    --debug) variants+=(host-debug) ;;
    --browser) packages+=(chromium fonts-dejavu-core) ;;
    *)
      echo "usage: $0 [--debug] [--browser]" >&2
      exit 2
      ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  {
    echo "This machine has no apt. Capstan needs, in your system's names:"
    echo "  a C++20 compiler (GCC 11 or newer), CMake 3.23 or newer, Ninja, ccache"
    echo "  an MPI library, HDF5 built on it, Kokkos 3.4 to 5.x (with CUDA for GPUs)"
    echo "  oneDNN and OpenBLAS on hosts; CUDA toolkit, cuBLAS and NCCL for GPUs"
    echo "  GoogleTest, Google Benchmark and Slurm for tests"
    echo "  Python 3: numpy, h5py, matplotlib, torch"
    echo "Debian calls them: ${packages[*]}"
    echo "INSTALL says how to point CMake at them."
  } >&2
  exit 2
fi

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "This needs root and there is no sudo: $*" >&2
    exit 2
  fi
}

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=none
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "Installing: ${missing[*]}"
  as_root apt-get -q update
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
else
  echo "Packages: all ${#packages[@]} are there"
fi

# A Kokkos that CMake finds by itself (CMAKE_PREFIX_PATH, Kokkos_ROOT, system) is used as
# it is.
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  variants+=(cuda)
fi
cache=${CAPSTAN_CACHE:-$HOME/.cache/capstan}
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(probe CXX)' \
  'find_package(Kokkos REQUIRED)' \
  'message(STATUS "probe: ${Kokkos_VERSION} ${Kokkos_DIR}")' \
  >"$probe/CMakeLists.txt"
if own=$(cmake -S "$probe" -B "$probe/b" 2>/dev/null | grep 'probe: '); then
  echo "Kokkos of this machine: ${own#*probe: }"
  exit 0
fi
for variant in "${variants[@]}"; do
  prefix=$cache/kokkos-3.4.01-$variant
  if [ -d "$prefix" ]; then
    echo "Kokkos ($variant): $prefix"
    continue
  fi
  echo "Kokkos ($variant): building into $prefix (about a minute)"
  # The source is asked for where apt's lists point; a fresh image may have none.
  private_apt "$probe" deb-src bookworm 2>/dev/null || as_root apt-get -q update
  [ "$variant" != cuda ] || PATH=$PATH:/usr/local/cuda/bin
  "$here/build_kokkos.sh" "$prefix" "$variant"
done
