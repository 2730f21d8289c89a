"""Download the released weights, when the operator asks for it and never else: `sayflow weights fetch`.

The files come into a folder beside their place, are held against the digests, and only then moved. Nothing
that was there before is replaced or deleted. Imports `huggingface_hub` inside `fetch`, as it is optional.
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from engine.chattts import layout
from engine.errors import ModelMissing

REPOSITORY: Final = "2Noise/ChatTTS"
REVISION: Final = "main"
LICENCE: Final = (
    "The released ChatTTS weights are CC BY-NC 4.0: with attribution, and never for commercial use."
)
HUB: Final = "https://huggingface.co"
_HINT: Final = (
    "Where no hub is reachable, set HF_ENDPOINT to a mirror, or copy the files of the release into the folder"
    " and run `sayflow weights check`."
)
_REACH_S: Final = 10.0
STAGING: Final = ".fetch"
"""Folder inside the target for files that are not whole yet; a later run goes on with them."""

RELEASED: Final[Mapping[PurePosixPath, str]] = {
    layout.DECODER: "77aa55e0a977949c4733df3c6f876fa85860d3298cba63295a7bc6901729d4e0",
    layout.DVAE: "1d0b044a8368c0513100a2eca98456b289e6be6a18b7a63be1bcaa315ea874d9",
    layout.EMBED: "2ff0be7134934155741b643b74e32fb6bf3eec41257984459b2ed60cdb4c48b0",
    layout.VOCOS: "07e5561491cce41f7f90cfdb94b2ff263ff5742c3d89339db99b17ad82cc3f44",
    layout.GPT_CONFIG: "0aaa1ecd96c49ad4f473459eb1982fa7ad79fa5de08cde2781bf6ad1f9a0c236",
    layout.GPT: "cd0806fd971f52f6a22c923ec64982b305e817bcc41ca83417fcf9141b984a0f",
    layout.SPECIAL_TOKENS_MAP: "bd0ac9d9bb1657996b5c5fbcaa7d80f8de530d01a283da97f89deae5b1b8d011",
    layout.TOKENIZER_CONFIG: "43e9d658b554fa5ee8d8e1d763349323bfef1ed7a89c0794220ab8861387d421",
    layout.TOKENIZER: "843838a64e121e23e774cc75874c6fe862198d9f7dd43747914633a8fd89c20e",
}
"""SHA-256 of the released files, as ChatTTS 0.2.5 publishes them in `res/sha256_map.json`."""


class FetchError(ModelMissing):
    """The weights were not fetched; the message says what to do."""


def fetch(
    root: Path,
    *,
    repository: str = REPOSITORY,
    revision: str = REVISION,
    endpoint: str | None = None,
    digests: Mapping[PurePosixPath, str] = RELEASED,
    report: Callable[[str], None] = lambda line: None,
) -> None:
    """Fetch what is missing. `endpoint`: of the hub; else `HF_ENDPOINT`, else the library's own.

    A file of `digests` that is there already is verified and kept. Raises `FetchError`.
    """
    endpoint = endpoint or os.environ.get("HF_ENDPOINT")
    reached = False
    for file, digest in digests.items():
        if (root / file).exists():
            _verify(root / file, file, digest, "it was there already, and is left as it is")
            report(f"{file}: there already, digest right")
            continue
        if not reached:
            _reach(endpoint or HUB)
            reached = True
        got = _download(root / STAGING, file, repository, revision, endpoint)
        _verify(got, file, digest, f"the download is left at {got}")
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        # On one file system, and nothing is there: checked above.
        got.rename(root / file)
        report(f"{file}: fetched, digest right")


def _reach(endpoint: str) -> None:
    """The library tries an unreachable hub for 20 s a file; one request tells."""
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_REACH_S).close()
    except urllib.error.HTTPError as error:
        error.close()  # an answer of any kind: somebody is there
    except (OSError, ValueError) as error:
        raise FetchError(f"no hub at {endpoint}: {error}. {_HINT}") from error


def _download(
    staging: Path, file: PurePosixPath, repository: str, revision: str, endpoint: str | None
) -> Path:
    """One file, with the library's own progress bar, and without the user's token: the release is public."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import EntryNotFoundError
    except ImportError as error:
        raise FetchError(
            'the weights are fetched with huggingface_hub: pip install "sayflow[torch]"'
        ) from error
    where = f"{repository} at {revision}, from {endpoint or HUB}"
    try:
        got = hf_hub_download(
            repository, str(file), revision=revision, local_dir=staging, endpoint=endpoint, token=False
        )
    except (OSError, ValueError, EntryNotFoundError) as error:
        # Its messages run over several lines, the first of which says what happened.
        reason = next(
            (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
        )
        raise FetchError(f"{file}: not to be had of {where}: {reason} {_HINT}") from error
    return Path(got)


def _verify(path: Path, file: PurePosixPath, expected: str, kept: str) -> None:
    with path.open("rb") as source:
        found = hashlib.file_digest(source, "sha256").hexdigest()
    if found != expected:
        raise FetchError(f"{file}: expected SHA-256 {expected}, found {found}; {kept}")
