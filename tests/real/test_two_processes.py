"""One index, two processes: a reader beside a writer, a second writer, a backup of a live index.

Run as a program this file is the other process: ``test_two_processes.py write FOLDER SEED`` changes the index until its
standard input ends; ``hold FOLDER`` opens it for writing and waits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import suwen
from in_memory import folder_in_memory
from suwen.corpora.records import Document, Passage
from suwen.index import upkeep
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import EncodedDocument, IndexLocked
from suwen.index.snapshot import EmbeddedSnapshot

DIMENSION, GROUP, GROUPS = 16, 3, 6


def group(name: str, version: int) -> list[EncodedDocument]:
    """Documents that are added, replaced and deleted together, all of one version."""
    rng = np.random.default_rng(version)
    documents = []
    for number in range(GROUP):
        id_, text = f"{name}-{number}", f"分组 {name} 第{version}版"
        vector = rng.standard_normal((1, DIMENSION)).astype(np.float32)
        passage = Passage(id_, 0, text, 0, len(text))
        documents.append(EncodedDocument(Document(id_, text, "", {"version": version}), [passage], vector, "static"))
    return documents


def write(folder: Path, seed: int) -> None:
    """Add, replace, delete and compact until told to stop; then leave every group there once."""
    import threading

    engine = EmbeddedEngine.open(folder, write=True, seal=8)
    rng = np.random.default_rng(seed)
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
    version = 1000
    print("ready", flush=True)
    while not done.is_set():
        version += 1
        name = f"g{rng.integers(0, GROUPS)}"
        chosen = rng.random()
        if chosen < 0.75:
            engine.add(group(name, version))
        elif chosen < 0.9:
            engine.delete([f"{name}-{number}" for number in range(GROUP)])
        else:
            engine.compact()
    for number in range(GROUPS):
        engine.add(group(f"g{number}", version + 1 + number))
    engine.close()
    print("versions", version - 1000, flush=True)


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The other process, ready to work; it is told to stop at the end and must have ended well."""
    # This very file is the other process: it imports what the tests' own process has from tests/conftest.py.
    places = (Path(suwen.__file__).parents[1], Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))}
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n", process.communicate()[1]
        yield process
        said, complained = process.communicate(timeout=120)
        assert process.returncode == 0, complained
        process.said = said  # type: ignore[attr-defined]
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where there is such a folder: two processes that wait for one disk hardly meet."""
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    engine = EmbeddedEngine.create(tmp_path / "index", space="sp-test", dimension=DIMENSION, seal=8)
    for number in range(GROUPS):
        engine.add(group(f"g{number}", number))
    engine.close()
    return tmp_path / "index"


def groups_of(view: EmbeddedSnapshot, rows: list[int]) -> dict[str, int]:
    """The version of every group among these rows; asserts that a group is there whole and in one version."""
    found: dict[str, list[tuple[str, int]]] = {}
    for item in view.fetch(rows):
        name = item.passage.document_id.split("-")[0]
        found.setdefault(name, []).append((item.passage.document_id, int(str(item.metadata["version"]))))
    for name, members in found.items():
        assert len(members) == len({id_ for id_, _ in members}) == GROUP, f"{name} is there in part: {members}"
        assert len({version for _, version in members}) == 1, f"{name} is there in two versions: {members}"
    return {name: members[0][1] for name, members in found.items()}


def test_a_reader_sees_whole_moments_while_another_process_writes(folder: Path) -> None:
    reader = EmbeddedEngine.open(folder)
    rng = np.random.default_rng(1)
    moments: list[dict[str, int]] = []
    with child("write", str(folder), "7") as process:
        while len({tuple(sorted(moment.items())) for moment in moments}) < 25:
            assert process.poll() is None, "the writer has ended"
            with reader.snapshot() as view:
                query = rng.standard_normal(DIMENSION).astype(np.float32)
                dense = groups_of(view, view.dense(query, 999).rows.tolist())
                words = groups_of(view, view.lexical("分组", 999).rows.tolist())
                again = groups_of(view, view.dense(query, 999).rows.tolist())
            assert dense == words == again, "one moment, three answers"
            moments.append(dense)
            reader.stats()
            if len(moments) % 50 == 49:
                fresh = EmbeddedEngine.open(folder)
                fresh.stats()
                with fresh.snapshot() as view:
                    groups_of(view, view.dense(query, 999).rows.tolist())
                fresh.close()
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    for before, after in pairwise(moments):
        assert all(after[name] >= version for name, version in before.items() if name in after), "time went back"
    with reader.snapshot() as view:
        assert len(groups_of(view, view.dense(np.ones(DIMENSION, np.float32), 999).rows.tolist())) == GROUPS
        assert len(groups_of(view, view.lexical("分组", 999).rows.tolist())) == GROUPS
    assert reader.verify() == []
    reader.close()


def test_a_second_writer_gets_a_clear_error(folder: Path) -> None:
    with child("hold", str(folder)) as process:
        with pytest.raises(IndexLocked, match=rf"written by process {process.pid}: wait"):
            EmbeddedEngine.open(folder, write=True)
        reader = EmbeddedEngine.open(folder)
        assert reader.stats().documents == GROUPS * GROUP
        reader.close()
    EmbeddedEngine.open(folder, write=True).close()


def test_the_lock_goes_with_its_process(folder: Path) -> None:
    with child("hold", str(folder)) as process:
        process.kill()
        process.wait()
        EmbeddedEngine.open(folder, write=True).close()
        process.returncode = 0


def test_a_backup_of_an_index_that_another_process_writes(folder: Path, tmp_path: Path) -> None:
    reader = EmbeddedEngine.open(folder)
    with child("write", str(folder), "8") as process:
        copies = [reader.backup(tmp_path / f"backup{number}") for number in range(5)]
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    reader.close()
    for number, copy in enumerate(copies):
        upkeep.restore(copy, tmp_path / f"restored{number}")
        restored = EmbeddedEngine.open(tmp_path / f"restored{number}")
        assert restored.verify() == []
        with restored.snapshot() as view:
            dense = groups_of(view, view.dense(np.ones(DIMENSION, np.float32), 999).rows.tolist())
            assert groups_of(view, view.lexical("分组", 999).rows.tolist()) == dense
        assert restored.stats().documents == GROUP * len(dense)
        restored.close()


if __name__ == "__main__":
    verb, where, *rest = sys.argv[1:]
    if verb == "write":
        write(Path(where), int(rest[0]))
    else:
        engine = EmbeddedEngine.open(where, write=True)
        print("ready", flush=True)
        sys.stdin.read()
        engine.close()
