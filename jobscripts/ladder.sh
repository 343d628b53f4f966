#!/usr/bin/env bash
#SBATCH --requeue --open-mode=append --signal=B:USR1@120
# ladder.sh [options] RUNG.deck... [-- key=value...]
#
# Trains a ladder of runs, foretells the target, trains the target and states the error of
# the forecast.
#
#   jobscripts/ladder.sh -b inputs/ladder/desk/base.deck -t inputs/ladder/desk/d80.deck \
#     inputs/ladder/desk/d{32,40,48,64}.deck              # here, one after the other
#   sbatch --array=0-3 ... jobscripts/ladder.sh [the same]      # one rung a task
#   sbatch --dependency=afterok:JOB ... jobscripts/ladder.sh [the same]   # the target
#
#   -b DECK   goes before every rung; may be given several times
#   -t DECK   the target; without it the rungs are trained and nothing is foretold
#   -o DIR    run directories: DIR/<name of the deck> (default: runs/ladder)
#   -n RANKS  ranks of a run (default: the tasks of the job, outside Slurm 1)
#   -l WORDS  what launches them (default: mpirun -np RANKS where they are several)
#   -j JOBS   rungs that train at once outside Slurm (default: 1)
#   -c FILE   the capstan to use (default: the one of $CAPSTAN_BUILD or build/cpu)
#
# Call it again after any interruption: finished rungs are skipped, unfinished ones go on
# from their newest checkpoint. A task of a job array trains the rung of its number, from
# 0, and nothing else; it is put back in the queue when its time is up. DIR/forecast.band
# is written before the target's first step and never changed after.
set -euo pipefail
[[ -n ${SLURM_SUBMIT_DIR:-} ]] && cd "$SLURM_SUBMIT_DIR"
here=jobscripts
[[ -d $here ]] || here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [[ ! -r $here/local_mpi.sh ]]; then
  echo "ladder.sh: submit it from the root of the repository" >&2
  exit 2
fi

usage() {
  sed -n '3,27s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}
say() { echo "ladder: $*"; }
refuse() {
  echo "ladder.sh: $*" >&2
  exit 2
}

base=() rungs=() keys=() target='' out=runs/ladder jobs=1
ranks=${SLURM_NTASKS:-1} launcher=()
capstan=${CAPSTAN_BUILD:-build/cpu}/capstan
while (($#)); do
  case $1 in
    -h) usage && exit 0 ;;
    -[btonjcl])
      (($# > 1)) || refuse "$1 needs a value"
      case $1 in
        -b) base+=(-i "$2") ;; -t) target=$2 ;; -o) out=$2 ;;
        -n) ranks=$2 ;; -l) read -ra launcher <<<"$2" ;; -j) jobs=$2 ;; -c) capstan=$2 ;;
      esac
      shift
      ;;
    --) shift && keys=("$@") && break ;;
    -*) refuse "unknown option $1; see -h" ;;
    *) rungs+=("$1") ;;
  esac
  shift
done
((${#rungs[@]})) || refuse "no rung is named; see -h"
[[ -x $capstan ]] || refuse "no $capstan (build first, or -c FILE)"
for deck in "${rungs[@]}" ${target:+"$target"}; do
  [[ -r $deck ]] || refuse "no deck $deck"
done
mkdir -p "$out"

name_of() { basename "$1" .deck; }
finished() { grep -qs '^state=done ' "$out/$(name_of "$1")/status"; }

# A stop that is asked for goes to what runs here, which saves and ends; nothing new
# starts.
asked=0 caught=0
pass_on() {
  asked=1 caught=1
  local pids
  pids=$(jobs -p)
  [[ -z $pids ]] || kill -USR1 $pids 2>/dev/null || true
}
trap pass_on USR1 TERM

# wait_for WORDS...: `wait WORDS`, which a trapped signal would end early.
wait_for() {
  local code
  while :; do
    code=0 caught=0
    wait "$@" || code=$?
    ((caught)) || return "$code"
  done
}

# train DECK: one run to its end; its own output goes to DIR/<name>.out.
train() {
  local name dir restart=() code=0 how=starts
  trap pass_on USR1 TERM
  name=$(name_of "$1") dir=$out/$(name_of "$1")
  if finished "$1"; then
    say "$name is finished"
    return 0
  fi
  if compgen -G "$dir/ckpt/step_????????" >/dev/null; then
    restart=(-r latest) how="goes on from its checkpoint"
  fi
  say "$name $how"
  "${launcher[@]}" "$capstan" "${base[@]}" -i "$1" -d "$dir" "${restart[@]}" \
    "${keys[@]}" >>"$out/$name.out" 2>&1 &
  wait_for $! || code=$?
  say "$name ended with exit code $code"
  return "$code"
}

if [[ -z ${SLURM_JOB_ID:-} ]]; then . "$here/local_mpi.sh"; fi
if ((${#launcher[@]} == 0 && ranks > 1)); then launcher=(mpirun -np "$ranks"); fi

# 1. One task of a job array.
if [[ -n ${SLURM_ARRAY_TASK_ID:-} ]]; then
  ((SLURM_ARRAY_TASK_ID < ${#rungs[@]})) ||
    refuse "no rung of number $SLURM_ARRAY_TASK_ID: they are 0 to $((${#rungs[@]} - 1))"
  code=0
  train "${rungs[$SLURM_ARRAY_TASK_ID]}" || code=$?
  if ((code == 75)); then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" || true
  fi
  exit "$code"
fi

# 2. All rungs here, `jobs` at a time; the others go on when one fails.
worst=0 running=0
for deck in "${rungs[@]}"; do
  ((asked)) && break
  if ((jobs > 1)); then
    if ((running == jobs)); then
      wait_for -n || worst=$?
      running=$((running - 1))
    fi
    train "$deck" &
    running=$((running + 1))
  else
    train "$deck" || worst=$?
  fi
done
while ((running > 0)); do
  wait_for -n || worst=$?
  running=$((running - 1))
done
for deck in "${rungs[@]}"; do
  finished "$deck" || { ((worst)) || worst=1; say "$(name_of "$deck") is not finished"; }
done
((worst == 0)) || exit "$worst"
[[ -n $target ]] || exit 0

# 3. The forecast, before the target's first step.
runs=()
for deck in "${rungs[@]}"; do runs+=("$out/$(name_of "$deck")"); done
forecast() {
  /usr/bin/python3 "$here/../postprocess/ladder.py" "${runs[@]}" --target "$1" \
    -o "$out/forecast"
}
whole=$out/$(name_of "$target").deck
if [[ ! -e $out/forecast.band ]]; then
  "$capstan" -n "${base[@]}" -i "$target" "${keys[@]}" >"$whole"
  forecast "$whole" | tee "$out/forecast.txt"
fi

# 4. The target, and how far off the forecast was.
train "$target"
forecast "$out/$(name_of "$target")" | tee "$out/outcome.txt"
