"""Verbs of ``suwen jury``: ``pool``, ``judge``, ``consensus``, ``report``, ``audit``.

Those of ``review`` are in ``reviewing``, those for other people's tools in ``jury_exchange``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from suwen.cli import reviewing
from suwen.cli.jury_exchange import VERBS as EXCHANGE
from suwen.cli.model_options import Spending, client, with_options
from suwen.cli.options import Json
from suwen.cli.output import NEGATIVE, counting, measuring, say, show
from suwen.cli.reviewing import Work

if TYPE_CHECKING:
    from suwen.corpora.collection import Collection
    from suwen.jury.judge_batches import JudgingSettings
    from suwen.jury.judging import Judged
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.pooling import PoolReport
    from suwen.jury.verdicts import Judge
    from suwen.llm.ledger import Plan

CollectionPath = Annotated[
    Path, typer.Argument(metavar="COLLECTION", help="A collection: BEIR's folder, CMIRB's or MTEB's.")
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="RETRIEVER", help="`lexical`, `dense`, `dense:TIER`, `hybrid`, or `dense@INDEX`."),
]
Runs = Annotated[
    list[str] | None,
    typer.Option("--run", metavar="[NAME=]FILE", help="What another system found: a TREC run, or .json; repeat."),
]
Judges = Annotated[
    list[str], typer.Option("--judge", "-j", metavar="JUDGE", help="A judge: MODEL, MODEL:en or NAME=MODEL:en; repeat.")
]
IndexOption = Annotated[
    Path | None, typer.Option("--index", help="An index of the collection [one is built in WORK/index].")
]
PairOption = Annotated[Path | None, typer.Option("--pair", help="The pair to build the index with.")]
Split = Annotated[str | None, typer.Option("--split", help="Only the queries this split judges.")]
Queries = Annotated[int | None, typer.Option("--queries", min=1, help="Only the first so many queries.")]
Same = Annotated[Literal["error", "keep"], typer.Option("--duplicates", help="Two queries of one text.")]
Batch = Annotated[int, typer.Option("--batch", help="Passages judged at once.")]
Seed = Annotated[int, typer.Option("--seed", help="Of the order of passages.")]
Again = Annotated[float, typer.Option("--again", help="Share of queries judged twice, for position effects.")]
Reasons = Annotated[bool, typer.Option("--reasons/--no-reasons", help="Ask for a short reason with each grade.")]
Prompts = Annotated[Path | None, typer.Option("--prompts", help="A folder with a grade.toml of your own.")]
Mode = Annotated[Literal["unanimous", "majority"], typer.Option("--mode", help="How votes become a label.")]
Worst = Annotated[Literal["S", "A", "B", "C"], typer.Option("--worst", help="The worst grade that is positive.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--jury", metavar="NAME", help="Only these judges count; repeat [all that have finished]."),
]
Include = Annotated[bool, typer.Option("--include-incomplete", help="Count judges who have not finished, too.")]

jury_app = typer.Typer(
    name="jury",
    help="Build and audit benchmarks with LLM judges: pool, judge, consensus, report, review, audit.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog="In this order: `pool`, `judge --dry-run`, `judge`, `consensus`, `report`, `review`.",
)
jury_app.add_typer(reviewing.review_app)


@jury_app.command()
def pool(
    collection: CollectionPath,
    work: Work,
    retrievers: With = None,
    runs: Runs = None,
    depth: Annotated[int, typer.Option("--depth", min=1, help="How many of each retriever's.")] = 100,
    index: IndexOption = None,
    pair: PairOption = None,
    split: Split = None,
    queries: Queries = None,
    duplicates: Same = "error",
    originals: Annotated[
        bool, typer.Option("--originals", help="Add the positives of the collection's qrels.")
    ] = False,
    json: Json = False,
) -> None:
    """Gather what several retrievers find for each query: lexical and dense, unless others or runs are named.

    Example: `suwen jury pool my-collection work --with lexical --with dense@other-index --run theirs=runs/theirs.trec`
    """
    from suwen.corpora.collection import Collection
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.jury_report import plain

    folder, opened = JuryFolder(work), Collection.open(collection)
    pooled = _pool(
        folder,
        opened,
        retrievers or ([] if runs else ["lexical", "dense"]),
        runs=runs or [],
        index=index,
        pair=pair,
        depth=depth,
        split=split,
        queries=queries,
        duplicates=duplicates,
        originals=originals,
    )
    show(
        plain(pooled),
        f"{pooled.queries:,} queries, {pooled.pairs:,} pairs, {pooled.passages:,} passages; {folder.pool}",
        *(f"  {alone:,} pairs found by {name} alone" for name, alone in pooled.alone.items()),
        json=json,
    )
    if pooled.empty and not json:
        say(f"nothing was found for {len(pooled.empty)} queries: {', '.join(pooled.empty[:5])}")


def _pool(folder: JuryFolder, collection: Collection, retrievers: Sequence[str], **more: Any) -> PoolReport:
    from suwen.jury.pooling import pool_collection

    with counting("indexing") as indexing, measuring("queries") as progress:
        return pool_collection(folder, collection, retrievers, indexing=indexing, progress=progress, **more)


@jury_app.command()
@with_options
def judge(
    work: Work,
    judges: Judges,
    session: Spending,
    batch: Batch = 10,
    again: Again = 0.0,
    seed: Seed = 0,
    reasons: Reasons = True,
    prompts: Prompts = None,
    retry: Annotated[bool, typer.Option("--retry-abstained", help="Ask again where a judge abstained.")] = False,
    json: Json = False,
) -> None:
    """Let judges grade the pool. Interrupt it and run it again: only what is missing is asked.

    Missing is also the vote on a text that has changed since. Exit code 3 when votes are still missing.

    Example: `suwen jury judge work -j large -j other -j third --again 0.1 --dry-run`
    """
    from suwen.jury.judge_batches import JudgingSettings
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.verdicts import Judge

    settings, jury = JudgingSettings(batch, seed, again, reasons), [Judge.parse(text) for text in judges]
    done = _judge(JuryFolder(work), jury, session, settings, json, prompts=prompts, retry=retry)
    _show_judged(done, json)
    if not done.complete:
        raise typer.Exit(NEGATIVE)


def _judge(
    folder: JuryFolder,
    jury: Sequence[Judge],
    session: Spending,
    settings: JudgingSettings,
    json: bool,
    **more: Any,
) -> Judged:
    """What judging the pool came to; a dry run ends here, with what it would cost."""
    from suwen.jury.judging import Judged, judge_folder

    with client(session, [one.model for one in jury], folder.replies, "batches") as llm:
        for row in llm.ledger():
            if row.unknown:
                cost = f"may have cost up to {row.unknown_cost:.4g}"
                say(f"{row.model}: {row.unknown} calls of earlier runs were cut off before their end; they {cost}")
        done = judge_folder(folder, jury, llm, settings, dry_run=session.dry_run, **more)
    if isinstance(done, Judged):
        return done
    _show_plan(done, json)
    raise typer.Exit


def _show_plan(plan: Plan, json: bool) -> None:
    from suwen.jury.jury_report import plain

    show(
        plain(plan) | {"calls": plan.calls, "tokens": plan.tokens, "cost": plan.cost},
        *(
            f"{name}: {one.calls:,} calls ({one.cached:,} more are answered already), about {one.tokens_in:,} tokens "
            f"in, at most {one.tokens_out:,} out, cost at most {one.cost:.4g}"
            for name, one in plan.models.items()
        ),
        f"in all: {plan.calls:,} calls, at most {plan.tokens:,} tokens, cost at most {plan.cost:.4g}",
        json=json,
    )


def _show_judged(done: Judged, json: bool) -> None:
    from suwen.jury.jury_report import plain

    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.kinds.items()))
    why = f" ({kinds}; when the cause is gone, --retry-abstained asks again)" if kinds else ""
    show(
        plain(done),
        f"{done.votes:,} votes, {done.abstentions:,} of them abstentions{why}; {done.asked_again:,} passages asked "
        f"again; {done.spent.calls:,} calls, {done.spent.tokens:,} tokens, cost {done.spent.cost:.4g}, "
        f"{done.seconds:,.0f} s",
        json=json,
    )
    if done.stopped and not json:
        say(f"stopped: {done.stopped}")
    if done.failed and not json:
        say(f"{done.failed} batches are still without votes ({done.problem or 'not finished'}): run again")


@jury_app.command()
def consensus(
    work: Work,
    mode: Mode = "unanimous",
    worst: Worst = "A",
    jury: Only = None,
    reviewed: Annotated[bool, typer.Option("--reviewed", help="Experts' labels take the jury's place.")] = False,
    include: Include = False,
    to: Annotated[Path | None, typer.Option("--out", help="The file of verdicts [WORK/verdicts.jsonl].")] = None,
    json: Json = False,
) -> None:
    """Turn votes into labels; pairs without consensus are set aside as undecided, with their votes.

    Only votes on the texts as they are count, and only judges who have finished; what is left out is said.

    Example: `suwen jury consensus work --mode unanimous --worst A`
    """
    from suwen.jury.consensus import Rule
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.jury_report import plain
    from suwen.jury.review import decide_folder

    folder, rule = JuryFolder(work), Rule(mode, worst)
    done = decide_folder(folder, rule, jury, reviewed=reviewed, include=include, to=to)
    target = to or folder.verdicts
    counts = ", ".join(f"{count:,} {label}" for label, count in sorted(done.labels.items()))
    left = {"jury": done.jury, "left_out": plain(done.left), "unused_reviews": done.unused_reviews}
    show(
        {"rule": str(rule), "verdicts": str(target), **done.labels, **left},
        f"{counts or 'no pair has a vote'} ({rule}; by {', '.join(done.jury)}); {target}",
        *done.lines(),
        json=json,
    )


@jury_app.command()
def report(
    work: Work,
    mode: Mode = "unanimous",
    worst: Worst = "A",
    jury: Only = None,
    include: Include = False,
    title: Annotated[str, typer.Option("--title", help="The page's title.")] = "Jury report",
    json: Json = False,
) -> None:
    """Write the report page: funnel, kappa, grades, position effects, expert review, disagreements.

    Example: `suwen jury report work`
    """
    from suwen.jury.consensus import Rule
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.jury_report import plain, report_folder

    folder = JuryFolder(work)
    measured = report_folder(folder, Rule(mode, worst), jury, title, include=include)
    pairs, kappa, alpha = measured.funnel, measured.agreement.sides, measured.agreement.alpha_grades
    show(
        plain(measured),
        f"{pairs.pooled:,} pairs: {pairs.positive:,} positive, {pairs.negative:,} negative, "
        f"{pairs.undecided:,} undecided; Fleiss' kappa {kappa.value:.3f} [{kappa.low:.3f}, {kappa.high:.3f}], "
        f"Krippendorff's alpha of the grades {alpha.value:.3f} [{alpha.low:.3f}, {alpha.high:.3f}]",
        *measured.left.lines(),
        str(folder.report),
        json=json,
    )


@jury_app.command()
@with_options
def audit(
    collection: CollectionPath,
    work: Work,
    judges: Judges,
    session: Spending,
    split: Split = None,
    retrievers: With = None,
    runs: Runs = None,
    depth: Annotated[int, typer.Option("--depth", min=1, help="How many of each retriever's.")] = 50,
    index: IndexOption = None,
    pair: PairOption = None,
    queries: Queries = None,
    originals: Annotated[
        bool, typer.Option("--originals", help="Judge original positives that were not found.")
    ] = False,
    mode: Mode = "unanimous",
    worst: Worst = "A",
    batch: Batch = 10,
    seed: Seed = 0,
    reasons: Reasons = True,
    json: Json = False,
) -> None:
    """Judge the top of an existing benchmark again: false positives and false negatives per query, with examples.

    Resumable like `judge`; a pool that is in WORK already is used as it is. Exit code 3 when votes are still missing.

    Example: `suwen jury audit CmedqaRetrieval work -j large --split dev --queries 200 --dry-run`
    """
    from suwen.corpora.collection import Collection
    from suwen.jury.audit import audit_folder, means
    from suwen.jury.consensus import Rule
    from suwen.jury.judge_batches import JudgingSettings
    from suwen.jury.jury_folder import JuryFolder
    from suwen.jury.verdicts import Judge

    folder, opened, jury = JuryFolder(work), Collection.open(collection), [Judge.parse(text) for text in judges]
    qrels = opened.qrels(split)
    if not folder.pool.is_file():
        # Benchmarks ask the same thing twice now and then; that is theirs, and no reason not to audit them.
        more: dict[str, Any] = {"split": split, "queries": queries, "duplicates": "keep", "originals": originals}
        named = retrievers or ([] if runs else ["dense"])
        _pool(folder, opened, named, runs=runs or [], index=index, pair=pair, depth=depth, **more)
    done = _judge(folder, jury, session, JudgingSettings(batch, seed, 0.0, reasons), json)
    if not done.complete:
        _show_judged(done, json)
        raise typer.Exit(NEGATIVE)
    audited = means(audit_folder(folder, collection.name, qrels, Rule(mode, worst), [one.name for one in jury]))
    lines = (f"{name:<28}{mean:8.2f} per query" for name, mean in audited.items())
    show(audited, *lines, str(folder.audit), json=json)


for name, verb in EXCHANGE.items():
    jury_app.command(name)(verb)
