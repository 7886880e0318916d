"""Verbs of ``suwen curate``: ``assemble``, ``synonyms``, ``cmirb``, ``rows``, ``anonymise``.

More of them are in ``choosing`` and ``row_making``.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from suwen.choices import SEEDS
from suwen.choices import Mode as SearchMode
from suwen.cli.choosing import VERBS as CHOOSING
from suwen.cli.choosing import HeldOutPath, IndexPath, Seed, Seeds, warn_seeds
from suwen.cli.model_options import Session, asking, funnel_lines, show_outcome, with_options
from suwen.cli.options import Json, PairFolder, QueryTier
from suwen.cli.output import NEGATIVE, counting, say, show
from suwen.cli.row_making import VERBS as MAKING

CollectionPath = Annotated[
    Path, typer.Argument(metavar="COLLECTION", help="A collection: BEIR's folder, CMIRB's or MTEB's.")
]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="Where to write.")]
Train = Annotated[float, typer.Option("--train", help="The share of queries that is for training, not for the test.")]

curate_app = typer.Typer(
    name="curate",
    help="Make benchmarks and training data.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog="Verbs that ask a model take --dry-run, a budget, and go on where they were stopped.",
)


@curate_app.command()
def assemble(
    collection: CollectionPath,
    verdicts: Annotated[Path, typer.Argument(metavar="VERDICTS", help="The verdicts of `suwen jury consensus`.")],
    to: Out,
    name: Annotated[str | None, typer.Option("--name", help="The benchmark's name [OUT's].")] = None,
    train: Train = 0.0,
    positives: Annotated[int, typer.Option("--positives", help="The most positives of a query to rerank.")] = 10,
    negatives: Annotated[int, typer.Option("--negatives", help="The most negatives of a query to rerank.")] = 20,
    undecided: Annotated[
        Literal["exclude", "drop", "keep"],
        typer.Option(
            "--undecided",
            help="Documents undecided for a query: not counted for it, or dropped, or kept where positive for another.",
        ),
    ] = "exclude",
    near: Annotated[float, typer.Option("--near", help="From which similarity two texts are nearly the same.")] = 0.7,
    sts: Annotated[Path | None, typer.Option("--sts", help="A folder of `suwen curate synonyms` to take in.")] = None,
    language: Annotated[Literal["zh", "en"], typer.Option("--language", help="The language of the texts.")] = "zh",
    licence: Annotated[str, typer.Option("--licence", help="Under what terms it may be used.")] = "your own",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make a benchmark of a jury's verdicts: retrieval, reranking, training rows, card, suite file.

    Example: `suwen curate assemble my-collection work/verdicts.jsonl my-benchmark --train 0.5`
    """
    from suwen.corpora.collection import Collection
    from suwen.curate.benchmark_assembly import Assembly
    from suwen.curate.benchmark_assembly import assemble as assembled
    from suwen.curate.card import table
    from suwen.jury.verdicts import read_verdicts

    settings = Assembly(
        name or to.resolve().name, train, positives, negatives, undecided, near, seed, language, licence
    )
    made = assembled(Collection.open(collection), read_verdicts(verdicts), to, settings, sts=sts)
    measure = f"{to}: measure on it with `suwen bench run {to / 'suite.toml'} -s pair:default`"
    show(made.as_dict(), *funnel_lines(made.funnel), table(made.statistics), measure, json=json)


