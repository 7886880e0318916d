"""The index as it ought to answer: an engine of dicts, searched by brute force. Shares no code with other engines."""

from __future__ import annotations

import math
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suwen.corpora.records import Document, Passage
from suwen.index.engine import (
    Abilities,
    Alternatives,
    Backlog,
    EncodedDocument,
    Engine,
    IndexProblem,
    Known,
    Outcome,
    Progress,
    Ranking,
    Reencoded,
    Rows,
    Scale,
    Similarity,
    Snapshot,
    Stats,
    StoredDocument,
    StoredPassage,
    Vectors,
    Waiting,
    check_documents,
)
from suwen.index.filters import Where, no_number, read_where, unknown_field, unlike_stored, wrong_kind
from suwen.text.question import QUESTION_WEIGHT, subject
from suwen.text.segment import bigrams, words

SPACE = "sp-0123456789abcdef0123"
TEXTS = ("高血压患者应低盐饮食", "糖尿病足要每天检查双脚", "Stroke needs care within hours", "肾结石多饮水可预防复发")
K1, B = 1.2, 0.75
FIELDS = ((words, 1.0), (bigrams, 1.0))


class Kept(NamedTuple):
    """One passage: what is searched of it, and its vector as the index keeps it."""

    row: int
    passage: Passage
    vector: np.ndarray
    encoder: str
    metadata: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int]:
        return self.passage.document_id, self.passage.ordinal


@dataclass
class Naive:
    """What is stored: documents by id, and the words of deleted passages that the lexical statistics still count."""

    documents: dict[str, tuple[EncodedDocument, list[Kept]]] = field(default_factory=dict)
    ghosts: list[str] = field(default_factory=list)
    last_row: int = 0
    settings: dict[str, str | int] = field(default_factory=dict)
    blobs: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def put(self, encoded: EncodedDocument) -> None:
        self.remove(encoded.document.id)
        kept = []
        for passage, vector in zip(encoded.passages, encoded.vectors, strict=True):
            self.last_row += 1
            stored = vector.astype(np.float16).astype(np.float32)
            named = passage._replace(title=encoded.document.title)
            kept.append(Kept(self.last_row, named, stored, encoded.encoder, encoded.document.metadata))
        self.documents[encoded.document.id] = (encoded, kept)

    def remove(self, id_: str) -> bool:
        encoded, kept = self.documents.pop(id_, (None, []))
        self.ghosts += [one.passage.content for one in kept]
        return encoded is not None

    def state(self) -> NaiveSnapshot:
        with self.lock:
            return NaiveSnapshot(dict(self.documents), list(self.ghosts), self.last_row)


