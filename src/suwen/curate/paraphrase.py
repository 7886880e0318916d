"""Paraphrase triplets of a shelf of books by two or more models (CardioEmbed section 2): a folder to train from.

The rules are elsewhere: sentences in ``shelf_sentences``, what a paraphrase must keep in ``paraphrase_checks``, sides
and negatives in ``triplets``. Replies are kept by ``llm/``: a run that was stopped asks nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suwen.choices import SHARES
from suwen.corpora.book_pages import PictureReader
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut
from suwen.curate.paraphrase_checks import KEPT, refusal
from suwen.curate.screening import draw, in_words
from suwen.curate.shelf_sentences import OnPage, OnRead, ShelfSentence, once_each, read_shelf
from suwen.curate.suite_file import SuiteTask, suite_text
from suwen.curate.triplets import (
    SIDES,
    Triplet,
    Way,
    by_book,
    distinct,
    drop_leaks,
    search_texts,
    split_sentences,
    with_negatives,
)
from suwen.durable import write_json, write_lines, write_text
from suwen.encoders.pair import Pair
from suwen.llm.asker import Asker
from suwen.text.fold import fold
from suwen.text.segment import language_of

#: The name of the rows in ``rows/``, and of the test in the suite.
SOURCE = "paraphrase"
_REASONS = ("empty", "language", "copy", "length", *KEPT, "opposites", "names")


@dataclass(frozen=True)
class Paraphrasing:
    """How triplets are made.

    Attributes:
        shares: Of training, validation and test.
        way: How negatives are found.
        negatives: How many a row has.
        count: Draw so many sentences; all unless given.
        names: Names that must stay, beside the known drugs.
        each: Have every model paraphrase every sentence; else a sentence goes to the next model where one fails.
        near: From which similarity of letters two sentences share a side.
        pair: Encodes sentences where negatives are mined.
        apart: Texts that are kept apart already: sentences that hold one are validation and test, all others training.
        seed: Of every draw.
    """

    shares: Sequence[float] = SHARES
    way: Way = "far"
    negatives: int = 1
    count: int | None = None
    names: frozenset[str] = frozenset()
    each: bool = False
    near: float = 0.7
    pair: Path | None = None
    apart: HeldOut | None = None
    seed: int = 0


def paraphrase_shelf(
    shelf: Path,
    to: Path,
    askers: Sequence[Asker],
    settings: Paraphrasing,
    on_page: OnPage,
    *,
    held_out: HeldOut | None = None,
    ocr: bool = True,
    pictures: PictureReader | None = None,
    on_read: OnRead | None = None,
) -> dict[str, Any]:
    """Write a folder of triplets: ``rows/``, ``validation.jsonl.gz``, ``test.jsonl.gz``, texts, a suite, a report.

    Args:
        shelf: The books.
        to: The folder; it can be ``data.root`` of a recipe. A dry run writes none.
        askers: The models.
        settings: How.
        on_page: Told of pages that are left out.
        held_out: What must not be trained on beside the sides kept apart.
        ocr: Whether scans are read.
        pictures: Who reads them, if not the models of ``suwen[ocr]``.
        on_read: Told how far a book is read.

    Returns:
        The report: counts of every step and refusal, and of each book's triplets.
    """
    if not askers:
        raise CurateError("name at least one model to paraphrase with; the paper has two")
    counts: Counter[str] = Counter()
    sentences = once_each(read_shelf(shelf, on_page, ocr=ocr, pictures=pictures, on_read=on_read), counts)
    if settings.count is not None:
        sentences = draw(sentences, settings.count, settings.seed)
    if held_out is not None:
        kept = [one for one in sentences if held_out.hit(one.text) is None]
        counts["held_out"], sentences = len(sentences) - len(kept), kept
    if not sentences:
        raise CurateError(
            f"{shelf}: no sentence is left to paraphrase ({in_words(counts)}): look at the pages left out"
        )
    counts["sentences_asked_about"] = len(sentences)
    written = list(distinct(paraphrases(sentences, askers, settings, counts)))
    if askers[0].dry_run:
        return {"counts": dict(counts)}
    if not written:
        raise CurateError(
            f"{to} is not written: no paraphrase passed its checks ({in_words(counts)}); take another model"
        )
    sides = sided(written, settings, counts)
    report = {"counts": dict(counts), "by_book": by_book(sides), "by_model": _by_model(sides)}
    write_folder(to, sides, report)
    return report


def paraphrases(
    sentences: Sequence[ShelfSentence], askers: Sequence[Asker], settings: Paraphrasing, counts: Counter[str]
) -> Iterator[Triplet]:
    """What passes of what the models write: sentences are dealt out, and those refused go to the next model."""
    if askers[0].dry_run:  # nobody replies, and nothing is refused
        for number, asker in enumerate(askers):
            _asked(asker, [one for one in enumerate(sentences) if settings.each or one[0] % len(askers) == number])
        return
    counts.update(dict.fromkeys(("unanswered", *(f"refused_{reason}" for reason in _REASONS)), 0))
    left = list(enumerate(sentences))
    for turn in range(len(askers)):
        again: list[tuple[int, ShelfSentence]] = []
        for number, asker in enumerate(askers):
            own = left if settings.each else [one for one in left if (one[0] + turn) % len(askers) == number]
            for at, sentence, paraphrase in _asked(asker, own):
                reason = "unanswered" if paraphrase is None else refusal(sentence.text, paraphrase, settings.names)
                if paraphrase is not None and reason is None:
                    yield Triplet(sentence, paraphrase, asker.model)
                    continue
                counts[reason if reason == "unanswered" else f"refused_{reason}"] += 1
                again.append((at, sentence))
        if settings.each or not again:
            return
        left = again


def _asked(
    asker: Asker, sentences: Iterable[tuple[int, ShelfSentence]]
) -> Iterator[tuple[int, ShelfSentence, str | None]]:
    by_key = {str(at): sentence for at, sentence in sentences}
    requests = [
        asker.request(
            "paraphrase",
            {"sentence": sentence.text},
            key=key,
            long=("sentence",),
            language=language_of(sentence.text),
        )
        for key, sentence in by_key.items()
    ]
    written = asker.ask(
        f"paraphrases by {asker.model}", requests, lambda data: str(data["paraphrase"]).strip(), lambda one: one.key
    )
    return ((int(key), sentence, written.get(key)) for key, sentence in by_key.items())


def sided(written: Sequence[Triplet], settings: Paraphrasing, counts: Counter[str]) -> dict[str, list[Triplet]]:
    """Triplets on their sides, with negatives; what would leak out of the sides kept apart is dropped and counted."""
    sentences = dict.fromkeys(one.sentence for one in written)
    split = _split(list(sentences), settings)
    side_of = {sentence: side for side, members in split.items() for sentence in members}
    sides = {side: [one for one in written if side_of[one.sentence] == side] for side in SIDES}
    counts.update(holds_a_test_text=0, nearly_a_test_text=0)
    sides["train"] = drop_leaks(sides["train"], [*sides["validation"], *sides["test"]], counts)
    if not sides["train"]:
        raise CurateError(
            f"no triplet is left to train on ({in_words(counts)}): give more sentences, or a larger share"
        )
    for side, own in sides.items():
        search = _search(own, settings.pair) if settings.way == "mined" and own else None
        sides[side] = list(with_negatives(own, settings.way, settings.negatives, seed=settings.seed, search=search))
        counts[side] = len(own)
        counts[f"{side}_without_a_negative"] = sum(not one.negatives for one in sides[side])
    return sides


def _split(sentences: list[ShelfSentence], settings: Paraphrasing) -> dict[str, list[ShelfSentence]]:
    """The sides by their shares, or by what is kept apart already."""
    draws: dict[str, Any] = {"seed": settings.seed, "near": settings.near}
    if settings.apart is None:
        return split_sentences(sentences, settings.shares, **draws)
    apart = [one for one in sentences if settings.apart.hit(one.text) is not None]
    halves = split_sentences(apart, (0.5, 0.5), **draws)
    known = set(apart)
    train = [one for one in sentences if one not in known]
    return {"train": train, "validation": halves["train"], "test": halves["validation"]}


def _search(own: Sequence[Triplet], pair: Path | None) -> Any:
    encoder = Pair.load(pair).encoder()
    return search_texts([one.sentence.text for one in own], encoder.encode_queries, encoder.encode_documents)


def write_folder(to: Path, sides: dict[str, list[Triplet]], report: dict[str, Any]) -> None:
    """Write triplets as a recipe's data folder; the rows, by which a finished folder is known, come last."""
    to.mkdir(parents=True, exist_ok=True)
    apart = [*sides["validation"], *sides["test"]]
    for side in ("validation", "test"):
        write_lines(to / f"{side}.jsonl.gz", (one.record() for one in sides[side]))
    texts = (text for one in apart for text in (one.sentence.text, one.positive))
    write_lines(to / "held-out.jsonl.gz", ({"text": text} for text in texts))
    train = sides["train"]
    said = dict.fromkeys(text for one in train for text in (one.sentence.text, one.positive))
    write_lines(to / "texts.jsonl.gz", ({"text": text, "kind": "sentence"} for text in said))
    if sides["test"]:
        task = SuiteTask("paraphrase", "test.jsonl.gz", {"queries": len(sides["test"])}, name=SOURCE)
        language = language_of(" ".join(one.sentence.text for one in train))
        write_text(to / "suite.toml", suite_text(SOURCE, [task], language=language))
    write_json(to / "report.json", report)
    (to / "rows").mkdir(exist_ok=True)
    write_lines(to / "rows" / f"{SOURCE}.jsonl.gz", (one.record() for one in train))


def _by_model(sides: dict[str, list[Triplet]]) -> dict[str, int]:
    return dict(Counter(one.model for members in sides.values() for one in members))


def read_names(path: Path) -> frozenset[str]:
    """Names that paraphrases must keep: one a line, or several separated by commas."""
    text = Path(path).read_text(encoding="utf-8")
    return frozenset(fold(name.strip()) for line in text.splitlines() for name in line.split(",") if name.strip())
