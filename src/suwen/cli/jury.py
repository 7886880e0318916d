"""Verbs of ``suwen jury``: ``pool``, ``judge``, ``consensus``, ``report``, ``audit``. Those of ``review`` are apart."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from suwen.cli import reviewing
from suwen.cli.options import Json
from suwen.cli.output import NEGATIVE, counting, measuring, out, print_json, say
from suwen.corpora.collection import Collection
from suwen.jury import audit as auditing
from suwen.jury import report as reporting
from suwen.jury.batches import Settings
from suwen.jury.consensus import Rule, write_verdicts
from suwen.jury.consensus import consensus as verdicts_of
from suwen.jury.folder import Folder
from suwen.jury.judging import Judged, Jury
from suwen.jury.pooling import PoolReport, index_collection, open_retrievers, write_pool
from suwen.jury.records import Judge, Verdict
from suwen.jury.review import ReviewReport, Reviews, apply_reviews, review_report
from suwen.jury.sampling import read_sample
from suwen.jury.texts import Texts
from suwen.jury.votes import Votes
from suwen.llm.cache import Cache, LedgerRow
from suwen.llm.client import LLM, Budget, Plan, Progress
from suwen.llm.config import load_config

Work = Annotated[Path, typer.Argument(metavar="WORK", help="The folder of this jury's files.")]
CollectionPath = Annotated[
    Path, typer.Argument(metavar="COLLECTION", help="A collection: BEIR's folder, CMIRB's or MTEB's.")
]
With = Annotated[
    list[str],
    typer.Option("--with", metavar="RETRIEVER", help="`lexical`, `dense`, `dense:TIER`, `hybrid`, or `dense@INDEX`."),
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
Config = Annotated[Path | None, typer.Option("--config", help="The configuration [SUWEN_CONFIG, suwen.toml].")]
Prompts = Annotated[Path | None, typer.Option("--prompts", help="A folder with a grade.toml of your own.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell the calls and the estimated tokens.")]
Calls = Annotated[int | None, typer.Option("--calls", help="Budget: the most calls.")]
Tokens = Annotated[int | None, typer.Option("--tokens", help="Budget: the most tokens.")]
Cost = Annotated[float | None, typer.Option("--cost", help="Budget: the most to spend, in the prices' currency.")]
Mode = Annotated[Literal["unanimous", "majority"], typer.Option("--mode", help="How votes become a label.")]
Worst = Annotated[Literal["S", "A", "B", "C"], typer.Option("--worst", help="The worst grade that is positive.")]

Only = Annotated[
    list[str] | None, typer.Option("--jury", metavar="NAME", help="Only these judges count; repeat [all that voted].")
]

jury_app = typer.Typer(
    name="jury",
    help="Build and audit benchmarks with LLM judges: pool, judge, consensus, report, review, audit.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    epilog="In this order: `pool`, `judge --dry-run`, `judge`, `consensus`, `report`, `review`.",
)
jury_app.add_typer(reviewing.review_app)


@jury_app.command()
def pool(
    collection: CollectionPath,
    work: Work,
    retrievers: With = ["lexical", "dense"],  # noqa: B006 (typer's way to say a default)
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
    """Gather what several retrievers find for each query.

    Example: `suwen jury pool my-collection work --with lexical --with dense:l6 --with dense@other-index --depth 100`
    """
    found = _pool(collection, Folder(work), retrievers, depth, index, pair, split, queries, duplicates, originals)
    if json:
        print_json(reporting.plain(found))
        return
    out.print(f"{found.queries:,} queries, {found.pairs:,} pairs, {found.passages:,} passages; {Folder(work).pool}")
    for name, alone in found.alone.items():
        out.print(f"  {alone:,} pairs found by {name} alone")
    if found.empty:
        say(f"nothing was found for {len(found.empty)} queries: {', '.join(found.empty[:5])}")


def _pool(
    collection: Path,
    folder: Folder,
    retrievers: list[str],
    depth: int,
    index: Path | None,
    pair: Path | None,
    split: str | None,
    queries: int | None,
    duplicates: Literal["error", "keep"],
    originals: bool,
) -> PoolReport:
    opened = Collection.open(collection)
    if index is None:
        with counting("indexing") as progress:
            index_collection(opened, folder.index, pair=pair, progress=progress)
    with ExitStack() as stack, measuring("queries") as told:
        return write_pool(
            folder.pool,
            folder.texts,
            opened,
            open_retrievers(retrievers, index or folder.index, stack),
            depth=depth,
            split=split,
            queries=queries,
            duplicates=duplicates,
            originals=originals,
            progress=told,
        )


@jury_app.command()
def judge(
    work: Work,
    judges: Judges,
    batch: Batch = 10,
    again: Again = 0.0,
    seed: Seed = 0,
    reasons: Reasons = True,
    config: Config = None,
    prompts: Prompts = None,
    dry_run: DryRun = False,
    calls: Calls = None,
    tokens: Tokens = None,
    cost: Cost = None,
    json: Json = False,
) -> None:
    """Let judges grade the pool. Interrupt it and run it again: only what is missing is asked.

    Exit code 3 when votes are still missing.

    Example: `suwen jury judge work -j large -j other -j third --again 0.1 --dry-run`
    """
    settings = Settings(batch, seed, again, reasons)
    done = _judge(Folder(work), judges, settings, config, prompts, Budget(calls, tokens, cost), dry_run)
    if isinstance(done, Plan):
        _tell_plan(done, json)
        return
    _tell_judged(done, json)
    if not done.complete:
        raise typer.Exit(NEGATIVE)


def _judge(
    folder: Folder,
    judges: list[str],
    settings: Settings,
    config: Path | None,
    prompts: Path | None,
    budget: Budget,
    dry_run: bool,
) -> Judged | Plan:
    jury = [Judge.parse(text) for text in judges]
    with ExitStack() as stack:
        told = stack.enter_context(measuring("batches"))
        texts = stack.enter_context(Texts(folder.texts))
        votes = stack.enter_context(Votes(folder.votes))

        def progress(made: Progress) -> None:
            told(made.done, made.total or 0)

        llm = stack.enter_context(LLM.open(load_config(config), folder.replies, budget=budget, progress=progress))
        session = Jury(jury, folder.pool, texts, votes, llm, settings, prompts=prompts)
        if dry_run:
            return session.plan()
        for remark in llm.check([one.model for one in jury]):
            say(remark)
        return session.judge()


def _tell_plan(plan: Plan, json: bool) -> None:
    if json:
        print_json(reporting.plain(plan) | {"calls": plan.calls, "tokens": plan.tokens, "cost": plan.cost})
        return
    for name, one in plan.models.items():
        out.print(
            f"{name}: {one.calls:,} calls ({one.cached:,} more are answered already), about {one.tokens_in:,} tokens "
            f"in, at most {one.tokens_out:,} out, cost at most {one.cost:.4g}",
            soft_wrap=True,
        )
    out.print(f"in all: {plan.calls:,} calls, at most {plan.tokens:,} tokens, cost at most {plan.cost:.4g}")


def _tell_judged(done: Judged, json: bool) -> None:
    if json:
        print_json(reporting.plain(done))
        return
    out.print(
        f"{done.votes:,} votes, {done.abstentions:,} of them abstentions; {done.asked_again:,} passages asked again; "
        f"{done.spent.calls:,} calls, {done.spent.tokens:,} tokens, cost {done.spent.cost:.4g}, {done.seconds:,.0f} s",
        soft_wrap=True,
    )
    if done.stopped:
        say(f"stopped: {done.stopped}")
    if done.failed:
        say(f"{done.failed} batches are still without votes ({done.problem or 'not finished'}): run again")


@jury_app.command()
def consensus(
    work: Work,
    mode: Mode = "unanimous",
    worst: Worst = "A",
    jury: Only = None,
    reviewed: Annotated[bool, typer.Option("--reviewed", help="Experts' labels take the jury's place.")] = False,
    to: Annotated[Path | None, typer.Option("--out", help="The file of verdicts [WORK/verdicts.jsonl].")] = None,
    json: Json = False,
) -> None:
    """Turn votes into labels; pairs without consensus are set aside as undecided, with their votes.

    Example: `suwen jury consensus work --mode unanimous --worst A`
    """
    folder, rule = Folder(work), Rule(mode, worst)
    target = to or folder.verdicts
    counts: dict[str, int] = {}

    def counted(verdict: Verdict) -> Verdict:
        counts[verdict.label] = counts.get(verdict.label, 0) + 1
        return verdict

    with ExitStack() as stack:
        found = verdicts_of(stack.enter_context(Votes(folder.votes, create=False)), rule, jury)
        if reviewed:
            found = apply_reviews(found, stack.enter_context(Reviews(folder.reviews)))
        write_verdicts(target, (counted(verdict) for verdict in found))
    if json:
        print_json({"rule": str(rule), "verdicts": str(target), **counts})
    else:
        told = ", ".join(f"{count:,} {label}" for label, count in sorted(counts.items()))
        out.print(f"{told} ({rule}); {target}", soft_wrap=True)


@jury_app.command()
def report(
    work: Work,
    mode: Mode = "unanimous",
    worst: Worst = "A",
    jury: Only = None,
    title: Annotated[str, typer.Option("--title", help="The page's title.")] = "Jury report",
    json: Json = False,
) -> None:
    """Write the report page: funnel, kappa, grades, position effects, expert review, disagreements.

    Example: `suwen jury report work`
    """
    folder, rule = Folder(work), Rule(mode, worst)
    with Votes(folder.votes, create=False) as votes, Texts(folder.texts) as texts:
        review: ReviewReport | None = None
        ledger: list[LedgerRow] = []
        if folder.reviews.is_file() and folder.sample.is_file():
            with Reviews(folder.reviews) as reviews:
                review = review_report(read_sample(folder.sample), reviews)
        if folder.replies.is_file():
            cache = Cache(folder.replies)
            ledger = cache.ledger()
            cache.close()
        found = reporting.jury_report(folder.pool, votes, rule, jury, review=review, ledger=ledger)
        reporting.write_report(folder.report, found, folder.pool, texts, verdicts_of(votes, rule, jury), title)
    if json:
        print_json(reporting.plain(found))
        return
    kappa = found.agreement.sides
    out.print(
        f"{found.funnel.pooled:,} pairs: {found.funnel.positive:,} positive, {found.funnel.negative:,} negative, "
        f"{found.funnel.undecided:,} undecided; Fleiss' kappa {kappa.value:.3f} [{kappa.low:.3f}, {kappa.high:.3f}]",
        soft_wrap=True,
    )
    out.print(str(folder.report))


@jury_app.command()
def audit(
    collection: CollectionPath,
    work: Work,
    judges: Judges,
    split: Split = None,
    retrievers: With = ["dense"],  # noqa: B006
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
    config: Config = None,
    dry_run: DryRun = False,
    calls: Calls = None,
    tokens: Tokens = None,
    cost: Cost = None,
    json: Json = False,
) -> None:
    """Judge the top of an existing benchmark anew: false positives and false negatives per query, with examples.

    Resumable like `judge`; a pool that is in WORK already is used as it is. Exit code 3 when votes are still missing.

    Example: `suwen jury audit CmedqaRetrieval work -j large --split dev --queries 200 --dry-run`
    """
    folder, opened, rule = Folder(work), Collection.open(collection), Rule(mode, worst)
    qrels, budget = opened.qrels(split), Budget(calls, tokens, cost)
    if not folder.pool.is_file():
        # Benchmarks ask the same thing twice now and then; that is theirs, and no reason not to audit them.
        _pool(collection, folder, retrievers, depth, index, pair, split, queries, "keep", originals)
    done = _judge(folder, judges, Settings(batch, seed, 0.0, reasons), config, None, budget, dry_run)
    if isinstance(done, Plan):
        _tell_plan(done, json)
        return
    if not done.complete:
        _tell_judged(done, json)
        raise typer.Exit(NEGATIVE)
    with Votes(folder.votes) as votes, Texts(folder.texts) as texts:
        found = auditing.audit(
            collection.name, qrels, folder.pool, votes, rule, [Judge.parse(text).name for text in judges]
        )
        auditing.write_audit(folder.audit, found, folder.pool, texts)
    if json:
        print_json(auditing.means(found))
        return
    for name, mean in auditing.means(found).items():
        out.print(f"{name:<28}{mean:8.2f} per query")
    out.print(str(folder.audit))
