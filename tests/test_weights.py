"""Weights: random checkpoints, strict loading, and fetching from a hub that is played by a local server."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from engine import cli
from engine.chattts import fetch, layout, random_weights, weights
from engine.chattts.check import random_hidden, stream_errors
from engine.chattts.vocoder import Vocoder
from engine.chattts.weights import Checkpoint, WeightsError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("weights") / "tiny"
    random_weights.write(root, size="tiny", seed=1)
    return root


@pytest.fixture(scope="module")
def checkpoint(whole: Path) -> Checkpoint:
    return weights.load(whole)


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def fault(root: Path) -> str:
    """Of loading the folder, which must change nothing in it."""
    before = contents(root)
    with pytest.raises(WeightsError) as caught:
        weights.load(root)
    assert contents(root) == before
    return str(caught.value)


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def alter(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    # Cloned: a mapped file would be written over.
    tensors = {name: value.clone() for name, value in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)


# --- random checkpoints -----------------------------------------------------------------------------------


def test_a_tiny_checkpoint_is_small_and_has_every_file(whole: Path) -> None:
    files = contents(whole)
    assert set(files) == {str(file) for file in layout.FILES}
    assert sum(map(len, files.values())) < 2_000_000


def test_a_seed_gives_the_same_files_and_another_seed_others(whole: Path, tmp_path: Path) -> None:
    random_weights.write(tmp_path / "same", size="tiny", seed=1)
    random_weights.write(tmp_path / "other", size="tiny", seed=2)
    assert contents(tmp_path / "same") == contents(whole)
    assert weights.load(tmp_path / "same").fingerprint == weights.load(whole).fingerprint
    assert weights.load(tmp_path / "other").fingerprint != weights.load(whole).fingerprint


def test_a_random_checkpoint_never_replaces_a_file(tmp_path: Path) -> None:
    kept = tmp_path / layout.GPT
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"mine")
    with pytest.raises(WeightsError, match="there already"):
        random_weights.write(tmp_path, size="tiny", seed=1)
    assert contents(tmp_path) == {str(layout.GPT): b"mine"}


def test_the_sound_of_random_hidden_states_is_audible_and_does_not_clip(checkpoint: Checkpoint) -> None:
    vocoder = Vocoder.load(checkpoint.decoder, checkpoint.vocos)
    with torch.inference_mode():
        samples = vocoder.decode(random_hidden(checkpoint, 120))
    assert samples.shape == (512 * 120 - 256,)
    assert 0.05 < float(samples.square().mean().sqrt()) < 0.3
    assert float(samples.abs().max()) < 1.0


def test_the_context_of_a_step_reaches_far_and_streaming_is_exact(checkpoint: Checkpoint) -> None:
    errors = stream_errors(checkpoint, random_hidden(checkpoint, 130))
    assert errors[52] < 1e-4
    assert errors[0] > 1e-2
    assert errors[8] > 1e-3, "the layers would do nothing, and tests of their context prove nothing"


def test_the_end_code_is_never_among_the_likeliest(checkpoint: Checkpoint) -> None:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(500, checkpoint.gpt_shape.hidden, generator=generator)
    for book in range(layout.CODEBOOKS):
        name = f"head_code.{book}.parametrizations.weight"
        length, direction = (checkpoint.embed[f"{name}.original{index}"] for index in (0, 1))
        logits = hidden @ (length * direction / direction.norm(dim=1, keepdim=True)).T
        assert 1.5 < float(logits.std()) < 4
        ranks = (logits > logits[:, -1:]).sum(1)
        assert int(ranks.min()) > 100


def test_the_released_shapes_are_those_of_the_release() -> None:
    shapes = layout.shapes(layout.RELEASED)
    counts = {file.name: len(names) for file, names in shapes.items() if file != layout.GPT}
    assert counts == {
        "Embed.safetensors": 15,
        "Decoder.safetensors": 115,
        "DVAE.safetensors": 242,
        "Vocos.safetensors": 83,
    }
    sizes = {
        file: sum(torch.Size(shape).numel() for shape in names.values()) for file, names in shapes.items()
    }
    assert [round(sizes[file] / 1e6, 1) for file in layout.TENSOR_FILES] == [36.4, 213.4, 25.9, 15.1, 13.6]
    assert len(layout.SPECIAL_TOKENS) == len(set(layout.SPECIAL_TOKENS)) == 50
    assert layout.SPECIAL_TOKENS.index("[speed_9]") == 49
    assert layout.SPECIAL_TOKENS.index("[spk_emb]") == 15


def test_the_tokenizer_splits_chinese_lowers_latin_and_carries_the_trap_of_the_release(whole: Path) -> None:
    tokenizer = Tokenizer.from_file(str(whole / layout.TOKENIZER))
    assert len(tokenizer.encode("a").ids) == 256
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoded = tokenizer.encode("[Stts][spk_emb]今天Hello WORLDwhy[uv_break][Ptts]", add_special_tokens=False)
    assert encoded.tokens == [
        *("[Stts]", "[spk_emb]", "今", "天", "hello", "world", "##w", "##h", "##y", "[uv_break]", "[Ptts]")
    ]
    base = tokenizer.token_to_id("[Sasr]")
    assert base is not None
    assert [tokenizer.token_to_id(token) for token in layout.SPECIAL_TOKENS] == list(range(base, base + 50))


# --- strict loading ---------------------------------------------------------------------------------------


def test_the_loaded_tensors_are_those_of_the_files(whole: Path, checkpoint: Checkpoint) -> None:
    for file, loaded in (
        (layout.EMBED, checkpoint.embed),
        (layout.GPT, checkpoint.gpt),
        (layout.DECODER, checkpoint.decoder),
        (layout.DVAE, checkpoint.dvae),
        (layout.VOCOS, checkpoint.vocos),
    ):
        stored = load_file(whole / file)
        assert set(stored) - set(loaded) == ({layout.UNUSED} if file == layout.GPT else set())
        assert all(torch.equal(loaded[name], stored[name]) for name in loaded)
    assert checkpoint.gpt_shape.hidden == checkpoint.embed["emb_text.weight"].shape[1]


def test_a_missing_tensor_is_named(root: Path) -> None:
    alter(root / layout.DECODER, lambda tensors: tensors.pop("decoder.decoder_block.3.weight"))
    assert fault(root) == (
        "asset/Decoder.safetensors: decoder.decoder_block.3.weight: expected shape [16]; it is missing"
    )


def test_a_missing_tensor_that_a_size_is_read_from_is_named(root: Path) -> None:
    alter(root / layout.EMBED, lambda tensors: tensors.pop("emb_text.weight"))
    assert fault(root) == "asset/Embed.safetensors: emb_text.weight: expected 2 axes; it is missing"


def test_an_extra_tensor_is_named(root: Path) -> None:
    alter(root / layout.VOCOS, lambda tensors: tensors.update(backdoor=torch.zeros(2, 3)))
    assert fault(root) == (
        "asset/Vocos.safetensors: backdoor: found shape [2, 3], expected no tensor of this name"
    )


def test_a_wrong_shape_is_named_with_the_expected_one(root: Path) -> None:
    alter(root / layout.EMBED, lambda tensors: tensors.update({"emb_code.2.weight": torch.zeros(625, 32)}))
    assert fault(root) == (
        "asset/Embed.safetensors: emb_code.2.weight: expected shape [626, 32], found [625, 32]"
    )


def test_files_of_different_checkpoints_do_not_go_together(root: Path) -> None:
    config = json.loads((root / layout.GPT_CONFIG).read_text())
    (root / layout.GPT_CONFIG).write_text(json.dumps(config | {"hidden_size": 64}))
    assert "expected shape [457, 64], found [457, 32]" in fault(root)


def test_another_dtype_is_refused(root: Path) -> None:
    alter(root / layout.DVAE, lambda tensors: tensors.update(coef=tensors["coef"].half()))
    assert fault(root) == "asset/DVAE.safetensors: coef: expected float32 (F32), found F16"


def test_values_that_are_no_numbers_are_refused(root: Path) -> None:
    alter(root / layout.GPT, lambda tensors: tensors["norm.weight"].__setitem__(5, float("nan")))
    assert "asset/gpt/model.safetensors: norm.weight" in fault(root)


@pytest.mark.parametrize("keep", [0, 4, 300, -1])
@pytest.mark.parametrize("file", layout.TENSOR_FILES, ids=lambda file: file.name)
def test_a_truncated_file_is_refused(root: Path, file: PurePosixPath, keep: int) -> None:
    data = (root / file).read_bytes()
    (root / file).write_bytes(data[:keep])
    assert fault(root).startswith(f"{file}: ")


def test_a_header_that_claims_gigabytes_is_refused(root: Path) -> None:
    (root / layout.VOCOS).write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
    assert fault(root).startswith(f"{layout.VOCOS}: ")


class Armed:
    """Unpickling this would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return (Path.touch, (self.path,))  # type: ignore[return-value]


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "bare"])
def test_a_pickle_is_refused_unread(root: Path, tmp_path: Path, *, zipped: bool) -> None:
    trap = tmp_path / "sprung"
    torch.save(Armed(trap), root / layout.DVAE, _use_new_zipfile_serialization=zipped)
    assert zipfile.is_zipfile(root / layout.DVAE) == zipped
    assert fault(root) == "asset/DVAE.safetensors: this is a pickle (a PyTorch .pt file), which is never read"
    assert not trap.exists()


