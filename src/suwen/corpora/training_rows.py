"""Training rows on disk: FlagEmbedding's and CARE's jsonl, AutoMIR's and CardioEmbed's shapes. Making them is curate's.

A row's ``prompt`` is put before its query when it is trained on, and before its documents as well when its ``type``
begins with "symmetric". So the texts themselves must not begin with it, and of the rows of one type in one file either
all have a prompt or none has: half a data set with a prompt would teach the model to tell the halves apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.files import CorpusError
from suwen.corpora.tabular import records
from suwen.durable import write_lines
from suwen.text.clean import clean


class TrainingRowError(CorpusError):
    """A training row cannot be used; the message names the file, the line and the fix."""


class TrainingRow(NamedTuple):
    """A query, what answers it and what does not; scores, where there are any, are one for each text.

    ``hypothetical`` are documents that a language model wrote for the query: a retriever is asked with them beside it.
    """

    query: str
    pos: tuple[str, ...]
    neg: tuple[str, ...] = ()
    prompt: str = ""
    type: str = ""
    pos_scores: tuple[float, ...] = ()
    neg_scores: tuple[float, ...] = ()
    hypothetical: tuple[str, ...] = ()


#: What the known shapes call a row's parts, the usual name first. CARE's published rows say None for "no prompt".
_NAMES = {
    "query": ("query", "anchor", "text"),
    "pos": ("pos", "positive", "positives", "doc"),
    "neg": ("neg", "negatives", "negative"),
    "hypothetical": ("hypothetical", "rewrite_query"),
}
_NO_PROMPT = (None, "", "None")


def read_training_rows(path: Path | str) -> Iterator[TrainingRow]:
    """Read training rows one at a time from jsonl, packed (``.gz``) or not.

    Three shapes are known by their fields: ``{query, pos, neg, prompt, type, pos_scores, neg_scores}`` of FlagEmbedding
    and CARE, ``{id, text, rewrite_query, doc}`` of AutoMIR (the rewrite is a hypothetical document, and the text the
    query) and ``{anchor, positive, negatives}`` of CardioEmbed. Texts are cleaned; other fields are
    passed over.

    Raises:
        TrainingRowError: A row has no positive, an empty text, scores of another number than its texts, or a prompt
            where the module's rule forbids one.
        CorpusError: The file cannot be read.
    """
    prompted: dict[str, tuple[bool, str]] = {}
    for place, record in records(Path(path), "jsonl"):
        row = to_training_row(record, place)
        has, since = prompted.setdefault(row.type, (bool(row.prompt), place))
        if has != bool(row.prompt):
            raise TrainingRowError(
                f"{place}: this row has {'no' if has else 'a'} prompt, unlike {since} of the same type {row.type!r}; "
                "give every row of a type its prompt or none, or write two files"
            )
        yield row


def to_training_row(record: Mapping[str, Any], place: str) -> TrainingRow:
    """Make a row of one JSON object; ``place`` is said in errors.

    >>> to_training_row({"anchor": "心衰", "positive": "心力衰竭", "negatives": ["心绞痛"]}, "rows:1")[:3]
    ('心衰', ('心力衰竭',), ('心绞痛',))
    """
    query = _text(_first(record, "query"), place, "query")
    pos, neg, hypothetical = (_all(_first(record, part), place, part) for part in ("pos", "neg", "hypothetical"))
    if not pos:
        raise TrainingRowError(
            f"{place}: the row has no positive; give at least one text under pos, positive or doc, or drop the row"
        )
    prompt, kind = record.get("prompt"), record.get("type")
    row = TrainingRow(
        query,
        pos,
        neg,
        "" if prompt in _NO_PROMPT else _text(prompt, place, "prompt", raw=True),
        "" if kind is None else _text(kind, place, "type"),
        _scores(record.get("pos_scores"), len(pos), place, "pos"),
        _scores(record.get("neg_scores"), len(neg), place, "neg"),
        hypothetical,
    )
    start = row.prompt.strip()
    if start and any(text.startswith(start) for text in (row.query, *row.pos, *row.neg)):
        raise TrainingRowError(
            f"{place}: a text begins with the row's prompt, which would then stand twice; take it off the text"
        )
    return row


def write_training_rows(path: Path | str, rows: Iterable[TrainingRow]) -> int:
    """Write rows in FlagEmbedding's shape, packed where the name ends in ``.gz``, and count them.

    The file is there whole or not at all; an empty part of a row is left out.
    """

    def checked() -> Iterator[dict[str, Any]]:
        for number, row in enumerate(rows, 1):
            if not row.query or not row.pos or not all((*row.pos, *row.neg, *row.hypothetical)):
                raise TrainingRowError(f"{path}:{number}: a row needs a query, a positive and no empty text: {row}")
            yield {name: value for name, value in row._asdict().items() if value}

    return write_lines(Path(path), checked())


def _first(record: Mapping[str, Any], part: str) -> Any:
    """The value of a part under the first of its names that holds something."""
    values = [record[name] for name in _NAMES[part] if record.get(name) not in (None, [])]
    return values[0] if values else None


def _text(value: Any, place: str, part: str, *, raw: bool = False) -> str:
    if not isinstance(value, str):
        kind = "missing" if value is None else f"of type {type(value).__name__}"
        raise TrainingRowError(f"{place}: {part} is {kind}, not a text; write it as a JSON string")
    text = clean(value)
    if not text:
        raise TrainingRowError(f"{place}: {part} has an empty text; fill it in or drop it")
    return value if raw else text


def _all(value: Any, place: str, part: str) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(_text(item, place, part) for item in (value if isinstance(value, list) else [value]))


def _scores(value: Any, count: int, place: str, part: str) -> tuple[float, ...]:
    if value in (None, []):
        return ()
    if not isinstance(value, list) or not all(
        isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score) for score in value
    ):
        raise TrainingRowError(f"{place}: {part}_scores is not a list of numbers; write one for each {part}, or none")
    if len(value) != count:
        raise TrainingRowError(
            f"{place}: {len(value)} {part}_scores for {count} {part} texts; write one for each, or leave them out"
        )
    return tuple(float(score) for score in value)
