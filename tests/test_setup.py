"""run.sh with a stand-in for Python that records what it is asked: every way to fail is cheap to try."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ["run.sh", "test.sh", ".ci/run"]
FILES = ["run.sh", "pyproject.toml", "requirements-build.lock", "requirements.lock", "requirements-test.lock"]
# All that run.sh may need of a system; `env` for its first line.
TOOLS = [
    *("bash", "cat", "chmod", "cp", "dirname", "env", "flock", "grep", "head", "mkdir", "mktemp", "mv"),
    *("readlink", "rm", "sha256sum", "sleep", "tail", "tee"),
]

FAKE_PYTHON = r"""#!/usr/bin/env bash
echo "$*" >>"$CALLS"
case "$*" in
    -V) echo "Python ${FAKE_VERSION:-3.12}.1" ;;
    *version_info*) echo "${FAKE_VERSION:-3.12}" ;;
    *ensurepip*) exit "${FAKE_NO_VENV:-0}" ;;
    "-m venv --clear "*)
        rm -rf -- "$4"
        mkdir -p -- "$4/bin"
        cp -- "$0" "$4/bin/python"
        ;;
    *"-m pip install"*)
        sleep "${FAKE_SECONDS:-0}"
        if [[ -n ${FAKE_FAULT:-} && $* == *"$FAKE_FAULT"* ]]; then
            echo 'no space left on the moon'
            exit 7
        fi
        if [[ $* == *" -e "* ]]; then
            printf '#!/usr/bin/env bash\nprintf "<%%s>" "$@"\n' >"${0%/*}/sayflow"
            chmod +x "${0%/*}/sayflow"
        fi
        ;;
    *engine.embedded.styles*)
        if command -v npm >/dev/null; then mkdir -p -- "$3" && echo >"$3/zf.bin"; fi
        ;;
    *) exit 99 ;;
