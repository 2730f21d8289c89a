"""What is shipped: locks that hold every dependency by hash, a container with the same set-up as run.sh."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCKS = ["requirements-build.lock", "requirements.lock", "requirements-test.lock"]


def entries(lock: str) -> list[str]:
    """The requirements of a lock, each with its hashes on one line."""
    text = (ROOT / lock).read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def locked(lock: str) -> dict[str, Requirement]:
    """Canonical name to the requirement of a lock."""
    found: dict[str, Requirement] = {}
    for entry in entries(lock):
        requirement = Requirement(entry.split(" --hash")[0])
        found[canonicalize_name(requirement.name)] = requirement
    return found


def wanted(lock: str) -> list[str]:
    """What pyproject.toml asks for, of that which a lock must hold."""
    project = PROJECT["project"]
    match lock:
        case "requirements-build.lock":
            return [*PROJECT["dependency-groups"]["build"], *PROJECT["build-system"]["requires"]]
        case "requirements.lock":
            return [*project["dependencies"]]
        case _:
            return [*project["dependencies"], *project["optional-dependencies"]["test"]]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_each_dependency_at_its_own_version(lock: str) -> None:
    held = locked(lock)
    for text in wanted(lock):
        requirement = Requirement(text)
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), f"{text} is not an exact version"
        name = canonicalize_name(requirement.name)
        assert name in held, f"{name} is missing in {lock}"
        assert held[name].specifier == requirement.specifier


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_of_a_lock_is_exact_and_hashed(lock: str) -> None:
    lines = entries(lock)
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9-]+==\S+ ", line), line
        assert re.search(r" --hash=sha256:[0-9a-f]{64}(\s|$)", line), line


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_address(lock: str) -> None:
    assert re.findall(r"://|--\S*(?:index|find-links)\S*| @ ", (ROOT / lock).read_text("utf-8")) == []


def test_the_locks_agree_with_each_other() -> None:
    build, run, test = (locked(lock) for lock in LOCKS)
    assert run.keys() <= test.keys()
    for name in run:
        assert run[name].specifier == test[name].specifier, name
    for name in build.keys() & test.keys():
        assert build[name].specifier == test[name].specifier, name


def test_torch_is_asked_for_by_its_extra_alone() -> None:
    for lock in LOCKS:
        assert not {name for name in locked(lock) if name.startswith(("torch", "nvidia", "triton"))}
    assert any(text.startswith("torch==") for text in PROJECT["project"]["optional-dependencies"]["torch"])


def test_what_is_tested_is_what_is_locked() -> None:
    environment = {key: str(value) for key, value in default_environment().items()}
    for name, requirement in locked("requirements-test.lock").items():
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.specifier.contains(metadata.version(name)), f"{name} {metadata.version(name)}"


def outside_the_locks() -> set[str]:
    """What the extra [torch] and the reference package bring: builds of torch cannot be held by a hash."""
    pinned = list(PROJECT["project"]["optional-dependencies"]["torch"])
    pinned += [
        line
        for line in (ROOT / "requirements-upstream.txt").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    return {canonicalize_name(Requirement(line).name) for line in pinned} | {"huggingface-hub"}


@pytest.mark.parametrize(
    ("lock", "folders"),
    [("requirements.lock", ["gateway", "engine"]), ("requirements-test.lock", ["tests", "bench"])],
)
def test_what_the_code_imports_is_locked(lock: str, folders: list[str]) -> None:
    ours = {
        "gateway",
        "engine",
        "web_demo",
        "tests",
        "bench",
        *(path.stem for path in (ROOT / "tests").glob("*.py")),
    }
    providers = metadata.packages_distributions()
    held = locked(lock).keys() | outside_the_locks()
    lacking = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for top in {name.split(".")[0] for name in names} - ours - sys.stdlib_module_names:
                if not held & {canonicalize_name(name) for name in providers.get(top, [top])}:
                    lacking.add((path.name, top))
    assert lacking == set()


def test_run_sh_takes_the_pythons_that_the_project_declares() -> None:
    declared = SpecifierSet(PROJECT["project"]["requires-python"])
    versions = [f"3.{minor}" for minor in range(6, 30) if f"3.{minor}" in declared]
    script = (ROOT / "run.sh").read_text("utf-8")
    assert script.count(" | ".join(versions) + ")") == 2
    assert f"needs Python {versions[0]} to {versions[-1]} " in script


# --- the container ----------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """(keyword, rest) of each instruction of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (ROOT / "docker/Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def copied() -> list[str]:
    """What the Dockerfile copies from the build context."""
    return [
        name
        for keyword, rest in instructions()
        if keyword == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    ]


def test_the_container_copies_what_is_there_and_not_ignored() -> None:
    ignore = (ROOT / "docker/Dockerfile.dockerignore").read_text("utf-8").split()
    kept = {line[1:] for line in ignore if line.startswith("!")}
    assert {"engine", "gateway", "web_demo", "pyproject.toml", "requirements.lock"} <= set(copied())
    for name in copied():
        assert (ROOT / name).exists(), name
        assert any(Path(name).match(pattern) for pattern in kept), f"{name} is ignored"


def test_the_container_installs_the_locks_with_the_flags_of_run_sh() -> None:
    def flags(text: str) -> list[set[str]]:
        calls = re.findall(r"(?:pip install|pip_install) ([^|&\n]*)", text.replace("\\\n", " "))
        return [set(re.findall(r"--[a-z-]+(?: :all:| jieba)?", call)) for call in calls]

    ours = [
        call
        for call in flags((ROOT / "run.sh").read_text("utf-8"))
        if call & {"--require-hashes", "--no-deps"}
    ]
    theirs = flags("\n".join(rest for _, rest in instructions()))
    assert len(theirs) == 3
    for call in theirs:
        assert call in ours


def test_the_container_runs_without_privileges_and_is_asked_for_readiness() -> None:
    last_stage = instructions()
    while any(keyword == "FROM" for keyword, _ in last_stage[1:]):
        last_stage = last_stage[1:]
    found = dict(last_stage)
    assert found["USER"].split(":")[0] not in {"0", "root"}
    assert "/readyz" in found["HEALTHCHECK"]
    assert found["ENTRYPOINT"].startswith('["')


def test_compose_starts_a_gateway_and_a_redis_within_bounds() -> None:
    compose = yaml.safe_load((ROOT / "docker/compose.yaml").read_text("utf-8"))
    services = compose["services"]
    assert set(services) == {"gateway", "redis"}
    build = services["gateway"]["build"]
    context = (ROOT / "docker" / build["context"]).resolve()
    assert context == ROOT
    assert (context / build["dockerfile"]).is_file()
    assert services["gateway"]["ports"] == ["127.0.0.1:8080:8080"]
    assert "ports" not in services["redis"]
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
        assert set(service["networks"]) <= set(compose["networks"])


# --- the tree ---------------------------------------------------------------------------------------------


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    place = re.compile(rb"(?<![\w.:/-])/(?:root|home|work|Users)/\w")
    files = [ROOT / name for name in listing.stdout.split("\0") if name]
    assert len(files) > 20
    found = [
        str(path.relative_to(ROOT)) for path in files if path.is_file() and place.search(path.read_bytes())
    ]
    assert found == []
