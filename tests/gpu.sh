#!/usr/bin/env bash
# gpu.sh [--compile]: builds the checks that run on a GPU (preset gpu, label gpu) and runs
# them: base, blas, kernels, the model on one GPU, NCCL on all GPUs of the node. Needs
# CUDA, NCCL, a Kokkos with CUDA, CMake and Ninja; MPI, HDF5, oneDNN, GoogleTest and
# Python are not asked for. --compile compiles and links only, and needs no GPU.
#
# Kokkos: Kokkos_ROOT, CMAKE_PREFIX_PATH, or jobscripts/build_kokkos.sh. Under Slurm:
#   srun --gpus=1 --cpus-per-task=16 --time=10 tests/gpu.sh
# Exit codes: 0 all passed, 1 something failed, 2 usage, 77 skipped: no GPU or no nvcc.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

compile_only=no
case ${1:-} in
  '') ;;
  --compile) compile_only=yes ;;
  *)
    echo "usage: tests/gpu.sh [--compile]" >&2
    exit 2
    ;;
esac
skip() {
  echo "gpu.sh: skipped: $1" >&2
  exit 77
}

if [ "$compile_only" = no ]; then
  command -v nvidia-smi >/dev/null || skip "no GPU on $(hostname): there is no nvidia-smi"
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
  [ "$gpus" -gt 0 ] || skip "no GPU on $(hostname): nvidia-smi -L lists none"
  nvidia-smi -L
fi
command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || skip "no nvcc in PATH or /usr/local/cuda/bin"

# Time of the whole: the node is lent for minutes.
start=$SECONDS
cmake --preset gpu -Wno-dev >/dev/null || exit 1
cmake --build --preset gpu --target gpu_checks -- -k 0 || exit 1
echo "gpu.sh: built in $((SECONDS - start)) s"
[ "$compile_only" = no ] || exit 0
ctest --test-dir build/gpu -L '^gpu$' --output-on-failure --no-tests=error
rc=$?
echo "gpu.sh: $((SECONDS - start)) s in all"
[ "$rc" -eq 0 ] || exit 1
