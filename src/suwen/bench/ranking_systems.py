"""Systems on the rank side: BM25, its fusion with an encoder, and runs made elsewhere."""

from __future__ import annotations

import logging
import os
import re
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from suwen.bench.dense_systems import by_query, document_shards, rank_densely
from suwen.bench.exact_search import PairScores, Ranks, ragged, tie_order
from suwen.bench.systems import Dense, Ranker, RankingContext, Setting, Side, SystemProblem
from suwen.bench.task_data import Ranked
from suwen.corpora import run_files
from suwen.corpora.files import CorpusError
from suwen.corpora.run_files import RunLine
from suwen.encoders.pair_files import sha256_of
from suwen.index.engine import Ranking, Rows
from suwen.retrieve.fuse import (
    DEPTH,
    FEW,
    GROWTH,
    MOVED,
    NEARNESS,
    POWER,
    STEP,
    WEIGHTS_BY,
    WORDS,
    VectorsOf,
    fuse_hybrid,
)
from suwen.text.segment import bigrams, pairs_and_words, words

#: The release that last changed what an analyser makes of a text: stored results stay valid until it changes again.
_ANALYSED_SINCE = "0.1.0"
# Lucene's and tantivy's defaults: the index of this package ranks by the same.
_K1, _B = 1.2, 0.75
#: The index adds two fields, and its BM25 counts k1 + 1 times as much: the fusion knows heights like those.
_LIKE_INDEX = 2 * (_K1 + 1)
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_CJK_RUN = re.compile(f"([{_CJK}]+)")
_WORD = re.compile(r"\w+(?:['’.]\w+)*")
_SUFFIXES = (".trec", ".run", ".txt", ".tsv", ".trec.gz", ".run.gz", ".txt.gz")


def lucene(text: str) -> list[str]:
    """Tokens as Lucene's CJKAnalyzer cuts them, its English stop words kept: pairs of CJK characters, whole words.

    >>> lucene("高血压 Beta-blockers 7.5%")
    ['高血', '血压', 'beta', 'blockers', '7.5']
    """
    return pairs_and_words(_CJK_RUN, unicodedata.normalize("NFKC", text).lower(), _WORD.findall)


ANALYSERS: dict[str, Callable[[str], list[str]]] = {"words": words, "bigrams": bigrams, "lucene": lucene}


class BM25(Ranker):
    """BM25 (the accurate Lucene form, k1 1.2, b 0.75) over the corpus of a task, by bm25s.

    Args:
        spec: What the user wrote.
        analyser: One of :data:`ANALYSERS`.
    """

    def __init__(self, spec: str, analyser: str) -> None:
        if analyser not in ANALYSERS:
            raise SystemProblem(f"{spec!r}: BM25 has no analyser {analyser!r}; choose one of {', '.join(ANALYSERS)}")
        self.spec = self.name = spec
        self._analyser = analyser
        #: Of the last ranking: what a passage would score that had all of a query.
        self.most: list[float] = []

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """The analyser and the constants."""
        return {"bm25": self._analyser, "k1": _K1, "b": _B, "version": _ANALYSED_SINCE}

    def rank(self, data: Ranked, setting: Setting, context: RankingContext) -> Ranks:
        """The passages that share a term with the query, or each query's candidates."""
        cut, ties = ANALYSERS[self._analyser], tie_order(data.document_ids)
        index = _index([cut(text) for text in data.documents])
        self.most = _most(index, [cut(text) for text in data.queries], len(data.documents))
        lists, spent = [], []
        for number, text in enumerate(data.queries):
            before = time.perf_counter()
            scores = _scores(index, cut(text), len(data.documents))
            rows = (
                _top(scores, context.depth)
                if data.candidates is None
                else np.asarray(data.candidates[number], np.int64)
            )
            lists.append((rows, scores[rows]))
            spent.append((time.perf_counter() - before) * 1000)
            if context.progress is not None:
                context.progress(number + 1, len(data.queries))
        depth = context.depth if data.candidates is None else None
        return Ranks(*ragged(lists, ties, depth), float(np.median(spent)))


