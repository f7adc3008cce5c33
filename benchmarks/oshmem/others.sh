#!/usr/bin/env bash
# Builds unchanged programs of other projects with oshcc, runs them, and prints what passes:
#
#   benchmarks/oshmem/others.sh DIR...
#
# DIR is a checkout. Of each C or C++ file below it that has a main function and uses SHMEM a program is
# built, and run with 2 and 4 PEs, mapped and by requests. It passes if its exit status is 0.
#
#   OSHCC=oshcc SHMEMRUN=shmemrun   others than those of this repository
#   TIMEOUT=60                      seconds of a run
#   ONLY=REGEX                      only files whose path matches
set -uo pipefail
(($# > 0)) || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [[ -z ${OSHCC:-} ]]; then
  "$root/cmd/libsma/install" "$tmp/sma" >&2 && go build -C "$root" -o "$tmp/shmemrun" ./cmd/shmemrun || exit 1
  OSHCC=$tmp/sma/bin/oshcc SHMEMRUN=$tmp/shmemrun
fi

for dir; do
  total=0 built=0
  declare -A passed=()
  includes=$(find "$dir" -name '*.h' -printf '-I%h\n' | sort -u)
  while read -r source; do
    compiler=$OSHCC
    [[ $source == *.c ]] || compiler=${OSHCC%cc}c++
    total=$((total + 1))
    name=${source#"$dir"/}
    if ! "$compiler" -w -O1 $includes "$source" -o "$tmp/program" -lpthread -lm 2>"$tmp/log"; then
      printf '%s: not built: %s\n' "$name" "$(grep -m1 -E 'error|undefined' "$tmp/log")"
      continue
    fi
    built=$((built + 1))
    for pes in 2 4; do
      for strict in 0 1; do
        way="$pes PEs, $([[ $strict == 0 ]] && echo mapped || echo by requests)"
        if SHMEM_STRICT=${strict#0} timeout -k 5 "${TIMEOUT:-60}" "$SHMEMRUN" -n "$pes" "$tmp/program" </dev/null >"$tmp/log" 2>&1; then
          passed[$way]=$((${passed[$way]:-0} + 1))
        else
          printf '%s: %s: status %d: %s\n' "$name" "$way" $? "$(tail -n 1 "$tmp/log" | cut -c1-150)"
        fi
      done
    done
  done < <(grep -rlE 'shmem(x)?\.h' --include='*.c' --include='*.cpp' --include='*.cc' "$dir" | xargs grep -lE '\bmain *\(' | grep -E "${ONLY:-.}" | sort)
  printf '%s at %s: %d programs, %d built' "$(basename "$dir")" "$(git -C "$dir" log -1 --format=%h 2>/dev/null || echo '?')" "$total" "$built"
  for way in "${!passed[@]}"; do printf '; %s: %d' "$way" "${passed[$way]}"; done
  echo
done
