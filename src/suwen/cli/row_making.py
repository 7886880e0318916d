"""Verbs of ``suwen curate`` that make training rows of public sets and of plain text: ``convert``, ``pairs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suwen.bench.published_tables import instructions
from suwen.cli.choosing import Seed, show_counts
from suwen.cli.options import Json
from suwen.cli.output import measuring
from suwen.curate.convert import convert as converted
from suwen.curate.leakage import HeldOut
from suwen.curate.screening import LONGEST
from suwen.curate.text_pairs import SIZE, make_pairs, read_mix

Rows = Annotated[Path, typer.Argument(metavar="OUT", help="The training rows: .jsonl or .jsonl.gz.")]
HeldOutPath = Annotated[Path | None, typer.Option("--held-out", help='Texts never to train on: jsonl of {"text"}.')]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Draw so many at random [all].")]
Longest = Annotated[int, typer.Option("--longest", min=20, help="Characters of the longest text; more is cut off.")]


def convert(
    name: Annotated[str, typer.Argument(metavar="SET", help="The data set: medquad, mqp, mednli, msmarco, nq, nli…")],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Its file, a folder of its files, or BEIR's.")],
    to: Rows,
    sets: Annotated[Path | None, typer.Option("--sets", help="A table of data sets of your own (.toml).")] = None,
    split: Annotated[str, typer.Option("--split", help="The judgements taken from BEIR's folder.")] = "train",
    evaluation_sets: Annotated[
        bool, typer.Option("--evaluation-sets", help="Take records of the paper's evaluation sets as well.")
    ] = False,
    count: Count = None,
    held_out: HeldOutPath = None,
    longest: Longest = LONGEST,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make training rows of a local copy of a public data set, with the instruction the paper gives it.

    Example: `suwen curate convert mednli mli_train_v1.jsonl rows/mednli.jsonl.gz`
    """
    counts = converted(
        name,
        source,
        to,
        instructions("bmretriever"),
        sets=sets,
        count=count,
        seed=seed,
        split=split,
        held_out=HeldOut.read(held_out) if held_out else None,
        longest=longest,
        evaluation_sets=evaluation_sets,
    )
    show_counts(counts, to, json)


def pairs(
    mix: Annotated[Path, typer.Argument(metavar="MIX", help="A mix of corpora (.toml), or one corpus.")],
    to: Rows,
    count: Annotated[int | None, typer.Option("--count", min=1, help="So many pairs [all there are].")] = None,
    size: Annotated[int, typer.Option("--size", min=40, help="Characters of a passage of an untitled text.")] = SIZE,
    held_out: HeldOutPath = None,
    longest: Longest = LONGEST,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make pairs for pre-training: title and text, or two passages of an untitled text; corpora are mixed by weight.

    Example: `suwen curate pairs mix.toml rows/pretraining.jsonl.gz --count 1000000`
    """
    kept_out = HeldOut.read(held_out) if held_out else None
    with measuring("pairs") as progress:
        counts = make_pairs(
            read_mix(mix), to, count=count, size=size, longest=longest, seed=seed, held_out=kept_out, progress=progress
        )
    show_counts(counts, to, json)


VERBS = (convert, pairs)
