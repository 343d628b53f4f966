#!/usr/bin/env bash
# quickstart.sh: from a fresh clone to a trained small MoE, in one command.
#
# Sets up and builds (Debian 12; elsewhere see INSTALL), makes a corpus from text that is
# on the machine, trains inputs/quickstart.deck over two MPI ranks, is stopped half-way
# and restarted from its checkpoint, plots the run and samples some text. Leaves:
#   runs/data/corpus.{bin,idx}      the tokens
#   runs/quickstart/                 deck, history, diagnostics, checkpoints (see
#                                    postprocess/README)
#   runs/quickstart.png, .svg        loss, drops, norms, throughput; .experts.png: expert
#                        load
#   runs/quickstart.html             the run page
# Options after -- go to capstan, for example: quickstart.sh -- schedule/tokens=2e6
set -euo pipefail
cd "$(dirname "$0")/.."
[ "${1:-}" = "--" ] && shift

step() { printf '\n== %s\n' "$*"; }

step "1. Set-up and build"
jobscripts/setup_debian.sh
. jobscripts/local_mpi.sh
cmake --preset cpu >/dev/null
cmake --build --preset cpu --target capstan capstan-prep

step "2. Corpus"
mkdir -p runs/data
[ -f runs/data/corpus.idx ] || jobscripts/corpus.sh runs/data | tee runs/data/corpus.txt

step "3. Train on two ranks, stopped half-way by its job script's signal"
run=runs/quickstart
rm -rf "$run"
capstan=(mpirun -np 2 build/cpu/capstan -i inputs/quickstart.deck -d "$run" "$@")
# A first part stops as a time limit would make it: a complete checkpoint, then exit code
# 75.
rc=0
"${capstan[@]}" job/wall_limit_seconds=60 || rc=$?
if [ "$rc" -eq 75 ]; then
  step "4. Restart from the checkpoint"
  rc=0
  "${capstan[@]}" -r latest || rc=$?
fi
if [ "$rc" -ne 0 ]; then
  echo "quickstart: training ended with exit code $rc; see $run/log.*" >&2
  exit "$rc"
fi

step "5. Plot"
/usr/bin/python3 postprocess/plot_run.py "$run" -o runs/quickstart
/usr/bin/python3 postprocess/report.py "$run" -o runs/quickstart.html

step "6. Sample"
mpirun -np 2 build/cpu/capstan -i inputs/quickstart.deck -d "$run" -r latest \
  --generate "def main(" "$@"

step "Done"
entropy=$(sed -n 's/.*unigram_entropy_nats=//p' runs/data/corpus.txt)
echo "entropy of single bytes in the corpus: $entropy nats"
tail -n 1 "$run/status"
echo "plots: runs/quickstart.png and runs/quickstart.experts.png; files: $run"