class NaiveSnapshot(Snapshot):
    """A copy of what was there."""

    def __init__(
        self, documents: Mapping[str, tuple[EncodedDocument, list[Kept]]], ghosts: Sequence[str], last_row: int
    ) -> None:
        self._documents, self._ghosts, self._last_row = documents, ghosts, last_row
        self._passages = [one for _, kept in documents.values() for one in kept]

    @property
    def last_row(self) -> int:
        return self._last_row

    @property
    def encoders(self) -> list[str]:
        return sorted({one.encoder for one in self._passages})

    def fields(self) -> list[str]:
        every = (encoded.document.metadata for encoded, _ in self._documents.values())
        return sorted({key for metadata in every for key in metadata if any(True for _ in _values(metadata[key]))})

    def admitted(self, where: Where | None) -> list[Kept]:
        if not where:
            return self._passages
        read_where(where)
        assert isinstance(where, Mapping)
        every = [encoded.document.metadata for encoded, _ in self._documents.values()]
        for name, bounds, equals in fields_of(where):
            values = [one for metadata in every for one in _values(metadata.get(name))]
            if not values:
                raise unknown_field(name, self.fields())
            asked = [one for one in equals if isinstance(one, str) and one.lower() not in ("true", "false")]
            refused = [one for one in asked if _meant(one) is None]
            if refused and not any(isinstance(one, str) for one in values):
                raise no_number(name, refused[0], values[0])
            odd = [one for one in equals if isinstance(one, str) and spelt(one) is None and one not in refused]
            if odd and all_numbers(values) and any(isinstance(one, str) for one in values):
                raise unlike_stored(name, odd[0], values[0])
            for bound in bounds:
                if not any(_one_kind(bound, one) for one in values):
                    raise wrong_kind(name, bound if (number := spelt(str(bound))) is None else number, values[0])
        return [one for one in self._passages if admits(where, one.metadata)]

    def dense_scores(self, query: np.ndarray, where: Where | None = None) -> dict[tuple[str, int], float]:
        """The score of every passage that may come back."""
        return {one.key: float(one.vector @ query) for one in self.admitted(where)}

    def lexical_scores(self, query: str, where: Where | None = None) -> dict[tuple[str, int], float]:
        """The BM25 score of every passage that shares a term with the query."""
        contents = [one.passage.content for one in self._passages] + list(self._ghosts)
        totals = np.zeros(len(contents))
        matched = np.zeros(len(contents), dtype=bool)
        for cut, weight in FIELDS:
            bags = [Counter(cut(content)) for content in contents]
            lengths = np.array([sum(bag.values()) for bag in bags], dtype=float)
            telling = set(cut(subject(query)))
            for term in dict.fromkeys(cut(query)):
                counts = np.array([bag[term] for bag in bags], dtype=float)
                matched |= counts > 0
                totals += weight * (1.0 if term in telling else QUESTION_WEIGHT) * bm25(counts, lengths)
        chosen = {one.row for one in self.admitted(where)}
        scored = zip(self._passages, matched, totals, strict=False)
        return {one.key: float(total) for one, hit, total in scored if hit and one.row in chosen}

    def _best(self, scores: Mapping[tuple[str, int], float], k: int) -> Ranking:
        rows = {one.key: one.row for one in self._passages}
        order = sorted((-round(score, 6), rows[key]) for key, score in scores.items())[:k]
        return Ranking(
            np.array([row for _, row in order], dtype=np.int64), np.array([-s for s, _ in order], dtype=np.float32)
        )

    def dense(
        self,
        vector: Vectors,
        k: int,
        where: Where | None = None,
        scales: Mapping[str, Scale] | None = None,
        beside: Rows | None = None,
    ) -> Ranking:
        scores = self.dense_scores(vector, where)
        for one in self._passages if scales else []:
            if one.key in scores and (scale := (scales or {}).get(one.encoder)) is not None:
                scores[one.key] = scale.slope * scores[one.key] + scale.offset
        every = self._best(scores, len(scores))
        asked = () if beside is None else beside.tolist()
        kept = [place for place, row in enumerate(every.rows.tolist()) if place < k or row in asked]
        return Ranking(every.rows[kept], every.scores[kept])

    def lexical(self, text: str, k: int, where: Where | None = None, also: Alternatives | None = None) -> Ranking:
        scores = self.lexical_scores(text, where)
        for name in (name for names in (also or {}).values() for name in names):
            # Found, and below what was typed: how far below is each engine's own.
            worth = 0.1 if name.isascii() else 0.5
            for key, score in self.lexical_scores(name, where).items():
                scores[key] = max(scores.get(key, 0.0), worth * score)
        return self._best(scores, k)

    def vocabulary(self, terms: Sequence[str]) -> list[int]:
        return [sum(term in bigrams(one.passage.content) for one in self._passages) for term in terms]

    def terms(self, prefix: str) -> list[tuple[str, int]]:
        words = {word for one in self._passages for word in bigrams(one.passage.content) if word.startswith(prefix)}
        return [(word, *self.vocabulary([word])) for word in sorted(words)]

    def exact(self, vectors: Vectors, k: int, progress: Progress | None = None) -> list[Ranking]:
        return [self.dense(vector, k) for vector in vectors]

    def fetch(self, rows: Sequence[int]) -> list[StoredPassage]:
        by_row = {one.row: one for one in self._passages}
        return [_stored(by_row[row]) for row in rows]

    def document(self, id_: str) -> StoredDocument | None:
        if id_ not in self._documents:
            return None
        encoded, kept = self._documents[id_]
        document = encoded.document
        passages, came = [_stored(one) for one in kept], (encoded.origin, encoded.arrived)
        return StoredDocument(id_, document.title, document.metadata, encoded.digest, passages, *came)

    def count(self, encoder: str, most: int) -> int:
        return min(most, sum(one.encoder == encoder for one in self._passages))

    def sample(self, count: int, encoder: str | None = None) -> tuple[Rows, Vectors]:
        ours = sorted((one.row, one.vector.tolist()) for one in self._passages if encoder in (None, one.encoder))
        chosen = [ours[place] for place in np.unique(np.linspace(0, len(ours) - 1, count).astype(int))] if ours else []
        vectors = np.array([vector for _, vector in chosen], dtype=np.float32)
        return np.array([row for row, _ in chosen], dtype=np.int64), vectors

    def vectors(self, rows: Rows) -> Vectors:
        ours = {one.row: one.vector for one in self._passages}
        return np.array([ours[row] for row in rows.tolist()], dtype=np.float32)


