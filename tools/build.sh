#!/usr/bin/env bash
# Configures and builds a preset: tools/build.sh [PRESET] [NINJA TARGET...]. Runs setup first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
shift || true
tools/setup.sh
options=()
[ -n "${SMOE_TORCH_ROOT:-}" ] && options+=("-DSMOE_TORCH_ROOT=$SMOE_TORCH_ROOT")
cmake --preset "$preset" "${options[@]}" >"/tmp/smoe-configure-$$.log" 2>&1 || {
  cat "/tmp/smoe-configure-$$.log" >&2
  exit 1
}
rm -f "/tmp/smoe-configure-$$.log"

# A compile with LibTorch's headers takes about 1.5 GB: do not start more of them than memory allows.
memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
limit=$(( memory_gib / 2 > 0 ? memory_gib / 2 : 1 ))
[ "$jobs" -le "$limit" ] || jobs=$limit
cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
