"""Questions that are set aside: rows of the training data that no stage trains on, to choose things by. No test set.

Which ones is decided by the words of a question alone, so that they are the same in every stage, source and run. The
teacher's vectors have them; tables of rows and texts to align on do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from suwen.encoders.query import Vectors
from suwen.training.tasks.row_tables import DataError, PairTable

if TYPE_CHECKING:
    from suwen.training.run_context import RunContext
    from suwen.training.teacher_vectors import TeacherVectors

#: Questions of one source, and documents in all that they are searched in. Twenty sources of so many questions tell
#: half a point apart; a tier encodes so many documents in half a minute on 16 cores.
_QUESTIONS, _DOCUMENTS = 150, 12_000
#: A source with fewer says little.
_LEAST = 20
_DEPTH = 10


def is_set_aside(text: str, share: float) -> bool:
    """Whether a text is among those that are set aside; those of a smaller share are among those of a larger one."""
    digest = hashlib.sha256(b"set aside " + text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def which(texts: Sequence[str], share: float) -> npt.NDArray[np.bool_]:
    """For each text, whether it is set aside."""
    return np.fromiter((is_set_aside(text, share) for text in texts), bool, len(texts))


def without_set_aside(table: PairTable, share: float) -> PairTable:
    """The rows of a table whose questions are not set aside; its texts keep their numbers."""
    if not share:
        return table
    left = ~which(table.queries, share)
    kept = {name: rows.of(np.flatnonzero(left[rows.queries])) for name, rows in table.sources.items()}
    return replace(table, sources={name: rows for name, rows in kept.items() if len(rows.queries)})


@dataclass(frozen=True)
class SetAside:
    """The questions set aside, and documents to search for their answers. Made by :meth:`read`.

    Attributes:
        questions: The questions.
        taught: The document encoder's vectors of them, as queries.
        documents: The documents: all answers, and others of the same rows.
        given: The document encoder's vectors of them.
        right: For each question, the places of its right documents.
        source: For each question, the number of the source it is of.
    """

    questions: list[str]
    taught: Vectors
    documents: list[str]
    given: Vectors
    right: list[npt.NDArray[np.int64]]
    source: npt.NDArray[np.int64]

    @classmethod
    def read(cls, context: RunContext, vectors: TeacherVectors) -> SetAside:
        """Those of the rows that a vectors stage has encoded.

        Raises:
            DataError: Nothing is set aside, or too little.
        """
        from suwen.training.pair_rows import read_table

        share, stage = context.recipe.data.set_aside, context.recipe.stage(vectors.folder.name)
        if not share or stage.rows is None:
            raise DataError(
                f"no questions are set aside to choose by: say `data.set_aside: 0.02`, and `rows: {{}}` in the stage "
                f"'{stage.name}', whose vectors are searched"
            )
        table = read_table(context, stage)
        queries, source = _drawn(table, which(table.queries, share))
        if not len(queries):
            raise DataError(
                f"data.set_aside: {share:g} leaves no question with an answer in document form: set more aside"
            )
        words = [table.right[query] for query in queries]
        documents = _bank(table, np.unique(np.concatenate(words)))
        of_word: dict[int, list[int]] = {}
        for place, word in enumerate(table.words[documents].tolist()):
            of_word.setdefault(word, []).append(place)
        right = [np.array([place for word in each.tolist() for place in of_word.get(word, ())]) for each in words]
        return cls(
            [table.queries[query] for query in queries],
            np.asarray(vectors.of_queries(table)[queries], np.float32),
            [table.documents[document] for document in documents],
            np.asarray(vectors.of_documents(table)[documents], np.float32),
            right,
            source,
        )

    def score(self, asked: Vectors, given: Vectors | None = None) -> float:
        """nDCG@10, in points, of vectors of the questions over vectors of the documents; the mean of the sources.

        Args:
            asked: Of the questions.
            given: Of the documents; the document encoder's own by default.
        """
        scores = asked @ (self.given if given is None else given).T
        # Not all are sorted: of 3,000 questions and 12,000 documents that would take seconds at every look.
        some = np.argpartition(-scores, min(_DEPTH, scores.shape[1] - 1), axis=1)[:, :_DEPTH]
        order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1, kind="stable")
        near = np.take_along_axis(some, order, axis=1)
        gains = 1 / np.log2(np.arange(near.shape[1]) + 2)
        found = np.array([gains[np.isin(row, right)].sum() for row, right in zip(near, self.right, strict=True)])
        best = np.array([gains[: len(right)].sum() for right in self.right])
        each = found / best
        return 100 * float(np.mean([each[self.source == number].mean() for number in np.unique(self.source)]))


def _drawn(table: PairTable, aside: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Some questions of each source, once each, whose answers are in document form."""
    found: dict[int, npt.NDArray[np.int64]] = {}
    for number, (_, rows) in enumerate(sorted(table.sources.items())):
        firsts = rows.positives.ids[rows.positives.offsets[:-1]]
        bare = np.fromiter((table.document_instructions[one] is None for one in firsts), bool, len(firsts))
        own = np.unique(rows.queries[aside[rows.queries] & bare]).astype(np.int64)
        found[number] = np.random.default_rng((number, 19)).permutation(own)[:_QUESTIONS]
    # Small sources count where there are no others.
    enough = [number for number, own in found.items() if len(own) >= _LEAST] or list(found)
    numbers = [np.full(len(found[number]), number) for number in enough]
    return np.concatenate([found[number] for number in enough]), np.concatenate(numbers)


def _bank(table: PairTable, words: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The documents of some words, and others up to the most there may be; none of symmetric rows."""
    bare = np.ones(len(table.documents), bool)
    bare[np.asarray(table.symmetric, np.int64)] = False
    wanted = np.flatnonzero(np.isin(table.words, words) & bare)
    others = np.setdiff1d(np.flatnonzero(bare), wanted)
    more = np.random.default_rng(19).permutation(others)[: max(0, _DOCUMENTS - len(wanted))]
    return np.sort(np.concatenate([wanted, more]))