class NaiveEngine(Engine):
    """A way to what is stored; it lacks upkeep and backups."""

    abilities = Abilities(consistent=True, exact=True)

    def __init__(
        self,
        space: str,
        dimension: int,
        store: Naive | None = None,
        *,
        similarity: Similarity = "cosine",
        write: bool = True,
    ) -> None:
        self.address, self.space, self.dimension, self.similarity = "memory", space, dimension, similarity
        self.store = Naive() if store is None else store
        self._write, self._closed = write, False

    def reopened(self, *, write: bool) -> NaiveEngine:
        return NaiveEngine(self.space, self.dimension, self.store, similarity=self.similarity, write=write)

    @contextmanager
    def _writing(self) -> Iterator[Naive]:
        if self._closed:
            raise IndexProblem("this was closed")
        if not self._write:
            raise IndexProblem("this was opened for reading: open it with write=True")
        with self.store.lock:
            yield self.store

    @contextmanager
    def snapshot(self) -> Iterator[NaiveSnapshot]:
        if self._closed:
            raise IndexProblem("this was closed")
        yield self.store.state()

    def add(self, documents: Sequence[EncodedDocument], settings: Mapping[str, str | int] | None = None) -> None:
        check_documents(documents, self.dimension)
        with self._writing() as store:
            store.settings.update(settings or {})
            for encoded in documents:
                store.put(encoded)

    def delete(self, ids: Sequence[str]) -> int:
        with self._writing() as store:
            return sum(store.remove(id_) for id_ in ids)

    def known(self, ids: Sequence[str]) -> dict[str, Known]:
        there = {id_: self.store.documents[id_] for id_ in ids if id_ in self.store.documents}
        return {id_: Known(encoded.digest, encoded.encoder if kept else "") for id_, (encoded, kept) in there.items()}

    def ids(self, after: str = "", limit: int = 10_000, origin: str | None = None) -> list[str]:
        documents = self.store.documents.items()
        return sorted(id_ for id_, (one, _) in documents if id_ > after and origin in (None, one.origin))[:limit]

    def stored_vectors(self, id_: str, encoder: str) -> dict[str, Vectors]:
        _, kept = self.store.documents.get(id_, (None, []))
        return {one.passage.content: one.vector for one in kept if one.encoder == encoder}

    def _others(self, encoder: str) -> list[tuple[EncodedDocument, list[Kept]]]:
        waiting = [(one, kept) for one, kept in self.store.documents.values() if kept and one.encoder != encoder]
        return sorted(waiting, key=lambda found: found[1][0].row)

    def backlog(self, encoder: str) -> Backlog:
        others = self._others(encoder)
        return Backlog(len(others), sum(len(kept) for _, kept in others), others[0][0].arrived if others else None)

    def waiting(self, encoder: str, limit: int, skip: Collection[str] = ()) -> list[Waiting]:
        wanted = [(one, kept) for one, kept in self._others(encoder) if one.document.id not in skip]
        return [
            Waiting(one.document.id, one.digest, one.encoder, one.arrived, [part.passage.content for part in kept])
            for one, kept in wanted[:limit]
        ]

    def reencode(self, made: Sequence[Reencoded], encoder: str) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        fitting = []
        with self._writing() as store:
            for one in made:
                if one.id in outcomes:
                    raise IndexProblem(f"document {one.id!r} is twice in one call")
                stored, kept = store.documents.get(one.id, (None, []))
                if stored is None:
                    outcomes[one.id] = "gone"
                elif stored.digest != one.version:
                    outcomes[one.id] = "stale"
                elif stored.encoder == encoder:
                    outcomes[one.id] = "done"
                elif len(kept) != len(one.vectors):
                    outcomes[one.id] = "wrong"
                else:
                    outcomes[one.id] = "stored"
                    fitting.append(stored._replace(vectors=one.vectors, encoder=encoder, arrived=None))
            check_documents(fitting, self.dimension)
            for encoded in fitting:
                store.put(encoded)
        return outcomes

    def stats(self) -> Stats:
        with self.snapshot() as state:
            encoders = {name: state.count(name, 10**9) for name in state.encoders}
            passages, documents = sum(encoders.values()), len(self.store.documents)
            gone, fields = len(self.store.ghosts), state.fields()
        return Stats(documents, passages, gone, self.dimension, self.space, encoders, fields, 0, 0, 1)

    def settings(self) -> Mapping[str, str | int]:
        return dict(self.store.settings)

    def remember(self, **settings: str | int) -> None:
        with self._writing() as store:
            store.settings.update(settings)

    def put_blob(self, name: str, data: bytes) -> None:
        version = self.blob_version(name) or 0
        self.store.blobs[name] = (version + 1, data)

    def get_blob(self, name: str) -> bytes | None:
        return self.store.blobs[name][1] if name in self.store.blobs else None

    def blob_version(self, name: str) -> int | None:
        return self.store.blobs[name][0] if name in self.store.blobs else None

    def verify(self, progress: Progress | None = None) -> list[str]:
        raise NotImplementedError

    def compact(self, progress: Progress | None = None) -> bool:
        raise NotImplementedError

    def rebuild(self, progress: Progress | None = None) -> None:
        raise NotImplementedError

    def backup(self, target: Path) -> Path:
        raise NotImplementedError

    def close(self) -> None:
        self._closed = True


