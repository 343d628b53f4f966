#!/usr/bin/env bash
#SBATCH --job-name=smoke
#SBATCH --ntasks=2
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=smoke.%j.log
#SBATCH --time=00:30:00
#SBATCH --signal=B:USR1@120
# smoke.sh: a small deck through the whole machinery of a site: plan, job, checkpoint,
# requeue. To be run first on a new cluster, with the site file that 535b.sh will use.
#
#   bash jobscripts/smoke.sh -s plain                         two ranks
#   bash jobscripts/smoke.sh -s nvl72 grid/expert=16          more
#   bash jobscripts/smoke.sh -s desk                          here, without Slurm
#
# Its corpus is made from text that is on the machine. -h lists the options.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# Slurm runs a copy of this file from its own folder.
[ -f "$here/lib.sh" ] || here=${SLURM_SUBMIT_DIR:-.}/jobscripts
. "$here/lib.sh"

job_script=smoke.sh
job_name=smoke
job_site=plain
job_decks=(inputs/quickstart.deck)
job_registers=false

job_prepare() {
  [[ " ${overrides[*]} " != *" data/files="* ]] || return 0
  [ -f runs/data/corpus.idx ] || jobscripts/corpus.sh runs/data "$site_capstan-prep"
}
job_main "$@"
