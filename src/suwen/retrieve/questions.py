"""Questions on their way into an index: looked up by document, and given to the passages that answer them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from suwen.corpora.question_files import content_hash, read_questions
from suwen.corpora.records import Passage
from suwen.index.engine import Engine, Question, Vectors

#: The ordinal of a question that is a document's, before the nearest of its passages has it.
_ANY = -1
#: What a document's digest has before the part that its questions make.
_MARK = "+"
#: That part where some of them are lost: a file brings them back.
SOME = f"{_MARK}some"


class QuestionFile:
    """The questions of a file, by document. Closed by :meth:`close`.

    Args:
        path: As :mod:`suwen.corpora.question_files` says.
    """

    def __init__(self, path: Path) -> None:
        self.file = path
        # On disk: an empty name is SQLite's own temporary file.
        self._lines = sqlite3.connect("", isolation_level=None)
        self._lines.execute("CREATE TABLE lines(id TEXT, asked TEXT, sha1 TEXT, used INTEGER)")
        self._lines.execute("BEGIN")
        for line in read_questions(path):
            given = (line.id, json.dumps(line.questions, ensure_ascii=False), line.sha1)
            self._lines.execute("INSERT INTO lines VALUES(?, ?, ?, 0)", given)
        self._lines.execute("CREATE INDEX by_id ON lines(id)")

    def close(self) -> None:
        """Let go of it."""
        self._lines.close()

    def mark(self, document_id: str) -> str:
        """What a document's questions add to its digest; nothing where it has none."""
        lines = [line for line in self._of(document_id) if line[1] != "[]"]
        said = json.dumps(lines, ensure_ascii=False).encode()
        return f"{_MARK}{hashlib.sha256(said).hexdigest()[:8]}" if lines else ""

    def of(self, document_id: str, passages: Sequence[Passage]) -> list[Question]:
        """The questions of a document; which passage answers those of the document itself is for :func:`settled`."""
        places = {passage.id: passage for passage in passages}
        found: dict[Question, None] = {}
        for id_, asked, sha1 in self._of(document_id):
            passage = places.get(id_)
            changed = passage is not None and sha1 and sha1 != content_hash(passage.content)
            if changed or (passage is None and id_ != document_id):
                self._lines.execute("UPDATE lines SET used = 2 WHERE id = ?", (id_,))
                continue
            ordinal = _ANY if passage is None else passage.ordinal
            found |= dict.fromkeys(Question(ordinal, text) for text in json.loads(asked))
        return list(found)

    def unused(self) -> int:
        """How many lines are of documents that nobody has asked for."""
        return self._count(0)

    def outdated(self) -> int:
        """How many lines were left out: of passages that are not there, or whose text is not what it was."""
        return self._count(2)

    def _count(self, used: int) -> int:
        return int(self._lines.execute("SELECT count(*) FROM lines WHERE used = ?", (used,)).fetchone()[0])

    def _of(self, document_id: str) -> list[tuple[str, str, str]]:
        # The ids of its passages: '$' is what comes after '#'.
        clause = "id = ? OR (id > ? AND id < ?)"
        given = (document_id, f"{document_id}#", f"{document_id}$")
        self._lines.execute(f"UPDATE lines SET used = max(used, 1) WHERE {clause}", given)
        query = f"SELECT id, asked, sha1 FROM lines WHERE {clause} ORDER BY id, rowid"
        found = self._lines.execute(query, given).fetchall()
        return [line for line in found if line[0] == document_id or line[0][len(document_id) + 1 :].isdigit()]


def without_mark(digest: str) -> str:
    """A document's digest without what its questions added."""
    return digest.partition(_MARK)[0]


def carried(engine: Engine, id_: str, digest: str, passages: Sequence[Passage]) -> tuple[list[Question], str]:
    """The questions that a stored document keeps where no file says otherwise, and their part of its digest.

    Those of a passage that is no longer there are gone with it.

    Args:
        engine: The index.
        id_: The document.
        digest: As it is stored.
        passages: As they will be.
    """
    if _MARK not in digest:
        return [], ""
    with engine.snapshot() as snapshot:
        stored = snapshot.document(id_)
    if stored is None:
        return [], ""
    places = {passage.content: passage.ordinal for passage in passages}
    before = {item.passage.ordinal: item.passage.content for item in stored.passages}
    kept = [
        Question(places[before[asked.ordinal]], asked.text)
        for asked in stored.questions
        if before[asked.ordinal] in places
    ]
    mark = _MARK + digest.partition(_MARK)[2] if len(kept) == len(stored.questions) else SOME
    return kept, mark if kept else ""


def settled(questions: Sequence[Question], vectors: Vectors, passages: Sequence[Passage]) -> list[Question]:
    """Questions with their passages: those of a document are its nearest passage's.

    Args:
        questions: Of one document.
        vectors: Of its passages, then of its questions.
        passages: Its passages.
    """
    own, asked = vectors[: len(passages)], vectors[len(passages) :]
    return [
        one if one.ordinal != _ANY else one._replace(ordinal=passages[int(np.argmax(own @ vector))].ordinal)
        for one, vector in zip(questions, asked, strict=True)
    ]