def _index(tokens: list[list[str]]) -> Any:
    # Where jax is installed, bm25s tries it on import, and jax then keeps most of a GPU's memory for itself.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import bm25s  # type: ignore[import-untyped]
    except ImportError as problem:
        raise SystemProblem("BM25 needs bm25s: pip install 'suwen[eval]'") from problem
    # It asks for DEBUG on import, and would tell its steps wherever some library has set the root logger up.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    if not any(tokens):
        return None
    index = bm25s.BM25(k1=_K1, b=_B, method="lucene")
    index.index(tokens, show_progress=False)
    return index


def _scores(index: Any, tokens: list[str], count: int) -> Any:
    known = [token for token in tokens if index is not None and token in index.vocab_dict]
    return index.get_scores(known) if known else np.zeros(count, np.float32)


def _most(index: Any, queries: list[list[str]], count: int) -> list[float]:
    """What each query's terms come to where a passage is full of them: the sum of their idf."""
    if index is None:
        return [0.0] * len(queries)
    scores = index.scores
    # bm25s keeps its matrix by columns, one for each term: their lengths are the document frequencies.
    found = np.diff(scores["indptr"])
    heights = []
    for tokens in queries:
        held = [int(found[index.vocab_dict[token]]) if token in index.vocab_dict else 0 for token in tokens]
        heights.append(float(sum(np.log(1 + (count - one + 0.5) / (one + 0.5)) for one in held)))
    return heights


def _top(scores: Any, depth: int) -> Any:
    rows = np.flatnonzero(scores > 0)
    if len(rows) > depth:
        own = scores[rows]
        # Everything that ties with the last place stays; the tie is broken by id where lists are cut.
        rows = rows[own >= np.partition(own, len(own) - depth)[len(own) - depth]]
    return rows


class Hybrid(Ranker):
    """An encoder's ranking and BM25's, fused by score as the retriever of this package does.

    Args:
        spec: What the user wrote.
        dense: The encoder.
        lexical: BM25.
    """

    def __init__(self, spec: str, dense: Dense, lexical: BM25) -> None:
        self.spec, self._dense, self._lexical = spec, dense, lexical
        self.name = f"hybrid:{lexical.name.removeprefix('bm25:')}:{dense.name}"

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """Both legs' contracts, their weights, and how their scores are put on one scale."""
        legs = [self._dense.contract(setting, side), self._lexical.contract(setting, side)]
        return {
            "scores": "absolute",
            "power": POWER,
            "growth": GROWTH,
            "depth": DEPTH,
            "words": WORDS,
            "below it": "scored",
            "weights": dict(self._weights),
            "moved": [MOVED, FEW, NEARNESS, STEP],
            "legs": legs,
        }

    @property
    def _weights(self) -> Mapping[str, float]:
        """As the retriever has them for who encodes the documents; a model that is no pair counts as a transformer."""
        return WEIGHTS_BY[getattr(self._dense, "maker", "transformer")]

    def rank(self, data: Ranked, setting: Setting, context: RankingContext) -> Ranks:
        """Fuse the rankings; a query's cost is that of both."""
        deep = context._replace(depth=max(context.depth, DEPTH))
        worded = self._lexical.rank(data, setting, deep)
        owners, places = np.nonzero(worded.rows >= 0)
        # What words found has its true score by meaning too, however far down it stands.
        pairs = PairScores.of(owners, worded.rows[owners, places])
        near, found = rank_densely(self._dense, data, setting, deep, pairs), []
        for number, (rows, scores) in enumerate(by_query(pairs, len(data.queries))):
            words, top = _ranking(worded, number), _ranking(near, number)
            low = ~np.isin(rows, top.rows)
            dense = Ranking(np.concatenate([top.rows, rows[low]]), np.concatenate([top.scores, scores[low]]))
            most = _LIKE_INDEX * self._lexical.most[number]
            each = {"dense": dense, "lexical": words._replace(scores=_LIKE_INDEX * words.scores, most=most)}
            # Products of vectors that keep their lengths are counted in the query's best; cosines in themselves.
            unit = max(1.0, abs(float(each["dense"].scores[0]))) if len(each["dense"].scores) else 1.0
            found.append((each, unit))
        fuse = partial(fuse_hybrid, weights=self._weights)
        first = np.unique(np.concatenate([fuse(each, MOVED, unit=unit).rows for each, unit in found]))
        vectors = self._vectors(data, setting, context, first)
        fused = [fuse(each, len(data.documents), unit=unit, vectors=vectors) for each, unit in found]
        depth = context.depth if data.candidates is None else None
        rows, scores = ragged([(one.rows, one.scores) for one in fused], tie_order(data.document_ids), depth)
        return Ranks(rows, scores, sum(leg.query_ms or 0.0 for leg in (near, worded)))

    def _vectors(self, data: Ranked, setting: Setting, context: RankingContext, rows: Rows) -> VectorsOf:
        """The vectors of some documents, which ascend: from the cache, or encoded once more where there is none."""
        if context.cache.folder is None:
            known = [self._dense.encode([data.documents[row] for row in rows.tolist()], setting, "document")]
        else:
            start, known = 0, []
            for shard in document_shards(self._dense, data, setting, context._replace(progress=None)):
                low, high = np.searchsorted(rows, [start, start + len(shard)])
                known.append(np.asarray(shard[rows[low:high] - start], dtype=np.float32))
                start += len(shard)
        every = np.concatenate(known)
        return lambda asked: np.asarray(every[np.searchsorted(rows, asked)], dtype=np.float32)

    def release(self) -> None:
        """Let both legs go."""
        self._dense.release()
        self._lexical.release()


