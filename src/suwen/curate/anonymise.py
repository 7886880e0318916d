"""The optional model's pass over masked texts: what the rules of ``text/mask`` missed, checked by rules again.

The model sees only texts that the rules have masked already. What it names is masked where it stands there word for
word and is plausible; then the rules run once more, and what still looks personal is reported.
"""

from __future__ import annotations

import csv
import math
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from suwen.corpora.masked_records import mask_record
from suwen.corpora.readers import read_records
from suwen.corpora.record_fields import document_fields
from suwen.corpora.records import Document
from suwen.curate import CurateError
from suwen.curate.screening import check_output
from suwen.durable import write_lines
from suwen.llm.asker import LEAST_TOKENS, Asker
from suwen.llm.requests import Request, estimate
from suwen.llm.token_estimate import estimate_tokens
from suwen.text.mask import KINDS, MASK, Masker, Span, names_a_thing, validate
from suwen.text.split import sentences

_HAN = re.compile("[\u3400-\u9fff]")
_COLUMNS = ("document", "text", "masked by rules", "masked by the model", "still suspicious", "right")
_COUNTED = ("documents", "by_rules", "by_model", "refused", "suspicious", "incomplete", "to_check", "left_out")
_LONGEST = {"name": 40, "address": 120}
_PLAUSIBLE: dict[str, re.Pattern[str]] = {
    "email": re.compile("@"),
    # A word alone is no number of anything; an account may be letters.
    "phone": re.compile("[0-9A-Za-z]"),
    **dict.fromkeys(
        ("id_card", "bank_card", "ssn", "birth", "record", "bed"), re.compile("[0-9〇一二三四五六七八九十]")
    ),
}
_WINDOW = 500


class Finding(NamedTuple):
    """Personal data the model named, as it stands in the text."""

    kind: str
    text: str


@dataclass(frozen=True)
class Anonymised:
    """A document without personal data, and how it came about.

    Attributes:
        document: The masked document.
        by_rules: What the rules masked, by kind.
        by_model: What the model's pass masked.
        refused: Findings of the model that were not masked: not in the text, or not plausible.
        left: What still looks personal, by shape alone.
        problems: Why it must not be published: what the rules still find in it.
        complete: Whether the model answered for all of it; True where none was asked.
    """

    document: Document
    by_rules: Counter[str] = field(default_factory=Counter)
    by_model: tuple[Finding, ...] = ()
    refused: tuple[Finding, ...] = ()
    left: tuple[Span, ...] = ()
    problems: tuple[str, ...] = ()
    complete: bool = True


@dataclass
class _Open:
    """A document on its way: masked by rules, with the pieces the model is shown."""

    document: Document
    masker: Masker
    by_rules: Counter[str]
    pieces: list[str]
    problems: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    answered: int = 0


def anonymise(documents: Iterable[Document], asker: Asker | None = None) -> Iterator[Anonymised]:
    """Mask documents one by one, in order; each has masks of its own.

    Args:
        documents: The documents, streamed.
        asker: The model that looks for what the rules missed; none unless given.
    """
    stream = iter(documents)
    while window := [_opened(document, asker) for document in islice(stream, _WINDOW)]:
        if asker is not None:
            _ask(window, asker)
        yield from (_closed(one, asked=asker is not None) for one in window)


