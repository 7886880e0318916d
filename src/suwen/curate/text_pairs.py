"""Pairs for contrastive pre-training from plain text (BMRetriever section 3.2): title and text, or two passages of one.

A document with a title gives its title as the query and its text as the positive; of one without, two passages that
share nothing are drawn. Corpora are mixed by weight and streamed: memory holds one document of each. Negatives are the
batch's, and equal texts in a batch are masked by training.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from suwen.choices import LONGEST_TEXT, PAIR_SIZE
from suwen.corpora.files import not_there
from suwen.corpora.readers import read_documents
from suwen.corpora.record_fields import TEXT_REMEDY
from suwen.corpora.records import Document
from suwen.corpora.training_rows import TrainingRow
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.screening import Screen, check_output
from suwen.text.split import Span, sentences
from suwen.toml_keys import explain_keys

#: The paper's, for every pair (appendix B.1), in the form of the instructions of its tables: without a stop at the end.
INSTRUCTION = "Given a query, retrieve passages that are relevant to the query"
#: Characters of a drawn passage, at least.
SHORTEST = 40
_REMEDY = 'name the one that is meant in a mix of corpora, under its path, such as text = "abstract"'


class Corpus(BaseModel):
    """One corpus of a mix; ``crops`` takes its documents as untitled ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    text: str | None = None
    title: str | None = None
    crops: bool = False


class _Mix(BaseModel):
    """What a mix file holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpora: list[Corpus] = Field(min_length=1)


def read_mix(path: Path) -> list[Corpus]:
    """The corpora of a mix: a TOML file of ``[[corpora]]``, paths from its own folder; any other path is the only one.

    Raises:
        CurateError: The file is not TOML, or has a key or a weight that makes no sense.
    """
    if path.suffix != ".toml":
        return [Corpus(path=path)]
    if not path.is_file():
        raise CurateError(not_there(path))
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        mix = _Mix.model_validate(data)
    except ValidationError as problem:
        keys = ", ".join(name for name in Corpus.model_fields if name != "path")
        raise CurateError(
            f"{explain_keys(path, data, problem)}\nA mix has [[corpora]], each with a path and, where wanted, {keys}."
        ) from None
    except (OSError, ValueError) as problem:
        raise CurateError(f"{path}: no TOML file in UTF-8 ({problem}): correct that line") from None
    return [corpus.model_copy(update={"path": path.parent / corpus.path}) for corpus in mix.corpora]


def make_pairs(
    corpora: Sequence[Corpus],
    to: Path,
    *,
    count: int | None = None,
    size: int = PAIR_SIZE,
    longest: int = LONGEST_TEXT,
    seed: int = 0,
    held_out: HeldOut | None = None,
    progress: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Write the pairs of a mix, and count what they came from.

    Args:
        corpora: What is mixed. A corpus is read once, in its order; where one ends, the others go on among themselves.
        to: The rows.
        count: So many pairs; as many as there are unless given.
        size: The most characters of a drawn passage.
        longest: The most characters of a titled text; of a longer one the beginning is kept.
        seed: Of every draw.
        held_out: What must not be trained on.
        progress: See :class:`~suwen.curate.screening.Screen`.
        tell: Called with the reason why the first record of a corpus that cannot be read cannot.
    """
    check_output(to, *(corpus.path for corpus in corpora))
    screen = Screen(
        *("documents", "unreadable", "too_short"),
        *(f"pairs of {corpus.path}" for corpus in corpora),
        held_out=held_out,
        longest=longest,
        repeats=True,
        progress=progress,
    )
    counts, dice = screen.counts, random.Random(f"{seed}:pairs")

    def skipped(corpus: Corpus, why: str) -> None:
        why = why.replace(TEXT_REMEDY, _REMEDY)
        screen.unreadable(why)
        counts[f"unreadable of {corpus.path}"] += 1
        if counts[f"unreadable of {corpus.path}"] == 1:
            tell(why)

    def made() -> Iterator[TrainingRow]:
        for corpus, document in mixed(corpora, dice, skipped):
            if counts["rows"] == count:
                return
            counts["documents"] += 1
            pair = pair_of(document, dice, size, crops=corpus.crops)
            if pair is None:
                counts["too_short"] += 1
                continue
            before = counts["rows"]
            yield TrainingRow(pair[0], (pair[1],), (), INSTRUCTION)
            # Whoever asks for the next one has screened this one.
            counts[f"pairs of {corpus.path}"] += counts["rows"] - before

    screen.write(to, made())
    return counts


def mixed(
    corpora: Iterable[Corpus], dice: random.Random, on_skip: Callable[[Corpus, str], None]
) -> Iterator[tuple[Corpus, Document]]:
    """Documents of corpora, each next one from a corpus drawn by its weight; ``on_skip`` hears what cannot be read."""
    streams = [
        (
            one,
            read_documents(
                one.path,
                text_field=one.text,
                title_field=one.title,
                on_skip=partial(on_skip, one),
            ),
        )
        for one in corpora
    ]
    while streams:
        drawn = dice.choices(streams, [one.weight for one, _ in streams])[0]
        if (document := next(drawn[1], None)) is None:
            streams.remove(drawn)
        else:
            yield drawn[0], document


def pair_of(
    document: Document, dice: random.Random, size: int = PAIR_SIZE, *, crops: bool = False
) -> tuple[str, str] | None:
    """The query and the positive of a document; None where it is too short. A title without a letter or digit is none.

    >>> pair_of(Document("1", "Gout. A painful arthritis of the joints, often of the toe.", "Gout."), random.Random(0))
    ('Gout.', 'A painful arthritis of the joints, often of the toe.')
    """
    # MS MARCO's corpus has "-" for the title that a passage lacks.
    if crops or not comparable(document.title):
        return two_passages(document.text, dice, size)
    # A text that begins with its title would be found by that alone.
    text = document.text.removeprefix(document.title).strip()
    return (document.title, text) if len(text) >= SHORTEST else None


def two_passages(text: str, dice: random.Random, size: int = PAIR_SIZE) -> tuple[str, str] | None:
    """Two passages of a text that share nothing, in either order, of whole sentences or else words; None if too short.

    >>> text = "Gout is an arthritis that often begins at night. It comes from crystals of uric acid in the joint."
    >>> sorted(two_passages(text, random.Random(0)))
    ['Gout is an arthritis that often begins at night.', 'It comes from crystals of uric acid in the joint.']
    """
    units = sentences(text)
    if len(units) < 2:
        units = [Span(*match.span()) for match in re.finditer(r"\S+", text)]
    for _ in range(5 if len(units) > 1 else 0):
        middle = dice.randrange(1, len(units))
        drawn = [_passage(text, part, dice, size) for part in (units[:middle], units[middle:])]
        if min(map(len, drawn)) >= SHORTEST:
            return (drawn[0], drawn[1]) if dice.random() < 0.5 else (drawn[1], drawn[0])
    return None


def _passage(text: str, units: Sequence[Span], dice: random.Random, size: int) -> str:
    """A run of units around a drawn one, of a length that is drawn too."""
    first = last = dice.randrange(len(units))
    room = dice.randint(min(SHORTEST, size), size)
    while last + 1 < len(units) and units[last + 1].end - units[first].start <= room:
        last += 1
    while first and units[last].end - units[first - 1].start <= room:
        first -= 1
    return text[units[first].start : min(units[last].end, units[first].start + size)]
