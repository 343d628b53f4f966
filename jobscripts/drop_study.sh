#!/usr/bin/env bash
# drop_study.sh [published]: drop rate against context, for every transport.
#
# Trains the small model of inputs/study/train.deck on long documents of many kinds, takes
# two more steps at contexts of 128 to 2048 with 32,768 tokens each (the first for the
# router's bias), and applies the accept rule of every transport to the routing of the
# second, spread over 16 virtual ranks: 16 sequences a rank at 128, one at 2048. Then
# rehearses the published grid at 4K, 16K and 65K. With `published` only the latter. What
# is finished is not done again. Written into runs/study:
#   desk.<context>.txt, published.<context>.txt, fitted.<context>.txt   tables
#   correlation.<context>.txt                     share of variance within a sequence
#   drops.png, drops.svg                          the picture
set -euo pipefail
cd "$(dirname "$0")/.."
. jobscripts/local_mpi.sh
build=${CAPSTAN_BUILD:-build/cpu}
out=runs/study
mkdir -p "$out"
tokens=32768
step() { printf '\n== %s\n' "$*"; }

# finished FILE COMMAND...: runs the command into FILE unless FILE is there.
finished() {
  local file=$1
  shift
  [ -f "$file" ] || { "$@" >"$file.part" && mv "$file.part" "$file"; }
}

# Programs, headers, manuals, tables, locales: whatever text of such this machine has.
make_corpus() {
  local folders=() folder
  for folder in /usr/lib/python3*/ /usr/include /usr/share/{perl,doc,vim,unicode} \
    /usr/share/i18n/locales; do
    [ -d "$folder" ] && folders+=("$folder")
  done
  "$build/capstan-prep" -o "$out/corpus" --min-bytes 40000 "${folders[@]}"
}

measure() {
  local context=$1 dir=$out/measure.$1
  local last
  last=$(sed -n 's/.* step=\([0-9]*\) .*/\1/p' "$out/train/status")
  local next=$((last + 2))
  if [ ! -f "$dir/diag/dump.$next.h5" ]; then
    rm -rf "$dir"
    "$build/capstan" -i inputs/study/train.deck -i inputs/study/measure.deck -d "$dir" \
      -r "$out/train/ckpt/step_$(printf %08d "$last")" "model/seq_len=$context" \
      "batch/sequences=$((tokens / context))" "job/steps=$next" "job/dump_step=$next" \
      >"$out/measure.$context.log"
  fi
  finished "$out/desk.$context.txt" \
    "$build/capstan" --rehearse -i inputs/study/train.deck \
    -i inputs/study/measure.deck "model/seq_len=$context" \
    "batch/sequences=$((tokens / context))" grid/expert=16 grid/micro_batches=1 \
    "rehearsal/dump=$dir/diag/dump.$next.h5"
  finished "$out/correlation.$context.txt" /usr/bin/python3 \
    postprocess/router_correlation.py "$dir/diag/dump.$next.h5"
}

if [ "${1:-}" != published ]; then
  step "Corpus of long documents"
  [ -f "$out/corpus.idx" ] || make_corpus
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
# rehearse KIND CONTEXT KEY=VALUE...: the published grid at CONTEXT -> KIND.CONTEXT.txt.
rehearse() {
  local kind=$1 context=$2
  shift 2
  step "Published grid, context $context, $kind correlation"
  finished "$out/$kind.$context.txt" "$build/capstan" --rehearse -i inputs/535b.deck \
    -i inputs/study/published.deck "model/seq_len=$context" \
    "batch/sequences=$((46137344 / context))" "$@"
  cat "$out/$kind.$context.txt"
}
# Once with the correlations that fit the published rates, once with those of the trained
# model at as many sequences a rank (4096 tokens of 65,536 are 128 of 2,048).
for context in 4096 8192 16384 65536; do
  rehearse published "$context"
  measured=$out/correlation.$((context / 32)).txt
  [ ! -f "$measured" ] || rehearse fitted "$context" \
    "rehearsal/correlation=$(sed -n 's/^rehearsal.correlation = //p' "$measured")"
done
step "Picture"
/usr/bin/python3 postprocess/plot_drops.py "$out" -o "$out/drops"
