from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.vector_folder import VectorsError, encode_share, encode_to_folder, join_shares


@pytest.fixture(scope="module")
def encoder(decoder_folder: Path) -> DocumentEncoder:
    return DocumentEncoder.load(decoder_folder, device="cpu")


@pytest.fixture(scope="module")
def rows(models) -> list[tuple[str, str]]:
    return [(f"d{number}", f"{text} {number}") for number, text in enumerate([*models.TEXTS, "", "😀"])]


class Counting:
    """A real encoder that remembers what it was asked."""

    def __init__(self, encoder: DocumentEncoder) -> None:
        self._encoder = encoder
        self.space, self.name, self.settings = encoder.space, encoder.name, encoder.settings
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return self._encoder.encode(texts)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_the_folder_holds_rows_ids_and_a_description(encoder, rows, tmp_path):
    calls: list[tuple[int, int]] = []
    out = encode_to_folder(
        rows, encoder, tmp_path / "v", shard_size=6, progress=lambda done, total: calls.append((done, total))
    )
    vectors = np.load(out / "vectors.npy", mmap_mode="r")
    assert vectors.dtype == np.float16 and vectors.shape == (20, 24)
    assert np.allclose(vectors, encoder.encode([text for _, text in rows]), atol=1e-3)
    lines = (out / "ids.txt").read_text(encoding="utf-8").splitlines()
    assert lines[8] == f"d8\t{hashlib.sha1(rows[8][1].encode()).hexdigest()[:12]}" and len(lines) == 20
    described = json.loads((out / "vectors.json").read_text(encoding="utf-8"))
    assert (described["space"], described["space_name"]) == (encoder.space.id, encoder.name)
    assert (described["dimension"], described["count"], described["dtype"]) == (24, 20, "float16")
    assert described["sha256"] == sha256_of(out / "vectors.npy")
    assert calls == [(6, 20), (12, 20), (18, 20), (20, 20)]
    assert sorted(contents(out)) == ["ids.txt", "manifest.json", "vectors.json", "vectors.npy"]


def test_shares_of_the_shards_are_the_whole(encoder, rows, tmp_path):
    whole, shared = encode_to_folder(rows, encoder, tmp_path / "whole", shard_size=3), tmp_path / "shared"
    asked = []
    for rank in (2, 0, 1, 1):  # in any order; a share that is done is not done again
        counting = Counting(encoder)
        encode_share(rows, counting, shared, rank, 3, shard_size=3)
        asked.append(len(counting.asked))
    assert asked == [6, 8, 6, 0]
    last = Counting(encoder)
    encode_to_folder(rows, last, shared, shard_size=3)
    assert last.asked == [] and contents(shared) == contents(whole)
    encode_share(rows, last, shared, 0, 3, shard_size=3)
    assert last.asked == []


def test_joining_needs_all_shares_and_no_encoder(encoder, rows, tmp_path):
    whole, shared = encode_to_folder(rows, encoder, tmp_path / "whole", shard_size=3), tmp_path / "shared"
    with pytest.raises(VectorsError, match="no shares to join"):
        join_shares(rows, shared)
    encode_share(rows, encoder, shared, 0, 2, shard_size=3)
    with pytest.raises(VectorsError, match=r"3 of 7 shards are not there yet \(1, 3, 5\)"):
        join_shares(rows, shared)
    with pytest.raises(VectorsError, match="shard_size was 3 and is now 4"):
        encode_share(rows, encoder, shared, 1, 2, shard_size=4)
    assert encode_share(rows, encoder, shared, 1, 2, shard_size=3) == 3
    join_shares(iter(rows), shared)
    assert contents(shared) == contents(whole)
    assert join_shares(rows, shared) == shared
    with pytest.raises(VectorsError, match="vectors of other texts"):
        join_shares(rows[:-1], shared)


def test_a_share_of_other_texts_is_refused(encoder, rows, tmp_path):
    encode_share(rows, encoder, tmp_path, 0, 1, shard_size=10)
    with pytest.raises(VectorsError, match="other texts than shard 0"):
        encode_share([("d0", "changed"), *rows[1:]], encoder, tmp_path, 0, 1, shard_size=10)


