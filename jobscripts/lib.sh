# Sourced by the job scripts: plan, submit, run, stop before the time limit, requeue.
#
# A job script sets `job_name`, `job_decks` (array) and `job_registers` (true: the deck
# must carry an <experiment>), may define job_prepare (what the run needs, after the
# plan), then calls  job_main "$@".  Its options:
#   -s SITE   jobscripts/sites/SITE.env, or the path of such a file
#   -d RUN    run directory, relative to the repository      (default runs/<job_name>)
#   -i DECK   one more deck on top of the script's own; may be repeated
#   -t TIME   time limit of the job, as sbatch takes it      (default: the site's)
#   -n        plan and stop
#   --status  one line about RUN: state, step, loss, job, state of the job, starts
#   block/key=value ...   overrides, handed on to capstan
#
# Exit codes are those of capstan: 2 = the machine or this version cannot do it. A job is
# requeued when capstan ended with 75 (interrupted, complete checkpoint) or a node was
# lost, and only when the newest checkpoint is newer than the one it started from.

# What a site file may set; see sites/plain.env for what each one means.
site_scheduler=slurm
site_machine=
site_partition=
site_ranks_per_node=1
site_sbatch=()
site_time=24:00:00
site_grace_seconds=600
site_capstan=build/cpu/capstan
site_idle_starts=3
site_setup() { :; }
site_launcher() { launcher=(mpirun -np "$1"); }

say() { printf 'job: %s\n' "$*"; }

job_main() {
  job_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  job_options "$@"
  cd "$job_root"
  . "$site_file"
  case $job_mode in
    status) job_status ;;
    plan) job_plan ;;
    *)
      job_plan
      if declare -F job_prepare >/dev/null; then job_prepare; fi
      if [ -n "${SLURM_JOB_ID:-}" ] || [ "$site_scheduler" = none ]; then
        job_run
      else
        job_submit
      fi
      ;;
  esac
}

job_usage() {
  sed -n '/^# A job script/,/^# lost/s/^# \{0,1\}//p' "$job_root/jobscripts/lib.sh"
}

# Sets job_mode, run, site_file, deck_words, overrides, and job_arguments: the same words
# with paths that hold in any folder, for the job to be submitted.
job_options() {
  local site=${job_site:-plain} limit='' word
  job_mode=run run=runs/$job_name decks=("${job_decks[@]}") overrides=()
  while [ $# -gt 0 ]; do
    word=$1
    shift
    case $word in
      -s | -d | -i | -t)
        [ $# -gt 0 ] || job_refuse "$word needs a value"
        case $word in
          -s) site=$1 ;;
          -d) run=$1 ;;
          -t) limit=$1 ;;
          -i) if [ -f "$1" ]; then decks+=("$(realpath "$1")"); else decks+=("$1"); fi ;;
        esac
        shift
        ;;
      -n) job_mode=plan ;;
      --status) job_mode=status ;;
      -h | --help)
        job_usage
        exit 0
        ;;
      */*=*) overrides+=("$word") ;;
      *) job_refuse "$word is neither an option (see -h) nor block/key=value" ;;
    esac
  done
  case $site in
    */*) site_file=$(realpath "$site") ;;
    *) site_file=$job_root/jobscripts/sites/$site.env ;;
  esac
  [ -f "$site_file" ] || job_refuse "no site file $site_file"
  job_arguments=(-s "$site_file" -d "$run")
  [ -z "$limit" ] || job_arguments+=(-t "$limit")
  for word in "${decks[@]:${#job_decks[@]}}"; do job_arguments+=(-i "$word"); done
  job_arguments+=("${overrides[@]}")
  job_limit=$limit
}

job_refuse() {
  printf 'job: refused: %s\n' "$@" >&2
  exit 2
}

# field NAME: the value of NAME=value on a PLAN line.
field() { sed -n "s/^PLAN:.* $1=\([^ ]*\).*/\1/p" <<<"$plan" | head -n 1; }