def test_a_pickle_beside_a_missing_file_is_not_taken(root: Path) -> None:
    (root / layout.DECODER).rename(root / "asset/Decoder.pt")
    assert "Decoder.pt is pickled, which is never read" in fault(root)


@pytest.mark.parametrize("file", layout.READ_FILES, ids=lambda file: file.name)
def test_a_missing_file_is_named(root: Path, file: PurePosixPath) -> None:
    (root / file).unlink()
    assert fault(root).startswith(f"{file}: the file is missing")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such folder"):
        weights.load(tmp_path / "none")


def test_a_missing_special_token_is_named(root: Path) -> None:
    text = (root / layout.TOKENIZER).read_text().replace("[spk_emb]", "[speaker]")
    (root / layout.TOKENIZER).write_text(text)
    assert fault(root).endswith("tokenizer.json: the special token [spk_emb] is missing")


def test_a_token_without_an_embedding_is_refused(root: Path) -> None:
    data = json.loads((root / layout.TOKENIZER).read_text())
    data["added_tokens"][-1]["id"] = 457
    (root / layout.TOKENIZER).write_text(json.dumps(data))
    assert "outside 0 to 456" in fault(root)


@pytest.mark.parametrize(
    "change",
    [
        {"num_attention_heads": 5},
        {"num_attention_heads": 0},
        {"num_key_value_heads": 3},
        {"hidden_size": "32"},
        {"hidden_act": "gelu"},
        {"rope_scaling": {"factor": 2.0}},
        {"attention_bias": True},
        {"rms_norm_eps": 0.0},
    ],
    ids=str,
)
def test_a_config_that_is_not_chattts_is_refused(root: Path, change: dict[str, object]) -> None:
    config = json.loads((root / layout.GPT_CONFIG).read_text())
    (root / layout.GPT_CONFIG).write_text(json.dumps(config | change))
    assert fault(root).startswith("asset/gpt/config.json: ")