def test_a_run_killed_in_the_middle_goes_on_where_it_was(encoder, decoder_folder, rows, tmp_path):
    out = tmp_path / "killed"
    script = f"""
import sys
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.vector_folder import encode_to_folder
def texts():
    for number, row in enumerate({rows!r}):
        if number == 15:  # shards of 5: two are written, the third is in hand
            print("ready", flush=True)
            sys.stdin.read()
        yield row
encode_to_folder(texts(), DocumentEncoder.load({str(decoder_folder)!r}, device="cpu"), {str(out)!r}, shard_size=5)
"""
    environment = {"PYTHONPATH": str(Path(sys.modules["suwen"].__file__).parents[1])}
    child = subprocess.Popen(
        [sys.executable, "-c", script.replace(f"{str(out)!r}", f"__import__('pathlib').Path({str(out)!r})")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert child.returncode == -signal.SIGKILL
    finished = len(list((out / "shards").glob("[0-9]*.npy")))
    assert finished == 3 and not (out / "vectors.json").exists()
    (out / "shards" / ".000003-half.npy.1.tmp").write_bytes(b"half a shard")

    counting = Counting(encoder)
    encode_to_folder(iter(rows), counting, out, shard_size=5)
    assert counting.asked == [text for _, text in rows[15:]]
    undisturbed = encode_to_folder(rows, encoder, tmp_path / "whole", shard_size=5)
    assert contents(out) == contents(undisturbed)


def test_a_finished_folder_is_not_encoded_again(encoder, rows, tmp_path):
    out = encode_to_folder(rows, encoder, tmp_path / "v", shard_size=8)
    before = contents(out)
    counting = Counting(encoder)
    assert encode_to_folder(rows, counting, out, shard_size=8) == out
    assert counting.asked == [] and contents(out) == before
    with pytest.raises(VectorsError, match="vectors of other texts"):
        encode_to_folder(rows[:-1], counting, out, shard_size=8)


def interrupted(rows, encoder, out: Path, shard_size: int) -> None:
    def texts():
        yield from rows[: shard_size + 1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_to_folder(texts(), encoder, out, shard_size=shard_size)


def test_other_settings_are_refused_with_the_difference(encoder, bert_folder, rows, tmp_path):
    out = tmp_path / "v"
    interrupted(rows, encoder, out, 5)
    with pytest.raises(VectorsError, match="shard_size was 5 and is now 6"):
        encode_to_folder(rows, encoder, out, shard_size=6)
    with pytest.raises(VectorsError, match=f"space was '{encoder.space.id}' and is now"):
        encode_to_folder(rows, DocumentEncoder.load(bert_folder, device="cpu"), out, shard_size=5)


def test_other_texts_are_refused_by_shard(encoder, rows, tmp_path):
    out = tmp_path / "v"
    interrupted(rows, encoder, out, 5)
    with pytest.raises(VectorsError, match="other texts than shard 0"):
        encode_to_folder([("d0", "changed"), *rows[1:]], encoder, out, shard_size=5)


@pytest.mark.parametrize("bad", ["", "a\tb", "a\nb"])
def test_an_id_that_would_break_a_line_is_refused(encoder, bad, tmp_path):
    with pytest.raises(VectorsError, match="id"):
        encode_to_folder([(bad, "text")], encoder, tmp_path / "v")


def test_no_texts_give_an_empty_array(encoder, tmp_path):
    out = encode_to_folder([], encoder, tmp_path / "v")
    assert np.load(out / "vectors.npy").shape == (0, 24) and (out / "ids.txt").read_text() == ""
    with pytest.raises(VectorsError, match="at least 1"):
        encode_to_folder([], encoder, tmp_path / "w", shard_size=0)


def test_several_processes_give_the_same_folder(encoder, rows, tmp_path):
    alone = encode_to_folder(rows, encoder, tmp_path / "one", shard_size=7)
    calls: list[int] = []
    several = encode_to_folder(
        rows, encoder, tmp_path / "two", shard_size=7, workers=2, progress=lambda done, total: calls.append(done)
    )
    assert calls[-1] == 20 and contents(several) == contents(alone)
