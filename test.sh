#!/usr/bin/env bash
# Sets up, then runs every check and every test; true only if all of them passed.
#
#   ./test.sh [arguments of pytest]
#
# The browser test needs Chromium. It is installed with apt where this user may do that (root, or sudo that asks
# for no password); elsewhere that step is named as skipped, and so is the test.
set -euo pipefail

root=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
cd -- "$root"
python=$root/.venv/bin/python

skipped=()
failed=()

say() { printf '%s\n' "$*" >&2; }
have() { command -v -- "$1" >/dev/null; }

# --- what the tests need --------------------------------------------------------------------------------------

# Prints the words that make a command run as root, or fails where there are none.
as_root() {
    if [[ $EUID == 0 ]]; then
        echo env
    elif have sudo && sudo -n true 2>/dev/null; then
        echo sudo env
    else
        return 1
    fi
}

apt_install() {
    local prefix log status=0
    have apt-get || { say 'apt-get is not here.'; return 1; }
    read -ra prefix < <(as_root) || { say 'Neither root nor a sudo that asks for no password.'; return 1; }
    prefix+=(DEBIAN_FRONTEND=noninteractive)
    log=$(mktemp)
    {
        # A mirror that fails may still leave lists that are good enough.
        "${prefix[@]}" apt-get update -q || true
        "${prefix[@]}" apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
    } >"$log" 2>&1 </dev/null || status=$?
    if [[ $status != 0 ]]; then tail -n 15 -- "$log" >&2; fi
    rm -f -- "$log"
    return "$status"
}

# A Chinese font besides, so that a screenshot of the page shows what a person would see.
provide_chromium() {
    local packages=(chromium)
    have chromium && return
    if ! have fc-list || [[ -z $(fc-list :lang=zh) ]]; then packages+=(fonts-wqy-zenhei); fi
    say "Installing ${packages[*]} with apt ..."
    apt_install "${packages[@]}" && have chromium
}

# The ChatTTS engine's tests need torch: its CPU and CUDA builds share a version, so that no lock can hold it.
provide_torch() {
    "$python" -c 'import onnx, safetensors, tokenizers, torch' 2>/dev/null && return
    say 'Installing the extra [torch] ...'
    PIP_USER=0 "$python" -I -m pip install -q --no-input --disable-pip-version-check --no-build-isolation \
        -e "${root}[torch]"
}

# The real ChatTTS package, the oracle of the parity tests.
provide_oracle() {
    "$python" -c 'from importlib.metadata import version; version("chattts")' 2>/dev/null && return
    say 'Installing the ChatTTS package, for the parity tests ...'
    PIP_USER=0 "$python" -I -m pip install -q --no-input --disable-pip-version-check --no-deps \
        --no-build-isolation -r requirements-upstream.txt
}

# --- checks ---------------------------------------------------------------------------------------------------

check() {
    local name=$1
    shift
    say "== $name"
    "$@" || failed+=("$name")
}

./run.sh --setup-only --with-tests
provide_torch
provide_oracle || skipped+=('the parity tests (the ChatTTS package could not be installed)')
provide_chromium || skipped+=('the browser test (no chromium)')
have npm || skipped+=('fetching the Mandarin styles (no npm)')
have shellcheck || skipped+=('shellcheck of the scripts (not installed)')

check 'ruff check' "$python" -m ruff check .
check 'ruff format' "$python" -m ruff format --check .
# Beside the tests, which mostly wait.
typing_log=$(mktemp)
"$python" -m mypy >"$typing_log" 2>&1 &
typing=$!

for name in ${skipped[@]+"${skipped[@]}"}; do say "SKIPPED: $name"; done

# Last, so that pytest's closing line is the result one sees.
say '== pytest'
"$python" -m pytest -q -rs "$@" || failed+=("pytest (exit status $?)")
wait "$typing" || {
    cat -- "$typing_log" >&2
    failed+=('mypy')
}
rm -f -- "$typing_log"
if [[ ${#failed[@]} != 0 ]]; then
    for name in "${failed[@]}"; do say "FAILED: $name"; done
    exit 1
fi