@curate_app.command()
@with_options
def synonyms(
    queries: CollectionPath,
    dictionary: Annotated[
        Path, typer.Argument(metavar="DICTIONARY", help="Synonyms: jsonl, csv or tsv of name and aliases.")
    ],
    to: Out,
    session: Session,
    train: Train = 0.0,
    positive_share: Annotated[float, typer.Option("--positive-share", help="Share of positive pairs.")] = 0.5,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make a synonym STS: queries rewritten with a synonym, with the same meaning and with others.

    Example: `suwen curate synonyms my-collection synonyms.tsv my-sts -m large --dry-run`
    """
    from suwen.corpora.collection import Collection
    from suwen.curate.synonym_terms import Dictionary, read_synonyms
    from suwen.curate.synonyms import StsSettings, make_sts

    settings = StsSettings(train, positive_share, seed=seed)
    asked = Collection.open(queries).queries()
    entries = Dictionary(read_synonyms(dictionary))
    with asking(session, "questions") as asker:
        funnel = make_sts(asked, entries, asker, to, settings)
    show_outcome(asker, funnel, json, out=to)


@curate_app.command()
@with_options
def cmirb(
    collection: CollectionPath,
    to: Out,
    session: Session,
    work: Annotated[Path, typer.Option("--work", help="The folder of the index, the texts and the replies.")] = Path(
        "cmirb-work"
    ),
    references: Annotated[
        Path | None, typer.Option("--references", help='Answers by query: jsonl of {"_id", "answer"}.')
    ] = None,
    match: Annotated[bool, typer.Option("--match/--no-match", help="Match, or take the qrels' pairs.")] = True,
    documents: Annotated[
        bool, typer.Option("--documents/--no-documents", help="Filter documents too, one call for each.")
    ] = True,
    candidates: Annotated[int, typer.Option("--candidates", help="Documents a word search brings.")] = 20,
    best: Annotated[int, typer.Option("--best", help="How many of them the model chooses.")] = 3,
    similarity: Annotated[float, typer.Option("--similarity", help="Of an answer to the reference, at least.")] = 0.8,
    quality: Annotated[int, typer.Option("--quality", help="Of a pair, 1 to 5, at least.")] = 4,
    pair: PairFolder = None,
    json: Json = False,
) -> None:
    """Build a collection as CMIRB was built: medical filter, matching, answer check, quality filter.

    Example: `suwen curate cmirb my-collection my-benchmark -m large --references answers.jsonl --dry-run`
    """
    from suwen.corpora.collection import Collection
    from suwen.curate.cmirb import CmirbSettings, build_cmirb, read_references

    settings = CmirbSettings(True, documents, candidates, best, similarity, quality)
    with asking(session, "requests", work / "replies.db") as asker, counting("indexing") as progress:
        funnel = build_cmirb(
            Collection.open(collection),
            to,
            asker,
            work,
            settings,
            references=read_references(references) if references else None,
            match=match,
            pair=pair,
            progress=progress,
        )
    show_outcome(asker, asdict(funnel), json, out=to)


@curate_app.command()
@with_options
def rows(
    queries: Annotated[
        Path, typer.Argument(metavar="QUERIES", help="A collection, or jsonl of queries or training rows.")
    ],
    index: IndexPath,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The training rows: .jsonl or .jsonl.gz.")],
    session: Session,
    depth: Annotated[int, typer.Option("--depth", min=1, help="Hits that are verified.")] = 50,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Passages shown at once.")] = 10,
    positives: Annotated[int, typer.Option("--positives", min=1, help="The most positives of a row.")] = 5,
    negatives: Annotated[int, typer.Option("--negatives", min=0, help="The most negatives of a row.")] = 15,
    mode: Annotated[SearchMode, typer.Option("--mode", help="How the index is searched.")] = "hybrid",
    diversify: Annotated[bool, typer.Option("--diversify/--all", help="Choose diverse queries first.")] = True,
    seeds: Seeds = SEEDS,
    threshold: Annotated[float, typer.Option("--threshold", help="From which cosine queries are alike.")] = 0.85,
    held_out: HeldOutPath = None,
    prompt: Annotated[str, typer.Option("--prompt", help="Put before the query in training.")] = "",
    kind: Annotated[str, typer.Option("--type", help="The rows' type.")] = "",
    seed: Seed = 0,
    tier: QueryTier = None,
    json: Json = False,
) -> None:
    """Make training rows: diverse queries, what an index finds for them, verified by a model.

    Example: `suwen curate rows my-collection my-index rows.jsonl.gz -m large --held-out test.jsonl --dry-run`
    """
    from suwen.curate.diversify import Diversity
    from suwen.curate.leakage import HeldOut
    from suwen.curate.row_files import make_rows
    from suwen.curate.verify import Verification
    from suwen.retrieve.retriever import Index

    settings = Verification(depth, batch, positives, negatives, prompt=prompt, type=kind, seed=seed)
    diversity = Diversity(threshold=threshold) if diversify else None
    kept_out = HeldOut.read(held_out) if held_out else None
    with Index.open(index) as opened, asking(session, "requests") as asker:
        counts, selected = make_rows(
            queries, opened, to, asker, settings, diversity, seeds=seeds, tier=tier, mode=mode, held_out=kept_out
        )
    warn_seeds(selected)
    show_outcome(asker, counts, json, out=to)


@curate_app.command()
@with_options
def anonymise(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Documents: a collection, jsonl, csv or text.")],
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The masked documents, as jsonl.")],
    session: Session,
    sheet: Annotated[Path | None, typer.Option("--sheet", help="A CSV for people to check.")] = None,
    share: Annotated[float, typer.Option("--share", help="The share of documents in it.")] = 0.01,
    seed: Seed = 0,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out and count documents that fail.")] = False,
    json: Json = False,
) -> None:
    """Mask personal data by rules (as `suwen mask`), then by what a model still finds. Use a model of your own house.

    Example: `suwen curate anonymise notes.jsonl masked.jsonl -m small --sheet check.csv --dry-run`
    """
    from suwen.curate.anonymise import anonymise_file

    with asking(session, "documents") as asker:
        counts = anonymise_file(source, to, asker, sheet=sheet, share=share, seed=seed, skip_bad=skip_bad)
    show_outcome(asker, counts, json, out=to)
    if counts["suspicious"] and not session.dry_run:
        say(f"{counts['suspicious']} documents still look personal: check them by hand (--sheet)")
        raise typer.Exit(NEGATIVE)


for verb in (*CHOOSING, *MAKING):
    curate_app.command()(verb)