@pytest.mark.parametrize("file", [layout.GPT_CONFIG, layout.TOKENIZER], ids=lambda file: file.name)
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe{}"], ids=repr)
def test_broken_json_is_refused(root: Path, file: PurePosixPath, data: bytes) -> None:
    (root / file).write_bytes(data)
    assert fault(root).startswith(f"{file}: ")


# --- the commands -----------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_check_prints_layout_shapes_and_the_fingerprint(whole: Path, checkpoint: Checkpoint) -> None:
    code, out, err = run("weights", "check", whole, "--no-speak")
    assert (code, err) == (0, "")
    assert "  emb_code.3.weight [626, 32]" in out
    assert checkpoint.fingerprint in out
    assert out.count("not the release's") == len(layout.READ_FILES)
    assert out.endswith("\nok\n")


def test_check_prints_the_error_of_streaming(whole: Path) -> None:
    code, out, _ = run("weights", "check", whole, "--no-speak", "--stream-error")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    table = {int(line[0]): float(line[1]) for line in lines if len(line) == 2 and line[0].isdecimal()}
    assert (min(table), max(table)) == (0, 52)
    assert table[52] < 1e-4 < table[0]


def test_check_ends_with_a_plain_fault(root: Path) -> None:
    (root / layout.VOCOS).unlink()
    code, out, err = run("weights", "check", root)
    assert code == cli.FAULT
    assert err.startswith("fault: asset/Vocos.safetensors: the file is missing")
    assert "ok" not in out.split()


def test_random_writes_what_check_takes(tmp_path: Path) -> None:
    assert run("weights", "random", tmp_path / "new", "--seed", "7")[0] == 0
    assert run("weights", "check", tmp_path / "new", "--no-speak")[0] == 0
    code, _, err = run("weights", "random", tmp_path / "new", "--seed", "7")
    assert code == cli.FAULT
    assert "nothing was written" in err


# --- fetching ---------------------------------------------------------------------------------------------


