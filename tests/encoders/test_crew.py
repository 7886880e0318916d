"""Crews of processes: a worker that dies is replaced, and what it had in hand is encoded by others."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from suwen.encoders.crew import Crew, Worker, encode_by
from suwen.encoders.document import DescribedEncoder, DocumentEncoder
from suwen.encoders.shards import Shard, VectorsError
from suwen.encoders.vector_folder import encode_to_folder


@pytest.fixture(scope="module")
def encoder(decoder_folder: Path) -> DocumentEncoder:
    return DocumentEncoder.load(decoder_folder, device="cpu")


@pytest.fixture(scope="module")
def rows(models) -> list[tuple[str, str]]:
    return [(f"d{number}", f"{text} {number}") for number, text in enumerate(models.TEXTS)]


def killing(rows: list[tuple[str, str]], after: int, when: Path) -> Iterator[tuple[str, str]]:
    """Rows; before one of them, once a shard is written, every worker there is at that moment is killed."""
    for number, row in enumerate(rows):
        if number == after:
            while not list(when.glob("[0-9]*.npy")):
                multiprocessing.active_children()[0].join(0.05)
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)
        yield row


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_workers_that_die_are_replaced_and_nothing_is_missing(encoder, rows, tmp_path):
    alone, out = encode_to_folder(rows, encoder, tmp_path / "alone", shard_size=2), tmp_path / "crew"
    # Four shards are in hand at once: the sixth is only read when one of them is done.
    encode_to_folder(killing(rows, 10, out / "shards"), encoder, out, shard_size=2, workers=2)
    assert contents(out) == contents(alone)


def test_a_worker_that_fails_the_probe_says_so_and_encodes_nothing(adapter_pair, base_folder, rows, tmp_path):
    from suwen.encoders.pair import Pair
    from suwen.encoders.who_encodes import describe_document_encoder

    described = describe_document_encoder(Pair.load(adapter_pair), base=str(base_folder))
    assert described.settings.probe == str(adapter_pair)
    other = tmp_path / "other"
    other.mkdir()
    for file in adapter_pair.glob("*"):
        if file.is_file():
            (other / file.name).write_bytes(file.read_bytes())
    np.save(other / "probe.npy", -np.load(adapter_pair / "probe.npy"))
    wrong = described._replace(settings=described.settings._replace(probe=str(other)))
    with pytest.raises(VectorsError, match=r"gave up: .*least cosine"):
        encode_to_folder(rows, wrong, tmp_path / "wrong", shard_size=2)
    assert not list((tmp_path / "wrong" / "shards").iterdir())
    encode_to_folder(rows, described, tmp_path / "right", shard_size=9)
    assert np.load(tmp_path / "right" / "vectors.npy").shape[0] == len(rows)


def test_a_model_that_is_not_there_is_said_at_once(encoder, rows, tmp_path):
    gone = DescribedEncoder(encoder.space, encoder.name, encoder.settings._replace(path=str(tmp_path / "gone")))
    with pytest.raises(VectorsError, match="gave up"):
        encode_to_folder(rows, gone, tmp_path / "v", shard_size=2, workers=2)


class Died(Exception):
    pass


class Scripted(Crew):
    """Workers without an encoder, whose deaths are written down; those of ``never`` never start."""

    lost = (Died,)

    def __init__(self, size: int, deadly: set[int] = frozenset(), starts: int = 0, never: set[int] = frozenset()):
        self.size, self.deadly, self.starts, self.never = size, deadly, starts, never
        self.hired, self.ended, self.closed, self.done = 0, 0, False, []

    def hire(self, number, encoder):
        self.hired += 1
        return ScriptedWorker(self, number)

    def close(self):
        self.closed = True


class ScriptedWorker(Worker):
    def __init__(self, crew, number):
        self.crew, self.number, self.dead = crew, number, False

    def _answer(self, dies: bool) -> Future:
        future = Future()
        if dies:
            future.set_exception(Died())
        else:
            future.set_result(1)
        return future

    def start(self):
        if self.number in self.crew.never:
            return Future()
        self.crew.starts -= 1
        return self._answer(self.crew.starts >= 0)

    def encode(self, shard, folder):
        self.dead = self.dead or shard.number in self.crew.deadly
        if not self.dead:
            self.crew.done.append(shard.number)
        return self._answer(self.dead)

    def end(self):
        self.crew.ended += 1


def numbered(count: int) -> Iterator[Shard]:
    return (Shard(number, [str(number)], ["text"], "source") for number in range(count))


def test_a_shard_that_kills_three_workers_is_named(tmp_path):
    crew = Scripted(2, deadly={4})
    with pytest.raises(VectorsError, match="3 workers died over shard 4"):
        list(encode_by(crew, numbered(9), None, tmp_path))
    assert crew.hired == crew.ended == 4 and crew.closed


def test_workers_that_never_get_ready_end_the_run(tmp_path):
    crew = Scripted(1, starts=3)
    with pytest.raises(VectorsError, match="3 workers in a row died while they loaded"):
        list(encode_by(crew, numbered(9), None, tmp_path))
    again = Scripted(1, starts=2)
    assert list(encode_by(again, numbered(9), None, tmp_path)) == [1] * 9 and again.hired == 3


def test_a_worker_that_waits_for_a_machine_holds_nothing_up(tmp_path):
    crew = Scripted(3, never={0, 2})
    assert sum(encode_by(crew, numbered(20), None, tmp_path)) == 20
    assert sorted(crew.done) == list(range(20)) and crew.ended == 3


def test_where_all_is_done_nobody_is_hired(tmp_path):
    crew = Scripted(2)
    assert list(encode_by(crew, numbered(0), None, tmp_path)) == [] and crew.hired == 0
