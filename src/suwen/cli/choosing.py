"""Verbs of ``suwen curate`` that choose and count, and ask no model: ``mine``, ``round-trip`` and others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from suwen.choices import SEEDS, Mode
from suwen.cli.model_options import funnel_lines
from suwen.cli.options import Json, Ocr, OcrModel, PairFolder, QueryTier
from suwen.cli.output import say, show
from suwen.cli.page_reading import scan_reading
from suwen.cli.source_notes import SourceNotes

if TYPE_CHECKING:
    from suwen.curate.diversify import Selected
    from suwen.curate.shelf_report import ShelfReport

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="An index of the passages.")]
Seed = Annotated[int, typer.Option("--seed", help="Of every draw.")]
HeldOutPath = Annotated[Path | None, typer.Option("--held-out", help='Texts never to train on: jsonl of {"text"}.')]
Seeds = Annotated[int, typer.Option("--seeds", min=0, help="So many of the first are seeds, kept unjudged.")]


def mine(
    source: Annotated[Path, typer.Argument(metavar="ROWS", help="Training rows: jsonl, packed or not.")],
    index: IndexPath,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The rows with negatives.")],
    first: Annotated[int, typer.Option("--first", min=1, help="The first rank looked at.")] = 5,
    last: Annotated[int, typer.Option("--last", min=1, help="The last rank looked at.")] = 100,
    margin: Annotated[float, typer.Option("--margin", help="Of the positive's score, at the most; 0 for any.")] = 0.95,
    count: Annotated[int, typer.Option("--count", min=1, help="Negatives drawn for a row.")] = 8,
    mode: Annotated[Mode, typer.Option("--mode", help="How the index is searched.")] = "dense",
    tier: QueryTier = None,
    held_out: HeldOutPath = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Add hard negatives to training rows from an index, without asking a model.

    Example: `suwen curate mine rows.jsonl my-index mined.jsonl.gz --count 15`
    """
    from suwen.curate.leakage import HeldOut
    from suwen.curate.mine import Window
    from suwen.curate.row_files import mine_file
    from suwen.retrieve.retriever import Index

    window = Window(first, last, margin or None, count)
    with Index.open(index) as opened:
        kept_out = HeldOut.read(held_out) if held_out else None
        counts = mine_file(source, opened, to, window, tier=tier, mode=mode, seed=seed, held_out=kept_out)
    show_counts(counts, to, json)


def round_trip(
    source: Annotated[Path, typer.Argument(metavar="ROWS", help="Training rows: jsonl, packed or not.")],
    index: IndexPath,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The rows that are kept.")],
    top: Annotated[int, typer.Option("--top", min=1, help="The passage must be among so many hits.")] = 3,
    mode: Annotated[Mode, typer.Option("--mode", help="How the index is searched; lexical is BM25.")] = "dense",
    tier: QueryTier = None,
    json: Json = False,
) -> None:
    """Keep the rows whose query finds its own passage again in an index.

    Example: `suwen curate round-trip synthetic.jsonl my-index kept.jsonl.gz`
    """
    from suwen.curate.row_files import round_trip_file
    from suwen.retrieve.retriever import Index

    with Index.open(index) as opened:
        counts = round_trip_file(source, opened, to, top=top, tier=tier, mode=mode)
    show_counts(counts, to, json)


