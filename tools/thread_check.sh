#!/usr/bin/env bash
# Runs the suites of the parts with threads of their own under ThreadSanitizer: saving beside training, the data
# pipeline, the expert store, the serving scheduler. Loops over OpenMP are left out (see cmake/SmoeTorch.cmake).
# tools/thread_check.sh [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/tsan}
suites=(checkpoint_save_tests data_tests streaming_tests serve_tests)
[ -f "$build/build.ninja" ] || cmake --preset tsan -B "$build"
cmake --build "$build" --target "${suites[@]}"
export TSAN_OPTIONS="suppressions=$PWD/tests/thread_sanitizer.supp halt_on_error=0 exitcode=66 ${TSAN_OPTIONS:-}"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
failed=0
for suite in "${suites[@]}"; do
  echo "== $suite"
  # Without random addresses: newer kernels place libraries where ThreadSanitizer has its tables.
  setarch -R "$build/bin/$suite" --gtest_brief=1 || failed=1
done
exit "$failed"
