#!/usr/bin/env bash
# Says whether the engine's GPU side works on this machine, and how fast: about three minutes, one table.
#
#   bench/gpu.sh [--weights DIR] [--json FILE]
#
# Status 2: there is nothing to measure on, no GPU or no torch for it. PYTHON=... names the interpreter.
set -euo pipefail

root=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
python=${PYTHON:-$root/.venv/bin/python}

die() { printf 'bench/gpu.sh: %s\n' "$*" >&2; exit 2; }

command -v -- "$python" >/dev/null || die "no $python: run ./run.sh --setup-only --with-tests first"
"$python" -c 'import pytest, safetensors, tokenizers, torch' ||
    die "$python lacks the tests' packages or the extra [torch]"
# --weights and --json are the caller's paths: the modules are found without leaving their folder.
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m bench.gpu "$@"
