"""An engine tried out on the user's own servers: the same random work beside the embedded engine, in a scratch index.

The embedded engine is the reference, since its own tests hold it against brute force: both get the same documents, and
every answer must be the same. Nothing of this touches another index, and what it made is taken away at the end.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path

import numpy as np

from suwen.corpora.records import Document, Passage
from suwen.index.cluster.engine import ClusterEngine
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import (
    DamagedIndex,
    EncodedDocument,
    Engine,
    Held,
    IndexLocked,
    IndexProblem,
    Progress,
    Ranking,
    Reencoded,
    Snapshot,
    Vectors,
)
from suwen.index.filters import Where

_DIMENSION, _IDS = 32, 60
_WORDS = ("高血压", "糖尿病", "头痛", "阿司匹林", "肾结石", "心电图", "stroke", "fever", "aspirin", "HbA1c")
_WHERES: tuple[Where | None, ...] = (None, {"year": {"gte": 2021}}, {"lang": "zh"}, {"$not": {"year": 2020}})


class _Broken(Exception):
    """A promise that did not hold."""


def try_cluster(address: str, rounds: int, seed: int, progress: Progress | None) -> list[Held]:
    """See :func:`suwen.index.opening.try_engine`."""
    with _scratch(address) as scratch, tempfile.TemporaryDirectory() as folder:
        trial = _Trial(scratch, Path(folder) / "reference", np.random.default_rng(seed))
        try:
            return [*trial.held(rounds, progress)]
        finally:
            trial.close()


@contextlib.contextmanager
def _scratch(address: str) -> Iterator[str]:
    """An address in the same database at which there is no index; what is made there is taken away."""
    base, _, options = address.partition("?")
    kept = [one for one in options.split("&") if one and not one.startswith("index=")]
    scratch = f"{base}?{'&'.join([*kept, f'index=suwen_check_{secrets.token_hex(6)}'])}"
    try:
        yield scratch
    finally:
        if ClusterEngine.exists(scratch):
            ClusterEngine.remove(scratch)


class _Trial:
    def __init__(self, address: str, folder: Path, rng: np.random.Generator) -> None:
        self._address, self._rng, self._turn = address, rng, 0
        self._engine = ClusterEngine.create(address, space="sp-check", dimension=_DIMENSION)
        self._reference = EmbeddedEngine.create(folder, space="sp-check", dimension=_DIMENSION)

    def close(self) -> None:
        self._engine.close()
        self._reference.close()

    def held(self, rounds: int, progress: Progress | None) -> Iterator[Held]:
        """Every promise, in an order in which each leaves the next something to work on."""
        yield _tried("random changes: every search as the embedded engine's", lambda: self._changes(rounds, progress))
        for promise, method in (
            ("documents come back whole, with their vectors", self._whole),
            ("a reader's moment stays as it is while others write", self._moment),
            ("new vectors replace only the version they were made from", self._versions),
            ("a second writer is refused", self._second_writer),
            ("a searcher that was emptied is noticed, and filled again without an encoder", self._emptied),
            ("verify finds nothing wrong", self._verified),
        ):
            yield _tried(promise, method)

    # -- the promises -------------------------------------------------------------------------------------------

    def _changes(self, rounds: int, progress: Progress | None) -> None:
        for done in range(rounds):
            kind = self._rng.integers(10) if done else 0
            if kind < 6:
                self._both(methodcaller("add", self._batch()))
            elif kind < 8:
                ids = [f"d{one}" for one in self._rng.integers(0, _IDS, 3)]
                self._both(methodcaller("delete", ids))
            elif kind == 8:
                self._both(methodcaller("rebuild"))
            else:
                self._engine.close()
                self._engine = ClusterEngine.open(self._address, write=True)
            self._compare()
            if progress:
                progress(done + 1, rounds)

    def _whole(self) -> None:
        ids = self._reference.ids()
        _same("ids", self._engine.ids(), ids)
        _same("versions", self._engine.known(ids), self._reference.known(ids))
        _same("counts", self._engine.stats()[:2], self._reference.stats()[:2])
        for id_ in ids:
            with self._engine.snapshot() as ours, self._reference.snapshot() as theirs:
                _same(id_, _content(ours, id_), _content(theirs, id_))
            vectors = [engine.stored_vectors(id_, "static") for engine in (self._engine, self._reference)]
            _same(f"vectors of {id_}", *({text: one.tobytes() for text, one in found.items()} for found in vectors))

    def _moment(self) -> None:
        reader = ClusterEngine.open(self._address)
        try:
            query = self._vectors(1)[0]
            with reader.snapshot() as view:
                before = view.dense(query, 10), view.lexical("高血压 stroke", 10)
                rows = [item.passage.id for item in view.fetch(before[0].rows.tolist())]
                self._both(methodcaller("add", self._batch(30)))
                after = view.dense(query, 10), view.lexical("高血压 stroke", 10)
                _same("rows", [one.rows.tolist() for one in after], [one.rows.tolist() for one in before])
                _same("passages", [item.passage.id for item in view.fetch(after[0].rows.tolist())], rows)
        finally:
            reader.close()
        self._compare()

    def _versions(self) -> None:
        waiting = self._engine.waiting("document", 4)
        stale = Reencoded(waiting[0].id, "another version", self._vectors(len(waiting[0].contents)))
        made = [stale, *(Reencoded(one.id, one.version, self._vectors(len(one.contents))) for one in waiting[1:])]
        outcomes = self._engine.reencode(made, "document")
        _same("outcomes", list(outcomes.values()), ["stale", *["stored"] * (len(made) - 1)])
        _same("outcomes", self._reference.reencode(made, "document"), outcomes)
        self._compare()

    def _second_writer(self) -> None:
        with contextlib.suppress(IndexLocked):
            ClusterEngine.open(self._address, write=True).close()
            raise _Broken("two processes may write at once")

    def _emptied(self) -> None:
        self._engine.empty_searcher()
        with self._engine.snapshot() as view:
            try:
                view.dense(self._vectors(1)[0], 10)
                raise _Broken("a search answered from a searcher that holds nothing")
            except DamagedIndex:
                pass
        self._engine.close()
        self._engine = ClusterEngine.open(self._address, write=True)
        self._compare()

    def _verified(self) -> None:
        _same("problems", self._engine.verify(), [])

    # -- work and comparing -------------------------------------------------------------------------------------

    def _both(self, change: Callable[[Engine], object]) -> None:
        _same("answers", *(change(engine) for engine in (self._engine, self._reference)))

    def _batch(self, size: int = 8) -> list[EncodedDocument]:
        documents = []
        for number in self._rng.choice(_IDS, size, replace=False).tolist():
            self._turn += 1
            texts = [" ".join(self._rng.choice(_WORDS, self._rng.integers(2, 9))) for _ in range(2)]
            metadata = {"year": int(self._rng.integers(2018, 2025)), "lang": ["zh", "en"][number % 2]}
            document = Document(f"d{number}", "\n".join(texts), "", metadata)
            parts = [Passage(document.id, 0, texts[0], 0, len(texts[0]))]
            parts.append(Passage(document.id, 1, texts[1], len(texts[0]) + 1, len(document.text)))
            documents.append(EncodedDocument(document, parts, self._vectors(2), "static", f"v{self._turn}"))
        return documents

    def _vectors(self, count: int) -> Vectors:
        drawn = self._rng.standard_normal((count, _DIMENSION)).astype(np.float32)
        return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)

    def _compare(self) -> None:
        query, text = self._vectors(1)[0], " ".join(self._rng.choice(_WORDS, 3))
        for where in _WHERES:
            with self._engine.snapshot() as ours, self._reference.snapshot() as theirs:
                _alike(ours, ours.dense(query, 10, where), theirs, theirs.dense(query, 10, where), 1e-5)
                _alike(ours, ours.lexical(text, 10, where), theirs, theirs.lexical(text, 10, where), 1e-3)


def _alike(ours: Snapshot, found: Ranking, theirs: Snapshot, wanted: Ranking, close: float) -> None:
    """The same passages with the same scores; those that tie at the end may differ."""
    if len(found.rows) != len(wanted.rows) or not np.allclose(found.scores, wanted.scores, atol=close, rtol=close):
        raise _Broken(f"scores {found.scores.tolist()} instead of {wanted.scores.tolist()}")
    last = wanted.scores[-1] + 2 * close if len(wanted.scores) else 0.0
    names = []
    for view, ranking in ((ours, found), (theirs, wanted)):
        items = zip(view.fetch(ranking.rows.tolist()), ranking.scores.tolist(), strict=True)
        names.append(sorted(item.passage.id for item, score in items if score > last))
    _same("passages", *names)


def _content(view: Snapshot, id_: str) -> object:
    stored = view.document(id_)
    return stored and (stored.title, stored.metadata, stored.digest, [item.passage for item in stored.passages])


def _same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise _Broken(f"{what}: {str(found)[:200]} instead of {str(wanted)[:200]}")


def _tried(promise: str, method: Callable[[], None]) -> Held:
    try:
        method()
    except (_Broken, IndexProblem) as problem:
        return Held(promise, str(problem))
    return Held(promise, "")