# The first act: what the deck needs against what there is. Exits 2 with every reason.
job_plan() {
  local deck rc=0 refused=()
  [ -x "$site_capstan" ] || job_refuse "no program $site_capstan: build it, see INSTALL"
  site_setup
  deck_words=()
  for deck in "${decks[@]}"; do deck_words+=(-i "$deck"); done
  [ -z "$site_machine" ] || deck_words+=(-i "$site_machine")
  plan=$("$site_capstan" -m "${deck_words[@]}" "${overrides[@]}" $(device_memory) 2>&1) ||
    rc=$?
  printf '%s\n' "$plan"
  if [ -z "$(field ranks)" ]; then exit $((rc ? rc : 1)); fi
  ranks=$(field ranks)
  if [ "$(field fits)" = no ]; then
    refused+=("a rank needs $(field device_gb) GB on its device and $(field host_gb) GB \
of host memory; there are $(field device_memory_gb) and $(field host_memory_gb) (0.00 = \
not known). Largest: $(field largest)")
  fi
  if [ "$(field runnable)" = no ]; then
    refused+=("this version cannot run the deck:$(sed -n '/not run it:/,/^PLAN/{
      /not run it:/d; /^PLAN/d; p }' <<<"$plan" | sed 's/^ */ /;s/$/;/' | tr -d '\n')")
  fi
  enough_ranks || refused+=("$shortage")
  if $job_registers; then experiment_text || refused+=("$shortage"); fi
  [ ${#refused[@]} -eq 0 ] || job_refuse "${refused[@]}"
  say "plan: $ranks ranks, $(field device_gb) GB a rank on the device: goes ahead"
}

# An override with the memory of the smallest GPU of this node, where there are GPUs.
device_memory() {
  command -v nvidia-smi >/dev/null || return 0
  nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null |
    sort -n | awk 'NR == 1 && $1 > 0 {
      printf "topology/device_memory_gb=%.1f", $1 * 1.048576e-3 }'
}

# False, with `shortage`, where there are fewer places than ranks.
enough_ranks() {
  local places here
  here="$(env -u OMP_NUM_THREADS nproc) cores, "
  here+="$(awk '/MemTotal/ { printf "%.0f", $2 * 1.024e-6 }' /proc/meminfo) GB of memory"
  if [ -n "${SLURM_JOB_ID:-}" ]; then
    places=${SLURM_NTASKS:-1}
    here="job $SLURM_JOB_ID has $places tasks on ${SLURM_JOB_NUM_NODES:-1} nodes"
  elif [ "$site_scheduler" = none ]; then
    places=$site_ranks_per_node
    here="this machine ($here) takes $places"
  elif ! command -v sbatch >/dev/null; then
    shortage="no Slurm here, only a machine with $here; the deck needs $ranks ranks with \
$(field device_gb) GB each"
    return 1
  else
    places=$(sinfo -h -o %D ${site_partition:+-p "$site_partition"} |
      awk '{ n += $1 } END { print n + 0 }')
    here="the ${site_partition:-whole} partition has $places nodes"
    places=$((places * site_ranks_per_node))
    here+=" with room for $places"
  fi
  shortage="the deck needs $ranks ranks; $here"
  [ "$ranks" -le "$places" ]
}

# The <experiment> block as the program reads it; false, with `shortage`, where a part of
# it is empty.
experiment_text() {
  local key missing=''
  experiment=$("$site_capstan" -n "${deck_words[@]}" "${overrides[@]}" |
    sed -n '/^<experiment>/,/^</{ /^[<#]/d; /^ *$/d; s/ *=/ =/; s/ *$//; p }')
  for key in goal hypothesis falsified_by; do
    grep -q "^$key = ." <<<"$experiment" || missing+=" experiment/$key"
  done
  shortage="this run says what it is for before it starts; missing:$missing"
  [ -z "$missing" ]
}

# Writes RUN/experiment.txt, once, before the first step: the text, its hash and the time.
register_experiment() {
  local file=$run/experiment.txt hash
  $job_registers || return 0
  hash=$(printf '%s\n' "$experiment" | sha256sum | cut -d ' ' -f 1)
  if [ ! -e "$file" ]; then
    {
      printf '%s\n' "$experiment"
      printf '# sha256=%s written=%s before_step=%s\n' "$hash" \
        "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(($(newest_step) + 1))"
    } >"$file.part"
    mv "$file.part" "$file"
  elif ! grep -q "^# sha256=$hash " "$file"; then
    say "note: <experiment> is not what $file says; the report shows both"
  fi
}

# Step of the newest complete checkpoint of RUN; 0 = none.
newest_step() {
  local folder newest=0
  for folder in "$run"/ckpt/step_*; do
    case $folder in *.part | *'*') continue ;; esac
    folder=${folder##*step_}
    newest=$((10#$folder > newest ? 10#$folder : newest))
  done
  echo "$newest"
}

# Refuses RUN while another job that is named in RUN/job is waiting or running.
claim_run() {
  local other state
  other=$(cat "$run/job" 2>/dev/null) || return 0
  [ "$other" != "${SLURM_JOB_ID:-}" ] || return 0
  state=$(squeue -h -j "$other" -o %T 2>/dev/null) || return 0
  case $state in
    '' | COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ;;
    *) job_refuse "run directory $run belongs to job $other, which is $state" ;;
  esac
}

job_submit() {
  local nodes=$(((ranks + site_ranks_per_node - 1) / site_ranks_per_node)) id
  mkdir -p "$run"
  claim_run
  id=$(sbatch --parsable --job-name="$job_name" --nodes="$nodes" --ntasks="$ranks" \
    --requeue --open-mode=append --output="$run/job.log" \
    --time="${job_limit:-$site_time}" --signal="B:USR1@$site_grace_seconds" \
    ${site_partition:+--partition="$site_partition"} "${site_sbatch[@]}" \
    "$job_root/jobscripts/$job_script" "${job_arguments[@]}")
  echo "${id%%;*}" >"$run/job"
  say "submitted job ${id%%;*}: $ranks ranks on $nodes nodes; log $run/job.log"
}

job_run() {
  local rc=0 before idle restart=() launcher
  mkdir -p "$run"
  claim_run
  before=$(newest_step)
  # The same job from the same checkpoint again and again gets nowhere: a node that fails
  # while the model is loaded, for one.
  idle=$(tail -n "$site_idle_starts" "$run/starts" 2>/dev/null |
    grep -c " job=${SLURM_JOB_ID:-none} from_step=$before\$") || true
  if [ "$idle" -ge "$site_idle_starts" ] && [ -n "${SLURM_JOB_ID:-}" ]; then
    say "stopped: $site_idle_starts starts of this job got no further than step $before"
    exit 1
  fi
  [ -z "${SLURM_JOB_ID:-}" ] || echo "$SLURM_JOB_ID" >"$run/job"
  register_experiment
  echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) job=${SLURM_JOB_ID:-none} from_step=$before" \
    >>"$run/starts"
  if [ "$before" -gt 0 ]; then restart=(-r latest); fi
  site_launcher "$ranks"
  launch "${launcher[@]}" "$site_capstan" "${deck_words[@]}" -d "$run" "${restart[@]}" \
    "${overrides[@]}" || rc=$?
  settle "$rc" "$before"
}

# launch COMMAND...: runs it; USR1 and TERM to this shell become USR1 to the command, that
# hands it on to the ranks. (mpirun would kill them at a TERM.)
launch() {
  local child rc=0
  "$@" &
  child=$!
  trap 'kill -USR1 "$child" 2>/dev/null' USR1 TERM
  wait "$child" || rc=$?
  # A trap ends `wait` early, while the command goes on.
  while kill -0 "$child" 2>/dev/null; do
    rc=0
    wait "$child" || rc=$?
  done
  trap - USR1 TERM
  return "$rc"
}

# settle CODE STEP: what comes after capstan ended with CODE, started at STEP.
settle() {
  local rc=$1 before=$2 after
  after=$(newest_step)
  if [ "$rc" -eq 0 ]; then
    say "done at step $after"
    exit 0
  fi
  if [ "$rc" -ne 75 ] && ! node_lost; then
    mark_status "failed exit=$rc"
    say "failed with exit code $rc; not requeued"
    exit "$rc"
  fi
  if [ "$after" -le "$before" ]; then
    mark_status "stalled exit=$rc"
    say "stopped: no progress beyond step $before since the start; not requeued"
    exit "$rc"
  fi
  say "interrupted at step $after with exit code $rc"
  if [ -n "${SLURM_JOB_ID:-}" ]; then
    say "requeue"
    # Where Slurm itself saw the node go, the job is requeued already.
    scontrol requeue "$SLURM_JOB_ID" || say "not by this script"
  fi
  exit "$rc"
}

# True when a node of the job does not answer: its ranks did not fail by themselves.
node_lost() {
  [ -n "${SLURM_JOB_ID:-}" ] || return 1
  ! timeout 60 srun --overlap --nodes="$SLURM_JOB_NUM_NODES" \
    --ntasks="$SLURM_JOB_NUM_NODES" true 2>/dev/null
}

# mark_status WORDS: a program that died cannot say so in RUN/status itself. Not while
# another one holds the run directory: the line is about that one then.
mark_status() {
  local line
  flock -n "$run/lock" true 2>/dev/null || return 0
  line=$(head -n 1 "$run/status" 2>/dev/null) || line="state=none"
  printf '%s\n' "state=$1 ${line#state=* }" >"$run/status.job"
  mv "$run/status.job" "$run/status"
}

job_status() {
  local line id state
  line=$(head -n 1 "$run/status" 2>/dev/null) || line="state=none"
  id=$(cat "$run/job" 2>/dev/null) || id=none
  state=$(squeue -h -j "$id" -o %T 2>/dev/null) || state=
  echo "run=$run $line job=$id job_state=${state:-gone}" \
    "starts=$(wc -l <"$run/starts" 2>/dev/null || echo 0)"
}
