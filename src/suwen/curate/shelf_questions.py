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
from suwen.curate.screening import Screen, draw, in_words
from suwen.durable import new_folder, write_json, write_lines
from suwen.llm.asker import Asker
from suwen.llm.token_estimate import estimate_tokens
from suwen.text.segment import language_of
from suwen.text.split import sentences

#: Estimated tokens of a passage; of fewer documents than these, passages are kept apart.
SIZE, FEW = 200, 12
#: One document in four is kept apart, of a large shelf one in so many that about 250 passages are, at least one in 20.
APART, ENOUGH, FEWEST = 4, 250, 20
_SHORTEST = 40
#: Who asks, by the passage's language: people who know a subject ask otherwise than those who have a trouble.
ASKERS = {
    "zh": (
        "患者或家属，用一句简短的口语提问",
        "医生、护士或医学生，用专业说法提问",
        "患者，先用一两句话说明自己的情况（年龄、症状、用药等），再提问",
    ),
    "en": (
        "a patient or a relative, in one short plain question",
        "a doctor, a nurse or a student of medicine, in professional words",
        "a patient who first tells their own situation in a sentence (age, symptoms, drugs), then asks",
    ),
}


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
    one_in = min(max(APART, len(cut) // ENOUGH), FEWEST)
    return [
        ShelfPassage(part.id, part.content, _is_apart(part.id if few else part.document_id, one_in)) for part in cut
    ]


def _is_apart(id_: str, one_in: int) -> bool:
    return int(hashlib.sha1(id_.encode("utf-8", "replace")).hexdigest(), 16) % one_in == 0


def most_asked() -> int:
    """How many questions a passage gets at the most."""
    return min(map(len, ASKERS.values()))


def _who(language: str, turn: int) -> str:
    askers = ASKERS.get(language, ASKERS["en"])
    return askers[turn % len(askers)]


def write_questions(
    passages: Sequence[ShelfPassage], to: Path, asker: Asker, *, count: int, seed: int = 0
) -> Counter[str]:
    """Have a model ask for passages, and write ``rows.jsonl.gz``, the collection ``apart/`` and ``held-out.jsonl.gz``.

    Args:
        passages: Of the shelf.
        to: The folder; a dry run writes none.
        asker: The model.
        count: The most questions; two in five of them are for passages kept apart, one each. Of the others, a passage
            is asked about by as many of :data:`ASKERS` as there are questions for.
        seed: Of the draw.

    Raises:
        CurateError: No question is left on one of the sides.
    """
    told = [one for one in passages if len(one.text) >= _SHORTEST]
    apart = draw([one for one in told if one.apart], max(1, 2 * count // 5), seed)
    left = max(1, count - len(apart))
    trained = draw([one for one in told if not one.apart], left, seed)
    each = min(left // max(1, len(trained)), most_asked())
    chosen = [(one, turn) for turn in range(each) for one in trained] + [(one, at) for at, one in enumerate(apart)]
    requests = [
        asker.request(
            "shelf-query",
            {"asker": _who(language_of(one.text), turn), "passage": one.text},
            key=str(at),
            long=("passage",),
            language=language_of(one.text),
        )
        for at, (one, turn) in enumerate(chosen)
    ]
    said = asker.ask("questions", requests, lambda data: str(data["query"]), lambda request: request.key)
    screen = Screen("passages", "unanswered", by_model=True)
    screen.counts.update(passages=len(chosen), unanswered=len(chosen) - len(said))
    if asker.dry_run:
        return screen.counts
    asked = [
        (chosen[int(key)][0], screen.passed(TrainingRow(query, (chosen[int(key)][0].text,))))
        for key, query in said.items()
    ]
    good = [(one, row) for one, row in asked if row is not None]
    if not any(one.apart for one, _ in good) or all(one.apart for one, _ in good):
        raise CurateError(
            f"{to} is not written: of {len(passages)} passages, no question is left to train on, or none to measure "
            f"with ({in_words(screen.counts)}): add books, ask for more questions, or take another model"
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
