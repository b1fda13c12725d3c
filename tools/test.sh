#!/usr/bin/env bash
# Sets up, builds everything and runs all tests: tools/test.sh [PRESET] [CTEST OPTION...].
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
shift || true
tools/build.sh "$preset"
# Tests run side by side, several threads each: let waiting threads sleep instead of spin.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
ctest --preset "$preset" -j "$(nproc)" "$@"