def anonymise_file(
    source: Path,
    to: Path,
    asker: Asker,
    *,
    sheet: Path | None = None,
    share: float = 0.01,
    seed: int = 0,
    skip_bad: bool = False,
) -> Counter[str]:
    """Mask the documents of a file or collection into a file of JSON lines; a dry run writes nothing.

    Args:
        source: What :func:`~suwen.corpora.readers.read_documents` reads; fields beside id, title and text stay as they
            are, but for what the rules mask in them.
        to: The masked documents.
        asker: The model that looks for what the rules missed.
        sheet: A CSV for people to check: a sample of the documents, and all in which something is still suspicious.
        share: The share of documents that is drawn for it; the paper checks 1%.
        seed: Of the draw, by document.
        skip_bad: Leave out and count a document in which the rules still find something, instead of stopping.

    Raises:
        CurateError: Such a document, by name; nothing is written then.

    Returns:
        How many documents there were, and what was masked, refused, left to doubt and put on the sheet.
    """
    check_output(to, source)
    if not 0 <= share <= 1:
        raise CurateError(f"a share of {share} of the documents cannot be checked: give 0 to 1")
    counts, rows = Counter(dict.fromkeys(_COUNTED, 0)), list[tuple[str, ...]]()
    whole: deque[dict[str, Any]] = deque()

    def records() -> Iterator[dict[str, Any]]:
        for done in anonymise(_documents(source, whole), asker):
            record = whole.popleft()
            if done.problems and not skip_bad:
                raise CurateError(
                    f"the document {done.document.id!r}: {done.problems[0]}; nothing was published: correct it, or "
                    "leave such documents out with --skip-bad"
                )
            counts.update(_counted(done))
            if done.problems:
                continue
            drawn = random.Random(f"{seed}:{done.document.id}").random() < share
            if drawn or done.left or not done.complete:
                rows.append(_sheet_row(done))
            yield _as_it_was(record, done.document)

    if asker.dry_run:
        deque(records(), 0)
        return counts
    write_lines(to, records())
    if sheet is not None:
        counts["to_check"] = len(rows)
        _write_sheet(sheet, rows)
    return counts


def _documents(source: Path, whole: deque[dict[str, Any]]) -> Iterator[Document]:
    """The documents of a source, with their other fields; ``whole`` gets each record as it was."""
    for document, record in read_records(source):
        whole.append(record)
        others = {name: value for name, value in record.items() if name not in document_fields(record, "")}
        yield document._replace(metadata=others)


def _counted(done: Anonymised) -> dict[str, int]:
    if done.problems:
        return {"left_out": 1}
    return {
        "documents": 1,
        "by_rules": done.by_rules.total(),
        "by_model": len(done.by_model),
        "refused": len(done.refused),
        "suspicious": int(bool(done.left)),
        "incomplete": int(not done.complete),
    }


def _write_sheet(sheet: Path, rows: list[tuple[str, ...]]) -> None:
    sheet.parent.mkdir(parents=True, exist_ok=True)
    # The mark at the front is what spreadsheets know UTF-8 by.
    with sheet.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([_COLUMNS, *rows])


def _as_it_was(record: Mapping[str, Any], masked: Document) -> dict[str, Any]:
    """The record with masked texts in their places, and every field that it had under its own name."""
    id_field, text_field, title_field = document_fields(record, "")
    texts = {text_field: masked.text} | ({title_field: masked.title} if title_field else {})
    # An id is left as it was written: a number stays one.
    return {**({} if id_field else {"_id": masked.id}), **record, **masked.metadata, **texts}


def _everywhere(value: Any, change: Callable[[str], str]) -> Any:
    """A value of a record with each text in it changed; a number becomes a text where it is one that is masked."""
    if isinstance(value, Mapping):
        return {name: _everywhere(one, change) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_everywhere(one, change) for one in value]
    # JSON has no word for a number that is none.
    if value is None or isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return value if isinstance(value, bool) else None
    said = value.isoformat() if isinstance(value, date) else str(value)
    changed = change(said)
    return value if isinstance(value, int | float) and changed == said else changed


def _sheet_row(done: Anonymised) -> tuple[str, ...]:
    rules = ", ".join(f"{kind} {count}" for kind, count in sorted(done.by_rules.items()))
    model = ", ".join(finding.kind for finding in done.by_model)
    left = ", ".join(f"{span.kind} at {span.start}" for span in done.left)
    left += "" if done.complete else "; the model did not answer for all of it"
    return done.document.id, done.document.content, rules, model, left, ""


def _opened(document: Document, asker: Asker | None) -> _Open:
    masker = Masker()
    # A field says by its name what stands in it; names of the text are known there and in the title too.
    record = {"metadata": _everywhere(document.metadata, str), "title": document.title, "text": document.text}
    done = mask_record(record, masker)
    masked = document._replace(**done.record)
    # What else the record says goes out, too; the model is not shown it.
    pieces = list(_pieces(masked.content, asker)) if asker is not None else []
    return _Open(masked, masker, done.counts, pieces, done.problems)


