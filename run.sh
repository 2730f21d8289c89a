#!/usr/bin/env bash
# Sets up .venv beside this script where that is still to do, then starts the gateway with its engine.
#
#   ./run.sh [--setup-only] [--with-tests] [arguments of `sayflow serve`]
#
# --setup-only   stop before serving
# --with-tests   install what ./test.sh needs as well
# PYTHON=...     the interpreter to use; without it the first of python3, python3.14 ... python3.11 that fits
#
# A finished set-up leaves a stamp in .venv (locks, Python, place), so that the next start has nothing to do.
# One that was cut short is begun anew; pip's cache keeps the downloads. Your pip configuration is respected.
set -euo pipefail

root=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")
venv=$root/.venv
begun=$venv/.setup-begun
styles=$root/assets/styles
log=

say() { printf '%s\n' "$*" >&2; }
die() { say "run.sh: $*"; exit 1; }

setup_only=false
locks=(requirements.lock)
arguments=()
for argument in "$@"; do
    case $argument in
        --setup-only) setup_only=true ;;
        --with-tests) locks+=(requirements-test.lock) ;;
        *) arguments+=("$argument") ;;
    esac
done

# --- is there anything to do? ---------------------------------------------------------------------------------

stamp_of() { printf '%s/.setup-%s' "$venv" "$1"; }

# What the stamp of a lock says when that lock is installed here, whole, with this Python.
wanted_stamp() {
    local version
    version=$("$venv/bin/python" -V 2>&1) || version=none
    printf '%s\n%s\n' "$root" "${version%.*}"
    (cd -- "$root" && cat requirements-build.lock "$1" pyproject.toml | sha256sum)
}

is_current() {
    local stamp
    stamp=$(stamp_of "$1")
    [[ -x $venv/bin/sayflow && -f $stamp && "$(<"$stamp")" == "$(wanted_stamp "$1")" ]]
}

all_current() {
    local lock
    for lock in "${locks[@]}"; do is_current "$lock" || return 1; done
}

have_styles() { compgen -G "$styles/*" >/dev/null; }

# A set-up without npm goes on without the Mandarin styles; once npm is there they are fetched after all. The
# marker keeps a machine whose npm reaches nothing from trying on every start; --setup-only always looks.
styles_wanted() {
    if $setup_only; then return 0; fi
    ! have_styles && [[ ! -e $venv/.styles-tried ]] && command -v npm >/dev/null
}

# --- the steps ------------------------------------------------------------------------------------------------

# Prints the interpreter to use, or dies with what was wrong with each that was looked at.
find_python() {
    local candidates=(python3 python3.14 python3.13 python3.12 python3.11)
    local candidate version reasons=''
    if [[ -n ${PYTHON:-} ]]; then candidates=("$PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        if ! command -v -- "$candidate" >/dev/null; then
            if [[ ${#candidates[@]} == 1 ]]; then reasons+=" $candidate was not found;"; fi
            continue
        fi
        version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        case $version in
            3.11 | 3.12 | 3.13 | 3.14) ;;
            *) reasons+=" $candidate is Python $version;" && continue ;;
        esac
        if ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            reasons+=" $candidate $version lacks venv (Debian, Ubuntu: apt install python$version-venv);"
            continue
        fi
        printf '%s\n' "$candidate"
        return
    done
    die "needs Python 3.11 to 3.14 with venv:${reasons:- no python3 was found;}" \
        "install one, or name it: PYTHON=/path/to/python3 ./run.sh"
}

# Reads pip's output and shows on the terminal's last line what it is at.
show_progress() {
    local line seen=0 now=''
    while IFS= read -r line; do
        case $line in
            Collecting\ * | Requirement\ already\ *) seen=$((seen + 1)) && now="$seen packages found" ;;
            *Downloading\ *) now=${line#*Downloading } ;;
            Building\ * | *Building\ wheel*) now=building ;;
            Installing\ collected\ *) now='unpacking' ;;
        esac
        printf '\r\033[K%s ... %.60s' "$1" "$now" >&2
    done
    printf '\r\033[K%s ... ' "$1" >&2
}

