"""Changes of a cluster index that may be cut off at any step, and what an index may hold after that."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from naive import encoded, unit
from pymilvus import MilvusClient

from postgres_server import new_address
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.engine import Reencoded

DIMENSION = 8
Contents = dict[str, tuple[str, str, list[str], bytes]]


def contents(engine: ClusterEngine) -> Contents:
    """Every document: its digest, who encoded it, its texts and the bytes of its vectors."""
    found = {}
    for id_, known in engine.known(engine.ids()).items():
        with engine.snapshot() as view:
            stored = view.document(id_)
        assert stored is not None
        vectors = engine.stored_vectors(id_, known.encoder)
        texts = [item.passage.content for item in stored.passages]
        found[id_] = known.digest, known.encoder, texts, b"".join(vectors[text].tobytes() for text in texts)
    return found


def work(engine: ClusterEngine, turn: int) -> None:
    """One change: which, only the turn says."""
    rng = np.random.default_rng(turn)
    if turn % 4 == 0:
        ids = [f"d{number}" for number in rng.choice(6, 3, replace=False)]
        engine.add([encoded(id_, [f"第{turn}次 {id_}", "第二段"], unit(rng, 2, DIMENSION)) for id_ in ids])
    elif turn % 4 == 1:
        waits = engine.waiting(f"by{turn}", 2)
        made = [Reencoded(one.id, one.version, unit(rng, 2, DIMENSION)) for one in waits]
        engine.reencode(made, f"by{turn}")
    elif turn % 4 == 2:
        engine.delete(engine.ids()[:1])
    else:
        engine.rebuild()


def at_step(number: int, after: bool, strike: Callable[[], None], patch: pytest.MonkeyPatch) -> list[int]:
    """Strike at the so-manieth question to a server from now on, before it goes out or after it was answered.

    Returns:
        How many are left until then, counted down as they come.
    """
    left = [number]

    def striking(method: Any) -> Any:
        def struck(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            now = left[0] == 0
            if now and not after:
                strike()
            answer = method(*given, **named)
            if now and after:
                strike()
            return answer

        return struck

    for name in ("execute", "executemany", "copy"):
        patch.setattr(psycopg.Cursor, name, striking(getattr(psycopg.Cursor, name)))
    for name in ("insert", "delete", "create_collection", "drop_collection", "alter_alias", "create_alias"):
        patch.setattr(MilvusClient, name, striking(getattr(MilvusClient, name)))
    return left


class Steps:
    """Where to strike: every step of every kind of change, in an order in which few turns lie far apart.

    Args:
        engine: Makes each kind of change once, to count its steps.
    """

    def __init__(self, engine: ClusterEngine) -> None:
        self.counts = []
        for turn in range(4):
            with pytest.MonkeyPatch.context() as patch:
                left = at_step(10_000, False, lambda: None, patch)
                work(engine, turn)
            self.counts.append(10_000 - left[0])

    def of(self, turn: int) -> int:
        count = self.counts[turn % 4]
        stride = next(one for one in range(round(0.38 * count), count) if math.gcd(one, count) == 1)
        return 1 + (turn // 4 * stride + stride // 2) % count


def is_after(turn: int) -> bool:
    """Whether to strike after the step's answer, and not before its question."""
    return bool(turn // 4 % 2)


def killed(address: str, turn: int, step: int) -> bool:
    """Let another process make a change and kill it at a step; whether it acknowledged the change first.

    It is forked from one that has all modules and no connections: gRPC does not live through a fork of those.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["changes"])
    told, tell = context.Pipe(duplex=False)
    child = context.Process(target=_die, args=(address, turn, step, tell))
    with pytest.MonkeyPatch.context() as patch:
        # What it is forked from finds modules by this alone.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        child.start()
    tell.close()
    child.join()
    acknowledged = told.poll() and child.exitcode == 0
    told.close()
    return bool(acknowledged)


def _die(address: str, turn: int, step: int, tell: Any) -> None:
    """Make a change, and end at a step of it."""
    engine = ClusterEngine.open(address, write=True)
    at_step(step, is_after(turn), lambda: os.kill(os.getpid(), signal.SIGKILL), pytest.MonkeyPatch())
    work(engine, turn)
    tell.send(True)
    os._exit(0)


def check(address: str, before: Contents, after: Contents | None) -> ClusterEngine:
    """Open the index as its next writer would: it holds one of these two states, whole, and finds all of it."""
    engine = ClusterEngine.open(address, write=True)
    found = contents(engine)
    assert found in ([before, after] if after is not None else [before])
    assert engine.verify() == []
    wanted = sorted(f"{id_}#{part}" for id_, (_, _, texts, _) in found.items() for part in range(len(texts)))
    with engine.snapshot() as view:
        for ranking in (view.dense(np.ones(DIMENSION, np.float32), 99), view.lexical("第二段 次 题", 99)):
            assert sorted(item.passage.id for item in view.fetch(ranking.rows.tolist())) == wanted
    return engine


def searched(engine: ClusterEngine) -> None:
    """Ask both ways."""
    with engine.snapshot() as view:
        view.dense(np.ones(DIMENSION, np.float32), 99)
        view.lexical("第二段", 99)


def expected(engine: ClusterEngine, turn: int) -> tuple[Contents, Contents]:
    """What the index holds, and what it will hold after a change: tried out in a copy of it."""
    before = contents(engine)
    # In a copy inside PostgreSQL, whatever searches the index itself.
    with ClusterEngineCopy(engine) as copy:
        work(copy, turn)
        return before, contents(copy)


class ClusterEngineCopy:
    """A second index with the same documents, in the same order of arrival."""

    def __init__(self, engine: ClusterEngine) -> None:
        self._engine = engine

    def __enter__(self) -> ClusterEngine:
        self._copy = ClusterEngine.create(new_address(), space=self._engine.space, dimension=DIMENSION)
        found = contents(self._engine)
        with self._engine.snapshot() as view:
            stored = [document for id_ in found if (document := view.document(id_)) is not None]
        for one in sorted(stored, key=lambda document: document.passages[0].row):
            digest, encoder, _, vectors = found[one.id]
            made = np.frombuffer(vectors, dtype=np.float32).reshape(-1, DIMENSION)
            again = encoded(one.id, [item.passage.text for item in one.passages], made)
            self._copy.add([again._replace(digest=digest, encoder=encoder)])
        return self._copy

    def __exit__(self, *_: object) -> None:
        self._copy.close()