def sample(
    source: Annotated[Path, typer.Argument(metavar="ROWS", help="Training rows: jsonl, packed or not.")],
    work: Annotated[Path, typer.Argument(metavar="WORK", help="The folder of the sample and its labels.")],
    size: Annotated[int, typer.Option("--size", min=1, help="How many rows.")] = 200,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw rows for people to check; then `suwen jury review serve WORK`, and `agreement WORK`.

    Example: `suwen curate sample synthetic.jsonl check --size 200`
    """
    from suwen.curate.row_files import sample_rows
    from suwen.jury.jury_folder import JuryFolder

    show_counts({"rows_to_check": sample_rows(source, JuryFolder(work), size, seed=seed)}, work, json)


def diversify(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A collection, or jsonl of queries or documents.")],
    to: Annotated[Path, typer.Argument(metavar="OUT", help="What was kept, as jsonl.")],
    kind: Annotated[Literal["queries", "documents"], typer.Option("--kind", help="What is chosen from.")] = "queries",
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="From which cosine two are alike [0.85; documents 0.78].")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Nearest neighbours looked at.")] = 5,
    most: Annotated[int, typer.Option("--most", min=0, help="So many of them may be alike.")] = 1,
    seeds: Seeds = SEEDS,
    pair: PairFolder = None,
    tier: QueryTier = None,
    json: Json = False,
) -> None:
    """Choose diverse queries or documents: what has too many near neighbours already is left out.

    Example: `suwen curate diversify my-collection documents.jsonl --kind documents --seeds 5000`
    """
    from suwen.curate.diversify import DOCUMENTS, QUERIES, Diversity
    from suwen.curate.row_files import choose_diverse
    from suwen.encoders.pair import Pair

    usual = QUERIES if kind == "queries" else DOCUMENTS
    wanted = Diversity(k, usual.threshold if threshold is None else threshold, most)
    selected = choose_diverse(source, to, Pair.load(pair), wanted, tier=tier, kind=kind, seeds=seeds)
    warn_seeds(selected)
    show_counts(asdict(selected), to, json)


def statistics(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help="Collections, or files of training rows.")],
    split: Annotated[str | None, typer.Option("--split", help="Only the queries this split judges.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="An encoding of tiktoken, such as cl100k_base [the pair's].")
    ] = None,
    pair: PairFolder = None,
    json: Json = False,
) -> None:
    """Count collections and training rows as CARE's Table 7 does: queries, documents, mean tokens, mean positives.

    Example: `suwen curate statistics my-collection rows.jsonl.gz --tokenizer cl100k_base`
    """
    from suwen.curate.card import statistics as counted
    from suwen.curate.card import table, token_counter

    tokens = token_counter(tokenizer, pair)
    lines = [counted(source, tokens, split) for source in sources]
    show([asdict(line) for line in lines], table(lines), json=json)


def shelf(
    books: Annotated[Path, typer.Argument(metavar="SHELF", help="A folder of books: PDF, Word, EPUB, HTML, CNXML.")],
    near: Annotated[
        float, typer.Option("--near", help="From which similarity two sentences are nearly the same.")
    ] = 0.7,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="An encoding of tiktoken, such as cl100k_base [the pair's].")
    ] = None,
    ocr: Ocr = True,
    ocr_model: OcrModel = None,
    pair: PairFolder = None,
    json: Json = False,
) -> None:
    """Count a shelf's sentences, find repeated and nearly repeated ones, and say how one-sided it is.

    As CardioEmbed's section 3.1, with the sources' shares and how often women, men, children, older people are named.

    Example: `suwen curate shelf books/ --near 0.8`
    """
    from suwen.curate.card import token_counter
    from suwen.curate.shelf_report import shelf_report
    from suwen.curate.shelf_sentences import read_shelf

    tokens, notes = token_counter(tokenizer, pair), SourceNotes(False)
    with scan_reading(ocr, ocr_model) as scans:
        made = shelf_report(read_shelf(books, notes.page, **scans._asdict()), tokens, near)
    show({**made.as_dict(), **notes.counts()}, *_shelf_lines(made), json=json)
    notes.tell()


def _shelf_lines(made: ShelfReport) -> list[str]:
    within = "{within:,} within a book, {across:,} across books"
    return [
        f"{made.sentences:,} sentences, {made.unique:,} of them unique",
        f"repeated: {within.format(**made.repeated)}",
        f"nearly repeated: {within.format(**made.near)}, in {made.groups:,} groups that share a side of every split",
        f"{made.words:,} words, {made.distinct_words:,} of them distinct; {made.tokens:,} tokens, "
        f"{made.mean_tokens} a sentence (SD {made.sd_tokens})",
        *(f"{name}: {count:,} sentences, {count / made.unique:.1%}" for name, count in made.books.items()),
        "sentences that name people: " + ", ".join(f"{name} {count:,}" for name, count in made.people.items()),
        *made.remarks,
    ]


def show_counts(counts: Mapping[str, int], to: Path, json: bool) -> None:
    """Print what became of what was read."""
    show({**counts, "out": str(to)}, *funnel_lines(counts), f"written to {to}", json=json)


def warn_seeds(selected: Selected) -> None:
    """Say so where the selection had nothing to judge."""
    if selected.seeds and not selected.judged:
        say(f"all {selected.seeds:,} were seeds, so none was judged redundant: give a lower --seeds")


VERBS = (mine, round_trip, sample, diversify, statistics, shelf)
