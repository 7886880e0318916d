"""The index as it ought to answer: a dict of documents, searched by brute force. Shares no code with the engine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from suwen.corpora.records import Document, Passage
from suwen.index.engine import EncodedDocument, Ranking, StoredPassage
from suwen.text.segment import bigrams, words

K1, B = 1.2, 0.75
FIELDS = ((words, 1.0), (bigrams, 1.0))


@dataclass
class Kept:
    """One passage: what is searched of it, and its vector as the index keeps it."""

    document: str
    ordinal: int
    content: str
    vector: np.ndarray
    metadata: Mapping[str, Any]


@dataclass
class Naive:
    """Documents by id, and the words of passages that are deleted but still counted by the lexical statistics."""

    documents: dict[str, list[Kept]] = field(default_factory=dict)
    metadata: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ghosts: list[str] = field(default_factory=list)

    def add(self, encoded: EncodedDocument) -> None:
        self.delete(encoded.document.id)
        self.metadata[encoded.document.id] = encoded.document.metadata
        self.documents[encoded.document.id] = [
            Kept(
                encoded.document.id,
                passage.ordinal,
                f"{encoded.document.title}\n{passage.text}",
                vector.astype(np.float16).astype(np.float32),
                encoded.document.metadata,
            )
            for passage, vector in zip(encoded.passages, encoded.vectors, strict=True)
        ]

    def delete(self, id_: str) -> None:
        self.metadata.pop(id_, None)
        self.ghosts += [kept.content for kept in self.documents.pop(id_, [])]

    def passages(self) -> list[Kept]:
        return [kept for passages in self.documents.values() for kept in passages]

    def admitted(self, where: Mapping[str, Any] | None) -> list[Kept]:
        return [kept for kept in self.passages() if where is None or admits(where, kept.metadata)]

    def fields(self) -> set[str]:
        return {key for metadata in self.metadata.values() for key, value in metadata.items() if value != []}

    def dense(self, query: np.ndarray, where: Mapping[str, Any] | None = None) -> dict[tuple[str, int], float]:
        """The score of every passage that may come back."""
        return {(kept.document, kept.ordinal): float(kept.vector @ query) for kept in self.admitted(where)}

    def lexical(self, query: str, where: Mapping[str, Any] | None = None) -> dict[tuple[str, int], float]:
        """The BM25 score of every passage that shares a term with the query."""
        live = self.passages()
        contents = [kept.content for kept in live] + self.ghosts
        totals = np.zeros(len(contents))
        matched = np.zeros(len(contents), dtype=bool)
        for cut, weight in FIELDS:
            bags = [Counter(cut(content)) for content in contents]
            lengths = np.array([sum(bag.values()) for bag in bags], dtype=float)
            for term in dict.fromkeys(cut(query)):
                counts = np.array([bag[term] for bag in bags], dtype=float)
                matched |= counts > 0
                totals += weight * bm25(counts, lengths)
        chosen = {id(kept) for kept in self.admitted(where)}
        return {
            (kept.document, kept.ordinal): float(totals[position])
            for position, kept in enumerate(live)
            if matched[position] and id(kept) in chosen
        }


def bm25(counts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """One term's BM25 over all passages, by the textbook."""
    total, holding = len(counts), int((counts > 0).sum())
    if holding == 0:
        return np.zeros(total)
    idf = math.log(1 + (total - holding + 0.5) / (holding + 0.5))
    return np.asarray(idf * (K1 + 1) * counts / (counts + K1 * (1 - B + B * lengths / lengths.mean())))


def admits(where: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    return all(any(_meets(wanted, value) for value in _values(metadata.get(key))) for key, wanted in where.items())


def _values(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, list) else [] if value is None else [value]


def _meets(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, Mapping):
        compare = {"gt": "__gt__", "gte": "__ge__", "lt": "__lt__", "lte": "__le__"}
        return all(
            isinstance(value, str) == isinstance(bound, str)
            and (getattr(str(value), compare[name])(bound) if isinstance(bound, str) else _numeric(value, name, bound))
            for name, bound in wanted.items()
        )
    return any(value == one for one in (wanted if isinstance(wanted, list) else [wanted]))


def _numeric(value: Any, name: str, bound: float) -> bool:
    return {"gt": value > bound, "gte": value >= bound, "lt": value < bound, "lte": value <= bound}[name]


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
