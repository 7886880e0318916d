"""Questions that a model writes for the passages of a shelf: rows to train on, and a collection of those kept apart.

Kept apart are whole documents (a page, a chapter, a file), so that no passage of one stands on both sides.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from suwen.corpora.collection import write_collection
from suwen.corpora.passages import split_document
from suwen.corpora.records import Document, Qrel, Query
from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate import CurateError
from suwen.curate.leakage import NEAR_WEIGHT, comparable, weight
from suwen.curate.screening import Screen, draw
from suwen.durable import new_folder, write_json, write_lines
from suwen.llm.asker import Asker
from suwen.llm.token_estimate import estimate_tokens
from suwen.text.segment import language_of
from suwen.text.split import sentences

#: Estimated tokens of a passage; one document in so many is kept apart, and of fewer documents passages are.
SIZE, APART, FEW = 200, 4, 12
_SHORTEST = 40


class ShelfPassage(NamedTuple):
    """A passage of a shelf, and whether it is kept apart from training."""

    id: str
    text: str
    apart: bool


def shelf_passages(documents: Iterable[Document]) -> list[ShelfPassage]:
    """Cut the documents of a shelf into passages, and keep a part of the documents apart, always the same."""
    every = list(documents)
    cut = [
        part
        for document in every
        for part in split_document(document, lambda texts: [estimate_tokens(text) for text in texts], SIZE, 0)
    ]
    few = len(every) < FEW
    return [ShelfPassage(part.id, part.content, _is_apart(part.id if few else part.document_id)) for part in cut]


def _is_apart(id_: str) -> bool:
    return int(hashlib.sha1(id_.encode("utf-8", "replace")).hexdigest(), 16) % APART == 0


def write_questions(
    passages: Sequence[ShelfPassage], to: Path, asker: Asker, *, count: int, dataset: str, seed: int = 0
) -> Counter[str]:
    """Have a model ask for passages, and write ``rows.jsonl.gz``, the collection ``apart/`` and ``held-out.jsonl.gz``.

    Args:
        passages: Of the shelf.
        to: The folder; a dry run writes none.
        asker: The model.
        count: The most questions; two in five of them are for passages kept apart.
        dataset: What the shelf is called in the prompt.
        seed: Of the draw.

    Raises:
        CurateError: No question is left on one of the sides.
    """
    told = [one for one in passages if len(one.text) >= _SHORTEST]
    apart = draw([one for one in told if one.apart], max(1, 2 * count // 5), seed)
    chosen = [*draw([one for one in told if not one.apart], max(1, count - len(apart)), seed), *apart]
    requests = [
        asker.request(
            "synthetic-query",
            {"dataset": dataset, "passage": one.text},
            key=str(at),
            long=("passage",),
            language=language_of(one.text),
        )
        for at, one in enumerate(chosen)
    ]
    said = asker.ask("questions", requests, lambda data: str(data["query"]), lambda request: request.key)
    screen = Screen("passages", "unanswered", by_model=True)
    screen.counts.update(passages=len(chosen), unanswered=len(chosen) - len(said))
    if asker.dry_run:
        return screen.counts
    asked = [
        (chosen[int(key)], screen.passed(TrainingRow(query, (chosen[int(key)].text,)))) for key, query in said.items()
    ]
    good = [(one, row) for one, row in asked if row is not None]
    if not any(one.apart for one, _ in good) or all(one.apart for one, _ in good):
        raise CurateError(
            f"{to} is not written: of {len(passages)} passages, no question is left to train on, or none to measure "
            f"with ({dict(screen.counts)}): add books, ask for more questions, or take another model"
        )
    with new_folder(to) as folder:
        _write(folder, passages, good, screen.counts)
    return screen.counts


def _write(
    folder: Path, passages: Sequence[ShelfPassage], good: list[tuple[ShelfPassage, TrainingRow]], counts: Counter[str]
) -> None:
    write_training_rows(folder / "rows.jsonl.gz", (row for one, row in good if not one.apart))
    kept = [(Query(f"q{at}", row.query), one) for at, (one, row) in enumerate(good) if one.apart]
    counts.update(questions_to_train_on=len(good) - len(kept), questions_kept_apart=len(kept))
    corpus = (Document(one.id, one.text) for one in passages)
    judged = [Qrel(query.id, one.id, 1) for query, one in kept]
    write_collection(folder / "apart", corpus, [query for query, _ in kept], {"test": judged})
    parts = (one.text[start:end].strip() for one in passages if one.apart for start, end in sentences(one.text))
    # Shorter ones are there by chance in other texts.
    texts = [*(query.text for query, _ in kept), *(part for part in parts if weight(comparable(part)) >= NEAR_WEIGHT)]
    write_lines(folder / "held-out.jsonl.gz", ({"text": text} for text in dict.fromkeys(texts)))
    write_json(folder / "report.json", dict(counts))
