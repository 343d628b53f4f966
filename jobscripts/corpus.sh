#!/bin/bash
# Makes a text corpus of over 10 MB from what is on any Debian machine with Python:
#   jobscripts/corpus.sh OUTDIR [PREP [BYTES]]
# writes OUTDIR/corpus.bin and OUTDIR/corpus.idx (byte tokens, end of document 256). PREP
# is the capstan-prep to use (default: the one of build/cpu). BYTES: folders are added
# until there is so much (default 10500000). Prints the unigram entropy, the loss that a
# model without context would reach.
set -euo pipefail

if [[ $# -lt 1 || $1 == -h ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  if [[ ${1:-} == -h ]]; then exit 0; fi
  exit 2
fi
out=$1
here=$(cd "$(dirname "$0")/.." && pwd)
prep=${2:-$here/build/cpu/capstan-prep}
if [[ ! -x $prep ]]; then
  echo "corpus.sh: no $prep (build first, or name capstan-prep as second argument)" >&2
  exit 2
fi

enough=${3:-10500000}
suffixes=.py,.pm,.pl,.pod
paths=()
bytes=0
add() {
  [[ -d $1 ]] || return 0
  paths+=("$1")
  local n
  n=$(find "$1" -type f \( -name '*.py' -o -name '*.p[ml]' -o -name '*.pod' \) \
    -printf '%s\n' | awk '{ sum += $1 } END { printf "%d", sum }')
  bytes=$((bytes + n))
}

# Licence texts have no suffix, so they are named one by one.
if [[ -d /usr/share/common-licenses ]]; then
  mapfile -t paths < <(find /usr/share/common-licenses -type f | LC_ALL=C sort)
fi
# The standard library of Debian's Python; more only while that is too little.
for folder in /usr/lib/python3.[0-9]*; do add "$folder"; done
for folder in /usr/share/perl /usr/lib/python3/dist-packages /usr/share/perl5; do
  if ((bytes < enough)); then add "$folder"; fi
done
if ((bytes < enough)); then
  echo "corpus.sh: only $bytes bytes of text here; install python3 (libpython3-stdlib)" \
    "or give capstan-prep a text of your own" >&2
  exit 4
fi

mkdir -p "$out"
exec "$prep" -o "$out/corpus" --min-bytes 64 --suffix "$suffixes" "${paths[@]}"
