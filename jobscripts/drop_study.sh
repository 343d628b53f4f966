#!/usr/bin/env bash
# drop_study.sh [published]: drop rate against context, for every transport.
#
# Trains the small model of inputs/study/train.deck on text cut from long documents, takes
# one more step at contexts of 128 to 2048 with 16,384 tokens each, and applies the accept
# rule of every transport to its routing, spread over 16 virtual ranks. Then rehearses the
# published grid at 4K, 16K and 65K. With `published` only the latter. What is finished is
# not done again.
#   runs/study/desk.<context>.txt, published.<context>.txt   tables
#   runs/study/drops.png, .svg                                the picture
set -euo pipefail
cd "$(dirname "$0")/.."
. jobscripts/local_mpi.sh
build=${CAPSTAN_BUILD:-build/cpu}
out=runs/study
mkdir -p "$out"
step() { printf '\n== %s\n' "$*"; }

# finished FILE COMMAND...: runs the command into FILE unless FILE is there.
finished() {
  local file=$1
  shift
  [ -f "$file" ] || { "$@" >"$file.part" && mv "$file.part" "$file"; }
}

measure() {
  local context=$1 dir=$out/measure.$1
  local last
  last=$(sed -n 's/.* step=\([0-9]*\) .*/\1/p' "$out/train/status")
  local next=$((last + 1))
  if [ ! -f "$dir/diag/dump.$next.h5" ]; then
    rm -rf "$dir"
    "$build/capstan" -i inputs/study/train.deck -i inputs/study/measure.deck -d "$dir" \
      -r "$out/train/ckpt/step_$(printf %08d "$last")" "model/seq_len=$context" \
      "batch/sequences=$((16384 / context))" "job/steps=$next" "job/dump_step=$next" \
      >"$out/measure.$context.log"
  fi
  finished "$out/desk.$context.txt" \
    "$build/capstan" --rehearse -i inputs/study/train.deck \
    -i inputs/study/measure.deck "model/seq_len=$context" \
    "batch/sequences=$((16384 / context))" grid/expert=16 grid/micro_batches=1 \
    "rehearsal/dump=$dir/diag/dump.$next.h5"
  finished "$out/correlation.$context.txt" /usr/bin/python3 \
    postprocess/router_correlation.py "$dir/diag/dump.$next.h5"
}

if [ "${1:-}" != published ]; then
  step "Corpus of long documents"
  [ -f "$out/corpus.idx" ] || "$build/capstan-prep" -o "$out/corpus" --suffix .py \
    --min-bytes 20000 /usr/lib/python3.[0-9]* /usr/lib/python3/dist-packages
  step "Training"
  if [ ! -f "$out/train/status" ] || ! grep -q '^state=done' "$out/train/status"; then
    rm -rf "$out/train"
    OMP_NUM_THREADS=2 "$build/capstan" -i inputs/study/train.deck -d "$out/train"
  fi
  for context in 128 256 512 1024 2048; do
    step "Context $context"
    measure "$context"
    cat "$out/desk.$context.txt"
  done
fi
for context in 4096 16384 65536; do
  step "Published grid, context $context"
  finished "$out/published.$context.txt" "$build/capstan" --rehearse -i inputs/535b.deck \
    -i inputs/study/published.deck "model/seq_len=$context" \
    "batch/sequences=$((46137344 / context))"
  cat "$out/published.$context.txt"
done
step "Picture"
/usr/bin/python3 postprocess/plot_drops.py "$out" -o "$out/drops"
