"""The import rule: the gateway takes of the engine only `engine.wire` and `engine.ring`, and never torch.

It is held twice: by importing everything in a fresh interpreter, and by reading the source, which also sees
imports inside functions.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"torch", "onnxruntime"}
SHARED = {"engine", "engine.wire", "engine.ring"}

IMPORT_EACH = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
brought = {}
for name in sys.argv[2:]:
    before = set(sys.modules)
    importlib.import_module(name)
    brought[name] = sorted(set(sys.modules) - before)
print(json.dumps(brought))
"""


def modules(package: str) -> dict[str, Path]:
    """Module name to file, of a package of ours and all below it."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def brought_by(*names: str) -> dict[str, list[str]]:
    """What each of these modules adds to `sys.modules` when they are imported in this order, from nothing."""
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, str(ROOT), *names],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    brought: dict[str, list[str]] = json.loads(run.stdout)
    return brought


def imported_names(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Every module that `source` may import, wherever in it, as absolute names."""
    home = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=target, names=names, level=level):
                base = home[: len(home) - level + 1] if level else []
                package = ".".join([*base, *([target] if target else [])])
                yield package
                yield from (f"{package}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module"), args=[ast.Constant(str(name)), *_]
            ):
                yield name
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(str(name)), *_]):
                yield name


def is_forbidden_in_gateway(name: str) -> bool:
    """`engine.wire.Open` is a name inside an allowed module."""
    parts = name.split(".")
    if parts[0] == "engine":
        return ".".join(parts[:2]) not in SHARED
    return parts[0] in HEAVY


def static_imports(package: str) -> dict[str, set[str]]:
    """Module to the names that it may import."""
    return {
        name: set(imported_names(path.read_text("utf-8"), name, is_package=path.name == "__init__.py"))
        for name, path in modules(package).items()
    }


def test_importing_the_whole_gateway_loads_no_model_code() -> None:
    names = [name for name in modules("gateway") if not name.endswith("__main__")]
    assert "gateway.messages" in names
    faults = {
        importer: [name for name in added if is_forbidden_in_gateway(name)]
        for importer, added in brought_by(*names).items()
    }
    assert {importer: names for importer, names in faults.items() if names} == {}


def test_no_gateway_source_names_model_code_even_lazily() -> None:
    faults = {
        importer: sorted(filter(is_forbidden_in_gateway, names))
        for importer, names in static_imports("gateway").items()
    }
    assert {importer: names for importer, names in faults.items() if names} == {}


@pytest.mark.parametrize("module", ["engine.wire", "engine.ring"])
def test_what_both_processes_share_needs_only_msgspec(module: str) -> None:
    allowed = sys.stdlib_module_names | {"msgspec", "engine"}
    brought = brought_by(module)[module]
    assert module in brought
    # msgspec takes typing_extensions where it happens to be installed.
    assert {name for name in brought if name.split(".")[0] not in allowed | {"typing_extensions"}} == set()
    assert {name for name in brought if name.split(".")[0] == "engine"} <= SHARED
    static = static_imports("engine")[module]
    assert {name for name in static if name.split(".")[0] not in allowed} == set()
    assert {name for name in static if is_forbidden_in_gateway(name)} == set()


def test_the_package_engine_itself_imports_nothing() -> None:
    assert static_imports("engine")["engine"] == set()


def test_the_engine_knows_neither_the_gateway_nor_asyncio() -> None:
    faults = {
        importer: sorted(name for name in names if name.split(".")[0] in {"gateway", "asyncio", "web_demo"})
        for importer, names in static_imports("engine").items()
    }
    assert {importer: names for importer, names in faults.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch", {"torch"}),
        ("import os, torch.nn as nn", {"torch.nn"}),
        (
            "def f():\n    from onnxruntime import InferenceSession",
            {"onnxruntime", "onnxruntime.InferenceSession"},
        ),
        ("from engine import loop, wire", {"engine.loop"}),
        ("from engine.model import SpeechModel", {"engine.model", "engine.model.SpeechModel"}),
        ("from ..engine import scheduler", {"engine.scheduler"}),
        ("import importlib\nimportlib.import_module('engine.embedded')", {"engine.embedded"}),
        ("__import__('torch')", {"torch"}),
        (
            "import engine\nfrom engine.wire import Open\nfrom engine.ring import Ring\nimport torchless",
            set(),
        ),
        ("from . import errors\nfrom .wire import x", set()),
    ],
)
def test_the_static_check_sees_what_it_should(source: str, found: set[str]) -> None:
    names = imported_names(source, "gateway.http")
    assert set(filter(is_forbidden_in_gateway, names)) == found