def _ranking(leg: Ranks, number: int) -> Ranking:
    there = leg.rows[number] >= 0
    return Ranking(leg.rows[number][there], leg.scores[number][there].astype(np.float32))


class RunFile(Ranker):
    """Rankings made elsewhere, in TREC's format: ``query Q0 document rank score tag`` on each line.

    Args:
        spec: What the user wrote.
        path: A file for a suite of one task, or a folder with a file called after each task.
    """

    def __init__(self, spec: str, path: Path) -> None:
        if not path.exists():
            raise SystemProblem(f"{spec!r}: there is no file or folder {path}; check the path")
        self.spec, self._path = spec, path
        self.name = f"run:{path.name}"

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """The hash of the file."""
        return {"run": sha256_of(self._file(setting))}

    def rank(self, data: Ranked, setting: Setting, context: RankingContext) -> Ranks:
        """The run as it stands, ordered by score; what it holds beyond the queries and candidates is left out."""
        file = self._file(setting)
        queries = {query: number for number, query in enumerate(data.query_ids)}
        documents = {document: row for row, document in enumerate(data.document_ids)}
        ranked: list[dict[int, float]] = [{} for _ in queries]
        allowed = None if data.candidates is None else [set(group) for group in data.candidates]
        unjudged: set[str] = set()
        for place, query, document, score in read_run(file):
            if query not in queries:
                unjudged.add(query)
                continue
            number = queries[query]
            if document not in documents:
                if allowed is not None:
                    continue
                raise SystemProblem(
                    f"{place}: document {document!r} is not in the corpus of {setting.task.name}; this is the run of "
                    f"another collection or version"
                )
            row = documents[document]
            if row in ranked[number]:
                raise SystemProblem(f"{place}: query {query!r} ranks document {document!r} twice; keep it once")
            if allowed is None or row in allowed[number]:
                ranked[number][row] = score
        if not any(ranked):
            example = f"; it has {min(unjudged)!r}, the task has {data.query_ids[0]!r}" if unjudged else ""
            raise SystemProblem(f"{file}: no query of {setting.task.name} is in the run{example}. Name its own run")
        lists = [(np.array(list(hits), np.int64), np.array(list(hits.values()), np.float64)) for hits in ranked]
        return Ranks(*ragged(lists, tie_order(data.document_ids), context.depth if allowed is None else None))

    def _file(self, setting: Setting) -> Path:
        if self._path.is_file():
            return self._path
        names = [f"{setting.task.name}{suffix}" for suffix in _SUFFIXES]
        file = next((self._path / name for name in names if (self._path / name).is_file()), None)
        if file is None:
            raise SystemProblem(f"{self.name}: {self._path} has no run of {setting.task.name}; call it {names[0]}")
        return file


def read_run(file: Path) -> Iterator[RunLine]:
    """The place, query, document and score of each line of a run, see :func:`suwen.corpora.run_files.read_run`.

    Raises:
        SystemProblem: A line is no line of a run, or has a score that is no number.
    """
    try:
        yield from run_files.read_run(file)
    except CorpusError as problem:
        raise SystemProblem(str(problem)) from None
