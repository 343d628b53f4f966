#!/usr/bin/env bash
#SBATCH --job-name=535b
#SBATCH --ntasks=704
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=535b.%j.log
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@900
# 535b.sh: the 535B run of inputs/535b.deck, planned, submitted, continued.
#
#   bash jobscripts/535b.sh -s nvl72              plans, then submits itself
#   bash jobscripts/535b.sh -n                    plans only
#   bash jobscripts/535b.sh -i inputs/535b/3_ragged_81716.deck    a later stage
#   sbatch jobscripts/535b.sh                     from the repository; plans in the job
#
# The <experiment> of the deck is required text: it is hashed into RUN/experiment.txt
# before the first step. -h lists the options; lib.sh has the rules of requeueing.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# Slurm runs a copy of this file from its own folder.
[ -f "$here/lib.sh" ] || here=${SLURM_SUBMIT_DIR:-.}/jobscripts
. "$here/lib.sh"

job_script=535b.sh
job_name=535b
job_site=nvl72
job_decks=(inputs/535b.deck)
job_registers=true
job_main "$@"
