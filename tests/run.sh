#!/usr/bin/env bash
# run.sh [--all]: sets up, builds the presets cpu and cuda, tests the cpu build.
#
# Left out are the labels slow, perf and gpu; --all adds slow and perf. The cuda preset is
# compiled and linked, never run; without nvcc it is skipped, as the summary says. Ends
# with a summary; the exit code is 0 only when every step that ran succeeded.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

excluded='slow|perf|gpu'
case ${1:-} in
  '') ;;
  --all) excluded='gpu' ;;
  *)
    echo "usage: tests/run.sh [--all]" >&2
    exit 2
    ;;
esac

summary=()
failed=0
# step NAME COMMAND...: runs it and notes outcome and seconds; returns its exit code.
step() {
  local name=$1 start=$SECONDS rc=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || rc=$?
  if [ "$rc" -eq 0 ]; then
    summary+=("ok       $(printf '%4d' $((SECONDS - start))) s  $name")
  else
    summary+=("FAILED   $(printf '%4d' $((SECONDS - start))) s  $name (exit code $rc)")
    failed=1
  fi
  return "$rc"
}
skip() { summary+=("skipped          $1: $2"); }
finish() {
  printf '\n== Summary\n'
  printf '%s\n' "${summary[@]}"
  [ "$failed" -eq 0 ] && echo "All passed." || echo "There are failures."
  exit "$failed"
}

# build PRESET: every target that can be built is, so that one log shows all failures.
build() {
  cmake --preset "$1" -Wno-dev >/dev/null && cmake --build --preset "$1" -- -k 0
}
build_cuda() {
  build cuda || return
  local program
  for program in capstan capstan-prep; do
    [ -x "build/cuda/$program" ] || {
      echo "build/cuda/$program was not linked" >&2
      return 1
    }
  done
}

step "Set-up" jobscripts/setup_debian.sh || finish
[ -d /usr/local/cuda/bin ] && PATH=$PATH:/usr/local/cuda/bin

if step "Build for hosts (preset cpu)" build cpu; then
  # A test counts as many processors as it has ranks or threads: MPI tests do not stack.
  step "Tests (all but labels $excluded)" \
    ctest --test-dir build/cpu --output-on-failure --no-tests=error -j "$(nproc)" \
    -LE "^($excluded)\$"
else
  skip "Tests" "the build for hosts failed"
fi
if command -v nvcc >/dev/null; then
  step "Compile and link for GPUs (preset cuda)" build_cuda
else
  skip "Compile and link for GPUs (preset cuda)" "no nvcc on this machine"
fi
finish
