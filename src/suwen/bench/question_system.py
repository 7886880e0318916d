"""The system ``questions:FILES:SYSTEM``: an encoder's documents, found by the questions they answer as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from suwen.bench.dense_systems import encode_side, rank_densely, similarity_of
from suwen.bench.exact_search import Ranks, ragged, scan, tie_order
from suwen.bench.systems import Dense, NotApplicable, Ranker, RankingContext, Setting, Side, SystemProblem
from suwen.bench.task_data import Ranked
from suwen.corpora.files import CorpusError
from suwen.corpora.question_files import read_questions
from suwen.encoders.pair_files import sha256_of

_SUFFIXES = (".jsonl", ".jsonl.gz")


class QuestionSystem(Ranker):
    """Ranks a document by the best of its own vector and of its questions', as an index with questions does.

    Args:
        spec: What the user wrote.
        path: A file for a suite of one task, or a folder with a file called after each task.
        inner: The encoder; questions are encoded as its documents are.
    """

    def __init__(self, spec: str, path: Path, inner: Dense) -> None:
        if not path.exists():
            raise SystemProblem(f"{spec!r}: there is no file or folder {path}; check the path")
        self.spec, self._path, self._inner = spec, path, inner
        self.name = f"questions:{path.name}:{inner.name}"

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """The encoder's on both sides, and the hash of the questions."""
        own = {one: self._inner.contract(setting, one) for one in ("query", "document")}
        return {"questions": sha256_of(self._file(setting)), **own}

    def rank(self, data: Ranked, setting: Setting, context: RankingContext) -> Ranks:
        """The documents by their own vectors, and where a question of theirs is nearer, by that."""
        if data.candidates is not None:
            raise NotApplicable(f"{self.name}: {setting.task.name} has candidates of its own, and no index to ask")
        owners, texts = self._asked(data, setting)
        own = rank_densely(self._inner, data, setting, context)
        queries = encode_side(self._inner, data.queries, setting, context._replace(progress=None))
        vectors = encode_side(self._inner, texts, setting, context, "document")
        # Deep enough that no document of the best is missed, however many of the first questions are one document's.
        most = int(np.bincount(owners).max())
        similarity, depth = similarity_of(self._inner, setting), context.depth * most
        rows, scores = scan(queries, [vectors], np.arange(len(texts)), similarity=similarity, depth=depth)
        lists = []
        for number in range(len(data.queries)):
            every = np.concatenate([own.rows[number], owners[rows[number]]])
            found = np.concatenate([own.scores[number], scores[number]])[every >= 0]
            lists.append(_best_of_each(every[every >= 0], found))
        return Ranks(*ragged(lists, tie_order(data.document_ids), context.depth), own.query_ms)

    def release(self) -> None:
        """Let the encoder go."""
        self._inner.release()

    def _asked(self, data: Ranked, setting: Setting) -> tuple[Any, list[str]]:
        """The questions of the corpus, and the row of the document of each; a passage's are its document's."""
        places = {id_: row for row, id_ in enumerate(data.document_ids)}
        found: list[tuple[int, str]] = []
        file = self._file(setting)
        try:
            for line in read_questions(file):
                row = places.get(line.id, places.get(line.id.rpartition("#")[0]))
                found += [] if row is None else [(row, text) for text in line.questions]
        except CorpusError as problem:
            raise SystemProblem(str(problem)) from None
        if not found:
            raise SystemProblem(f"{file}: none of its ids is a document of {setting.task.name}; name its own questions")
        return np.array([row for row, _ in found], np.int64), [text for _, text in found]

    def _file(self, setting: Setting) -> Path:
        if self._path.is_file():
            return self._path
        names = [f"{setting.task.name}{suffix}" for suffix in _SUFFIXES]
        file = next((self._path / name for name in names if (self._path / name).is_file()), None)
        if file is None:
            raise NotApplicable(f"{self.name}: {self._path} has no {names[0]}: no questions were written for it")
        return file


def _best_of_each(rows: Any, scores: Any) -> tuple[Any, Any]:
    order = np.lexsort((-scores, rows))
    every, first = np.unique(rows[order], return_index=True)
    return every, scores[order][first]