def _stored(kept: Kept) -> StoredPassage:
    return StoredPassage(kept.row, kept.passage, dict(kept.metadata), kept.encoder)


def bm25(counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """One term's BM25 over all passages, by the textbook."""
    total, holding = len(counts), int((counts > 0).sum())
    if holding == 0:
        return np.zeros(total)
    idf = math.log(1 + (total - holding + 0.5) / (holding + 0.5))
    return np.asarray(idf * (K1 + 1) * counts / (counts + K1 * (1 - B + B * lengths / lengths.mean())))


def admits(where: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether a document's metadata pass a filter, given as a mapping."""
    ranges: dict[str, list[tuple[str, Any]]] = {}
    for name, wanted in _entries(where):
        if name == "$or":
            passes = any(admits(one, metadata) for one in wanted)
        elif name == "$not":
            passes = not admits(wanted, metadata)
        else:
            operators = wanted if isinstance(wanted, Mapping) else {"eq": wanted}
            there = list(_values(metadata.get(name)))
            bounds = [one for one in operators.items() if one[0] in ("gt", "gte", "lt", "lte")]
            ranges.setdefault(name, []).extend(bounds)
            passes = all(_operates(there, *one) for one in operators.items() if one not in bounds)
        if not passes:
            return False
    ranged = ((list(_values(metadata.get(name))), bounds) for name, bounds in ranges.items() if bounds)
    return all(any(all(_compares(one, *bound) for bound in bounds) for one in there) for there, bounds in ranged)


def fields_of(where: Mapping[str, Any]) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """The fields a filter names, with the bounds on each and what each is to equal, or not."""
    for name, wanted in _entries(where):
        for inner in wanted if name == "$or" else [wanted] if name == "$not" else []:
            yield from fields_of(inner)
        if not name.startswith("$"):
            operators = wanted.items() if isinstance(wanted, Mapping) else [("eq", wanted)]
            given = [value for operator, value in operators if operator in ("eq", "ne")]
            equals = [one for value in given for one in (value if isinstance(value, list) else [value])]
            yield name, [bound for operator, bound in operators if operator in ("gt", "gte", "lt", "lte")], equals


def _entries(where: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, wanted in where.items():
        if name == "$and":
            for one in wanted:
                yield from _entries(one)
        else:
            yield name, wanted


def _values(value: Any) -> Iterator[Any]:
    every = value if isinstance(value, list) else [value]
    yield from (one for one in every if one is not None and one == one)


def _operates(there: list[Any], operator: str, wanted: Any) -> bool:
    if operator == "missing":
        return wanted is (not there)
    if wanted is None:
        found = not there
    else:
        found = any(_equals(one, each) for one in there for each in (wanted if isinstance(wanted, list) else [wanted]))
    return found is (operator == "eq")


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        truth = {"true": 1, "false": 0}.get(wanted.lower())
        narrow = unicodedata.normalize("NFKC", wanted)
        spelled = value == wanted or (spelt(narrow) is not None and value == narrow)
        return bool(spelled if isinstance(value, str) else value in (_meant(wanted), truth))
    if not isinstance(value, str) or not math.isfinite(wanted):
        return bool(value == wanted and math.isfinite(wanted))
    named = isinstance(wanted, bool) and value in (str(wanted), str(wanted).lower(), str(wanted).upper())
    return named or spelt(value) == wanted


def _one_kind(bound: Any, value: Any) -> bool:
    text = isinstance(bound, str) and spelt(bound) is None
    return all_numbers([value]) is not text


def all_numbers(values: list[Any]) -> bool:
    """Whether each value is a number, or a text that is written as one."""
    return all(not isinstance(one, str) or spelt(one) is not None for one in values)


def _meant(text: str) -> float | None:
    """The number a text asks for where values are numbers, however it is written."""
    try:
        return number if math.isfinite(number := float(text)) else None
    except ValueError:
        return None


def spelt(text: str) -> float | None:
    """The number a text is, when it is written as people write numbers."""
    text = unicodedata.normalize("NFKC", text)
    whole, point, part = text.removeprefix("-").partition(".")
    if not (whole.isascii() and whole.isdigit()) or (whole[0] == "0" and whole != "0"):
        return None
    if point and not (part.isascii() and part.isdigit()):
        return None
    return float(text) if point else int(text)


def _compares(value: Any, name: str, bound: Any) -> bool:
    if isinstance(bound, str) and spelt(bound) is None:
        if not isinstance(value, str):
            return False
    else:
        bound = spelt(bound) if isinstance(bound, str) else bound
        value = spelt(value) if isinstance(value, str) else value
        if value is None:
            return False
    return bool({"gt": value > bound, "gte": value >= bound, "lt": value < bound, "lte": value <= bound}[name])


def same(
    ranking: Ranking, found: Sequence[StoredPassage], wanted: Mapping[tuple[str, int], float], k: int, close: float
) -> None:
    """Assert that a ranking is the brute-force one, up to the order of equal scores."""
    got = [(item.passage.document_id, item.passage.ordinal) for item in found]
    assert len(got) == len(set(got)) == min(k, len(wanted))
    best = sorted(wanted.values(), reverse=True)[:k]
    np.testing.assert_allclose(ranking.scores, best, atol=close, rtol=close)
    for key, score in zip(got, ranking.scores, strict=True):
        assert key in wanted
        assert abs(wanted[key] - score) <= close * (1 + abs(score))


def unit(rng: np.random.Generator, count: int, dimension: int) -> np.ndarray:
    """Random vectors of length one."""
    drawn = rng.standard_normal((count, dimension)).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


def encoded(
    id_: str, texts: Sequence[str], vectors: np.ndarray, metadata: Mapping[str, Any] | None = None, title: str = "题"
) -> EncodedDocument:
    """A document with one passage for each text."""
    text, passages = "\n".join(texts), []
    start = 0
    for ordinal, part in enumerate(texts):
        passages.append(Passage(id_, ordinal, part, start, start + len(part), title))
        start += len(part) + 1
    document = Document(id_, text, title, dict(metadata or {}))
    return EncodedDocument(document, passages, np.asarray(vectors, dtype=np.float32), "static", f"digest-{id_}")


def some_documents(count: int, dimension: int, seed: int = 5) -> Iterator[list[EncodedDocument]]:
    """Documents of two passages each, in batches of five."""
    rng, batch = np.random.default_rng(seed), []
    for number in range(count):
        texts = [f"{TEXTS[number % 4]} 编号{number}", f"第二段 number{number} {TEXTS[(number + 1) % 4]}"]
        metadata = {"year": 2000 + number, "lang": ["zh", "en"][number % 2]}
        batch.append(encoded(f"d{number}", texts, unit(rng, 2, dimension), metadata))
    for start in range(0, count, 5):
        yield batch[start : start + 5]


def waiting_document(
    id_: str, *, version: str = "1", encoder: str = "static", arrived: float | None = None
) -> EncodedDocument:
    """A document of two passages that came at a time."""
    vectors = unit(np.random.default_rng(len(id_)), 2, 16)
    made = encoded(id_, [f"{id_}的第一段", f"{id_}的第二段"], vectors, {"year": 2020, "odd": float("nan")})
    return made._replace(digest=version, encoder=encoder, arrived=arrived, origin="index")


def new_vectors(id_: str, version: str = "1", passages: int = 2, seed: int = 3) -> Reencoded:
    """What another encoder made of it."""
    return Reencoded(id_, version, unit(np.random.default_rng(seed), passages, 16))


def waiting_in(engine: Engine) -> Engine:
    """Two documents that wait, one that does not, added in this order."""
    engine.add([waiting_document("late", arrived=2000.0)])
    others = [waiting_document("done", encoder="document"), waiting_document("later", encoder="rough", arrived=3000.0)]
    engine.add(others)
    return engine


def ids_of(engine: Engine, *, text: str | None = None, k: int = 1000, dimension: int = 16) -> list[str]:
    """The passages an index gives, by a vector or by words."""
    with engine.snapshot() as view:
        ranking = view.lexical(text, k) if text else view.dense(np.ones(dimension, np.float32), k)
        return [item.passage.id for item in view.fetch(ranking.rows.tolist())]