@dataclass
class Hub:
    """What a hub does for one repository: HEAD and GET of `/REPOSITORY/resolve/REVISION/FILE`."""

    files: dict[str, bytes]
    repository: str = "2Noise/ChatTTS"
    revision: str = "main"
    url: str = ""
    got: list[str] = field(default_factory=list)
    """Files that were downloaded."""
    authorizations: list[str] = field(default_factory=list)

    def handler(hub) -> type[BaseHTTPRequestHandler]:  # noqa: N805  (`self` is the handler's)
        class Handler(BaseHTTPRequestHandler):
            def answer(self, *, body: bool) -> None:
                hub.authorizations += filter(None, [self.headers.get("Authorization")])
                prefix = f"/{hub.repository}/resolve/"
                revision, _, name = self.path.removeprefix(prefix).partition("/")
                data = hub.files.get(name) if self.path.startswith(prefix) else None
                if data is None or revision not in (hub.revision, COMMIT):
                    self.send_response(404)
                    self.send_header("X-Error-Code", "EntryNotFound")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(200)
                self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if body:
                    hub.got.append(name)
                    self.wfile.write(data)

            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@pytest.fixture
def hub(whole: Path) -> Iterator[Hub]:
    hub = Hub(contents(whole))
    server = ThreadingHTTPServer(("127.0.0.1", 0), hub.handler())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def digests_of(hub: Hub) -> dict[PurePosixPath, str]:
    return {PurePosixPath(name): hashlib.sha256(data).hexdigest() for name, data in hub.files.items()}


def test_fetch_verifies_every_file_and_takes_none_twice(hub: Hub, tmp_path: Path, whole: Path) -> None:
    lines: list[str] = []
    digests = digests_of(hub)
    fetch.fetch(tmp_path, endpoint=hub.url, digests=digests, report=lines.append)
    assert weights.load(tmp_path).fingerprint == weights.load(whole).fingerprint
    assert len([line for line in lines if line.endswith("fetched, digest right")]) == 9
    assert sorted(hub.got) == sorted(hub.files)
    fetch.fetch(tmp_path, endpoint=hub.url, digests=digests)
    assert len(hub.got) == 9
    assert hub.authorizations == []


def test_fetch_takes_the_hub_of_the_environment(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.repository, hub.revision = "somebody/mirror", "v1"
    digests = {layout.GPT_CONFIG: digests_of(hub)[layout.GPT_CONFIG]}
    fetch.fetch(tmp_path, repository="somebody/mirror", revision="v1", digests=digests)
    assert hub.got == [str(layout.GPT_CONFIG)]


def test_a_wrong_digest_is_refused_and_put_in_no_place(hub: Hub, tmp_path: Path) -> None:
    digests = digests_of(hub)
    hub.files[str(layout.VOCOS)] += b"\0"
    with pytest.raises(fetch.FetchError, match=r"Vocos\.safetensors: expected SHA-256"):
        fetch.fetch(tmp_path, endpoint=hub.url, digests={layout.VOCOS: digests[layout.VOCOS]})
    assert not (tmp_path / layout.VOCOS).exists()


def test_a_file_of_the_users_own_is_left_alone(hub: Hub, tmp_path: Path) -> None:
    mine = tmp_path / layout.VOCOS
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    with pytest.raises(fetch.FetchError, match="left as it is"):
        fetch.fetch(tmp_path, endpoint=hub.url, digests={layout.VOCOS: digests_of(hub)[layout.VOCOS]})
    assert mine.read_bytes() == b"mine"
    assert hub.got == []


def test_the_command_says_the_licence_and_holds_files_against_the_release(hub: Hub, tmp_path: Path) -> None:
    code, _, err = run("weights", "fetch", tmp_path, "--endpoint", hub.url)
    assert "CC BY-NC 4.0" in err
    assert code == cli.FAULT
    assert f"expected SHA-256 {fetch.RELEASED[layout.DECODER]}" in err


def test_no_hub_is_a_plain_fault(tmp_path: Path) -> None:
    code, _, err = run("weights", "fetch", tmp_path, "--endpoint", "http://127.0.0.1:9")
    assert code == cli.FAULT
    assert "HF_ENDPOINT" in err
    assert "Traceback" not in err


def test_a_file_that_the_hub_lacks_is_a_plain_fault(hub: Hub, tmp_path: Path) -> None:
    hub.files.clear()
    code, _, err = run("weights", "fetch", tmp_path, "--endpoint", hub.url)
    assert code == cli.FAULT
    assert "asset/Decoder.safetensors" in err