esac
"""


class Place:
    """A clone of the repository's set-up files, with a stand-in Python and only the tools named above."""

    def __init__(self, top: Path) -> None:
        self.root = top / "a place with spaces"
        self.root.mkdir()
        for name in FILES:
            shutil.copy(ROOT / name, self.root / name)
        self.bin = top / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (self.bin / tool).symlink_to(found)
        self.calls_file = top / "calls"
        self.provide("python3", FAKE_PYTHON)

    def provide(self, name: str, script: str = "#!/usr/bin/env bash\n") -> None:
        """Put a program on the PATH."""
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """run.sh, from another folder."""
        return subprocess.Popen(
            [str(self.root / "run.sh"), *arguments],
            cwd="/",
            env={"PATH": str(self.bin), "CALLS": str(self.calls_file), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def calls(self, kind: str) -> int:
        """How often Python was asked for this since the last look."""
        text = self.calls_file.read_text() if self.calls_file.exists() else ""
        return sum(kind in line for line in text.splitlines())

    def forget(self) -> None:
        """Start counting anew."""
        self.calls_file.unlink(missing_ok=True)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_first_start_sets_up_and_serves_and_the_second_only_serves(place: Place) -> None:
    status, out, _ = place.run("--port", "9000", "--config", "my settings.toml")
    assert (status, out) == (0, "<serve><--port><9000><--config><my settings.toml>")
    assert place.calls("venv --clear") == 1
    assert place.calls("pip install") == 3
    assert place.calls("requirements-test.lock") == 0
    place.forget()
    status, out, err = place.run("--voice", "")
    assert (status, out, err) == (0, "<serve><--voice><>", "")
    assert place.calls("") == place.calls("-V") == 1


def test_setup_only_stops_before_serving(place: Place) -> None:
    assert place.run("--setup-only")[:2] == (0, "")
    assert place.calls("pip install") == 3


def test_the_tests_lock_is_installed_beside_and_only_when_asked_for(place: Place) -> None:
    place.run("--setup-only")
    place.forget()
    assert place.run("--setup-only", "--with-tests")[0] == 0
    assert place.calls("requirements-test.lock") == 1
    assert place.calls("venv --clear") == 0
    place.forget()
    assert place.run("--setup-only", "--with-tests")[0] == 0
    assert place.run("--setup-only")[0] == 0
    assert place.calls("pip install") == 0


@pytest.mark.parametrize("fault", ["requirements-build.lock", "requirements.lock", " -e "])
def test_a_step_that_fails_is_shown_and_the_next_start_begins_anew(place: Place, fault: str) -> None:
    status, out, err = place.run(FAKE_FAULT=fault)
    assert status == 1
    assert out == ""
    assert "no space left on the moon" in err
    assert "failed with status 7" in err
    place.forget()
    assert place.run()[:2] == (0, "<serve>")
    assert place.calls("venv --clear") == 1
    assert place.calls("pip install") == 3


def test_a_set_up_that_was_killed_begins_anew(place: Place) -> None:
    process = place.start(FAKE_SECONDS="0.3")
    while place.calls("pip install") < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=60)
    place.forget()
    assert place.run()[:2] == (0, "<serve>")
    assert place.calls("venv --clear") == 1


def test_a_changed_lock_is_installed_in_place(place: Place) -> None:
    place.run("--setup-only")
    place.forget()
    with (place.root / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    assert place.run()[:2] == (0, "<serve>")
    assert place.calls("venv --clear") == 0
    assert place.calls("pip install") == 3


def test_a_moved_clone_and_another_python_are_set_up_anew(place: Place) -> None:
    place.run("--setup-only")
    place.root = place.root.rename(place.root.parent / "elsewhere")
    place.forget()
    assert place.run()[:2] == (0, "<serve>")
    assert place.calls("venv --clear") == 1
    (place.root / ".venv/bin/python").unlink()
    place.forget()
    assert place.run()[:2] == (0, "<serve>")
    assert place.calls("venv --clear") == 1


def test_two_at_once_set_up_once(place: Place) -> None:
    both = [place.start(FAKE_SECONDS="0.1") for _ in range(2)]
    results = [process.communicate(timeout=60) for process in both]
    assert [out for out, _ in results] == ["<serve>", "<serve>"]
    assert place.calls("venv --clear") == 1
    assert place.calls("pip install") == 3


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FAKE_VERSION": "3.10"}, "python3 is Python 3.10;"),
        ({"FAKE_VERSION": "3.15"}, "python3 is Python 3.15;"),
        ({"FAKE_NO_VENV": "1"}, "python3 3.12 lacks venv"),
        ({"PYTHON": "python9"}, "python9 was not found;"),
    ],
)
def test_what_is_wrong_with_python_is_said(place: Place, environment: dict[str, str], said: str) -> None:
    status, out, err = place.run(**environment)
    assert (status, out) == (1, "")
    assert said in err
    assert "needs Python 3.11 to 3.14 with venv" in err
    assert not (place.root / ".venv").exists()


def test_no_python_at_all_is_said(place: Place) -> None:
    (place.bin / "python3").unlink()
    status, _, err = place.run()
    assert status == 1
    assert "no python3 was found" in err


def test_the_mandarin_styles_come_once_npm_is_there(place: Place) -> None:
    status, out, err = place.run()
    assert (status, out) == (0, "<serve>")
    assert "tries to fetch them again" in err
    place.run()
    assert place.calls("engine.embedded.styles") == 1
    place.provide("npm")
    assert place.run()[:2] == (0, "<serve>")
    place.run()
    assert place.calls("engine.embedded.styles") == 2
    assert place.calls("pip install") == 3


def test_an_npm_that_reaches_nothing_is_tried_again_only_when_asked(place: Place) -> None:
    place.provide("python3", FAKE_PYTHON.replace('mkdir -p -- "$3" && echo', "true || echo"))
    place.provide("npm")
    place.run()
    place.run()
    assert place.calls("engine.embedded.styles") == 1
    place.run("--setup-only")
    assert place.calls("engine.embedded.styles") == 2


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_are_sound(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    for checker in (["bash", "-n"], ["shellcheck"]):
        if shutil.which(checker[0]):
            run = subprocess.run([*checker, str(path)], capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stdout + run.stderr