# step TITLE COMMAND...: runs it with its output in the log, which is shown only if it fails.
step() {
    local title=$1 since=$SECONDS status=0
    shift
    printf '%s ... ' "$title" >&2
    : >"$log"
    if [[ -t 2 ]]; then
        "$@" 2>&1 | tee -- "$log" | show_progress "$title" || status=$?
    else
        "$@" >"$log" 2>&1 || status=$?
    fi
    if [[ $status != 0 ]]; then
        say failed
        tail -n 30 -- "$log" >&2
        die "$title: failed with status $status (what it printed last is above); run it again to go on"
    fi
    say "$((SECONDS - since)) s"
}

# PIP_USER: a `user = true` in someone's pip configuration is an error inside a virtual environment.
pip_install() {
    PIP_USER=0 "$venv/bin/python" -I -m pip install --no-input --disable-pip-version-check "$@"
}

# --no-binary jieba: it has no wheel and is built with the pinned setuptools. --ignore-requires-python: misaki
# says < 3.13, from its other languages; what we use of it runs on 3.13, and the hashes fix every version.
install_lock() {
    pip_install --require-hashes --only-binary :all: --no-binary jieba --no-build-isolation \
        --ignore-requires-python -r "$root/$1"
}

install_tools() { pip_install --require-hashes --only-binary :all: -r "$root/requirements-build.lock"; }

install_project() { pip_install --no-deps --no-index --no-build-isolation -e "$root"; }

# True where .venv can be brought up to date in place: a whole one, made here, whose Python still runs.
can_update() {
    local stamp version
    [[ ! -e $begun ]] || return 1
    for stamp in "$venv"/.setup-*; do
        [[ ! -e $stamp || "$(head -n 1 -- "$stamp")" == "$root" ]] || return 1
    done
    version=$("$venv/bin/python" -I -c 'import pip, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 1
    case $version in 3.11 | 3.12 | 3.13 | 3.14) ;; *) return 1 ;; esac
}

install_all() {
    local lock python title
    [[ -w $root ]] || die "cannot write to $root"
    log=$(mktemp)
    trap 'rm -f -- "$log"' EXIT
    if ! can_update; then
        python=$(find_python)
        step "Making .venv with $("$python" -V 2>&1)" "$python" -m venv --clear "$venv"
    fi
    : >"$begun"
    step 'Installing the installer' install_tools
    for lock in "${locks[@]}"; do
        title="Installing $(grep -c '==' "$root/$lock") packages of $lock"
        step "$title" install_lock "$lock"
    done
    step 'Installing sayflow' install_project
    for lock in "${locks[@]}"; do
        wanted_stamp "$lock" >"$(stamp_of "$lock").new"
        mv -- "$(stamp_of "$lock").new" "$(stamp_of "$lock")"
    done
    rm -f -- "$begun" "$log"
}

fetch_styles() {
    (cd -- "$root" && "$venv/bin/python" -m engine.embedded.styles "$styles") >&2 || true
    rm -f -- "$venv/.styles-tried"
    if ! have_styles; then
        say 'Another ./run.sh --setup-only tries to fetch them again.'
        if command -v npm >/dev/null; then : >"$venv/.styles-tried"; fi
    fi
}

# --- set up, serve --------------------------------------------------------------------------------------------

if ! all_current || styles_wanted; then
    # The lock lies on this script itself and ends with the process that holds it, so that it is never stale.
    exec 9<"$root/run.sh"
    if command -v flock >/dev/null && ! flock -n 9; then
        say 'Another set-up is at work here; waiting for it.'
        flock 9
    fi
    if ! all_current; then
        install_all
        fetch_styles
    elif styles_wanted; then
        fetch_styles
    fi
    exec 9<&-
fi

if $setup_only; then exit 0; fi
exec "$venv/bin/sayflow" serve ${arguments[@]+"${arguments[@]}"}
