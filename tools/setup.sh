#!/usr/bin/env bash
# Installs what a build needs: distribution packages (apt) and LibTorch (a wheel in .venv).
# Safe to run again: what is there is not touched. Environment:
#   SMOE_TORCH_ROOT   use this LibTorch instead of installing the wheel
#   SMOE_TORCH_ROUTE  cpu | full: overrides the choice by whether an NVIDIA GPU is present
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake_version=3.23
torch_version=2.11.0
cuda_runtime_version=13.0.96
cuda_cupti_version=13.0.85
packages=(
  build-essential cmake ninja-build ccache pkg-config git ca-certificates
  python3 python3-venv python3-pip
  libyaml-cpp-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libgtest-dev libgmock-dev
  libsentencepiece-dev libpcre2-dev libicu-dev libcld2-dev libzstd-dev libssl-dev liburing-dev libxxhash-dev libgloo-dev
  gnuplot-nox bubblewrap libcpp-httplib-dev libfaketime)

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }

missing_packages() {
  for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || echo "$package"
  done
}

install_packages() {
  if ! command -v apt-get >/dev/null; then
    echo "error: this script installs packages with apt (Debian 12, Ubuntu 24.04). On another system install the" >&2
    echo "counterparts of these and build with CMake alone (see README.md): ${packages[*]}" >&2
    exit 1
  fi
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  if [ -z "$missing" ]; then
    say "distribution packages: all installed"
    return
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "error: these packages are missing and only root can install them. Ask for:" >&2
    echo "  sudo apt-get install --no-install-recommends $missing" >&2
    exit 1
  fi
  say "installing distribution packages: $missing"
  apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# Distributions older than those named above have a CMake that cannot read the presets.
check_cmake() {
  local found
  found=$(cmake --version | awk 'NR == 1 {print $3}')
  if [ "$(printf '%s\n' "$cmake_version" "$found" | sort -V | head -n 1)" != "$cmake_version" ]; then
    echo "error: CMake $found is too old: $cmake_version or newer is needed (Debian 12 and Ubuntu 24.04 have it)." >&2
    echo "Install a newer one, say with 'python3 -m pip install --user cmake', and put it first in PATH." >&2
    exit 1
  fi
}

has_nvidia_gpu() { [ -e /dev/nvidia0 ] || { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }; }

# Prints the LibTorch folder of the virtual environment, or nothing.
venv_torch() { ls -d .venv/lib/python3*/site-packages/torch 2>/dev/null | head -n 1; }

install_torch() {
  if [ -n "${SMOE_TORCH_ROOT:-}" ]; then
    say "LibTorch: using SMOE_TORCH_ROOT=$SMOE_TORCH_ROOT"
    return
  fi
  local route=${SMOE_TORCH_ROUTE:-}
  if [ -z "$route" ]; then
    if has_nvidia_gpu; then route=full; else route=cpu; fi
  fi
  local stamp=.venv/smoe-torch
  local wanted="$torch_version $route"
  # The full route holds everything of the small one.
  if [ -f "$stamp" ] && { [ "$(cat "$stamp")" = "$wanted" ] || [ "$(cat "$stamp")" = "$torch_version full" ]; } \
      && [ -n "$(venv_torch)" ]; then
    say "LibTorch $(cat "$stamp"): installed in $(venv_torch)"
    return
  fi
  say "installing LibTorch $torch_version ($route route) into .venv"
  # Also repairs one without pip, which is what an interrupted or failed first attempt leaves.
  .venv/bin/python -m pip --version >/dev/null 2>&1 || python3 -m venv .venv
  case "$route" in
    cpu)  # --no-deps leaves out 3 GB of GPU wheels; these two are what libtorch_cpu.so itself loads.
      .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps "torch==$torch_version" \
        "nvidia-cuda-runtime==$cuda_runtime_version" "nvidia-cuda-cupti==$cuda_cupti_version" ;;
    full) .venv/bin/python -m pip install -q --disable-pip-version-check "torch==$torch_version" ;;
    *) echo "error: SMOE_TORCH_ROUTE=$route: allowed are cpu and full" >&2; exit 1 ;;
  esac
  echo "$wanted" > "$stamp"
}

install_packages
check_cmake
install_torch
# Only evaluations need these, so that nobody installs a JDK in vain.
say "optional, for MultiPL-E in Java: apt-get install default-jdk-headless libjavatuples-java"