def _pieces(text: str, asker: Asker) -> Iterator[str]:
    """The text in pieces that fit the context, cut between sentences where it can be: nothing is left unread."""
    room = asker.config.context - sum(estimate(asker.request("personal", {"text": ""}, key=""), asker.config))
    if room < LEAST_TOKENS:
        raise CurateError(
            f"the context of {asker.model!r} has no room for a text: lower its max_tokens, or take another model"
        )
    start = end = 0
    for sentence in sentences(text):
        # A character is at most three tokens, so a sentence too long for the room is cut by characters.
        for stop in (*range(sentence.start + room // 3, sentence.end, room // 3), sentence.end):
            if end > start and estimate_tokens(text[start:stop]) > room:
                yield text[start:end]
                start = end
            end = stop
    if text[start:].strip():
        yield text[start:]


def _ask(window: list[_Open], asker: Asker) -> None:
    def requests() -> Iterator[Request]:
        for number, one in enumerate(window):
            for place, piece in enumerate(one.pieces):
                yield asker.request("personal", {"text": piece}, key=f"{number}/{place}")

    said = asker.ask(
        "personal data",
        requests(),
        lambda data: [Finding(named["kind"], named["text"].strip()) for named in data["found"]],
        lambda _: [],
    )
    for key, findings in said.items():
        one = window[int(key.partition("/")[0])]
        one.findings += findings
        one.answered += 1


def _closed(one: _Open, *, asked: bool) -> Anonymised:
    taken: list[Finding] = []
    refused: list[Finding] = []
    document = one.document
    # The longest first: a name inside an address must not break it.
    for finding in sorted(set(one.findings), key=lambda one: (-len(one.text), one)):
        word = KINDS[finding.kind][0 if _HAN.search(MASK.sub("", f"{document.title}{document.text}")) else 1]
        put = _replacer(finding.text, f"[{word}{one.masker.counters.get(finding.kind, 0) + 1}]")
        others = _everywhere(document.metadata, put)
        changed = document._replace(title=put(document.title), text=put(document.text), metadata=others)
        if not _plausible(finding, document) or changed == document:
            refused.append(finding)
            continue
        one.masker.counters[finding.kind] = one.masker.counters.get(finding.kind, 0) + 1
        taken.append(finding)
        document = changed
    # A mask can uncover what the rules look for.
    title, text = (one.masker.mask(part).text for part in (document.title, document.text))
    left = [*validate(title, strict=True), *validate(text, strict=True)]

    def checked(part: str) -> str:
        masked = one.masker.mask(part).text
        left.extend(validate(masked, strict=True))
        return masked

    others = _everywhere(document.metadata, checked)
    complete = not asked or one.answered == len(one.pieces)
    final = document._replace(title=title, text=text, metadata=others)
    found = sorted({span.kind for span in (*validate(title), *validate(text))})
    problems = (*one.problems, *(f"the text still has what looks like {kind}" for kind in found))
    return Anonymised(final, one.by_rules, tuple(taken), tuple(refused), tuple(left), problems, complete)


def _plausible(finding: Finding, document: Document) -> bool:
    if finding.kind == "name" and names_a_thing(finding.text, document.content):
        return False  # 帕金森病 is no person, whatever a model says
    shape = _PLAUSIBLE.get(finding.kind)
    short = len(finding.text) <= _LONGEST.get(finding.kind, 60)
    return len(finding.text) > 1 and short and (shape is None or shape.search(finding.text) is not None)


def _replacer(original: str, mask: str) -> Callable[[str], str]:
    """Puts the mask for the original everywhere but inside masks, and Latin words only whole."""
    edges = (r"(?<![A-Za-z0-9])" if _latin(original[:1]) else "", r"(?![A-Za-z0-9])" if _latin(original[-1:]) else "")
    pattern = re.compile(f"({MASK.pattern})|{edges[0]}{re.escape(original)}{edges[1]}")
    return lambda text: pattern.sub(lambda match: match[1] or mask, text) if original else text


def _latin(character: str) -> bool:
    return character.isascii() and character.isalnum()
