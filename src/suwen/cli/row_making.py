"""Verbs of ``suwen curate`` that make training rows: ``convert``, ``pairs``, ``synthesise``, ``paraphrase`` and others.

See ``curating`` too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from suwen.choices import LONGEST_TEXT, PAIR_SIZE, SHARES, WRITTEN_FOR
from suwen.cli.choosing import HeldOutPath, Seed, show_counts
from suwen.cli.model_options import Session, Sessions, asking, asking_all, show_outcome, tell_of_one, with_options
from suwen.cli.options import Json, Ocr, OcrModel, PairFolder, QueryTier
from suwen.cli.output import measuring, say
from suwen.cli.page_reading import scan_reading
from suwen.errors import SuwenError

Rows = Annotated[Path, typer.Argument(metavar="OUT", help="The training rows: .jsonl or .jsonl.gz.")]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Draw so many at random [all].")]
PassageSize = Annotated[int, typer.Option("--size", min=32, help="Estimated tokens of a passage.")]
Longest = Annotated[int, typer.Option("--longest", min=20, help="Characters of the longest text; more is cut off.")]


def convert(
    name: Annotated[str, typer.Argument(metavar="SET", help="The data set: medquad, mqp, mednli, msmarco, nq, nli…")],
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Its file, a folder of its files, or BEIR's.")],
    to: Rows,
    sets: Annotated[Path | None, typer.Option("--sets", help="A table of data sets of your own (.toml).")] = None,
    split: Annotated[
        str, typer.Option("--split", help="What is taken: judgements of BEIR's folder, records by their `split`.")
    ] = "train",
    evaluation_sets: Annotated[
        bool, typer.Option("--evaluation-sets", help="Take records of the paper's evaluation sets as well.")
    ] = False,
    count: Count = None,
    held_out: HeldOutPath = None,
    longest: Longest = LONGEST_TEXT,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make training rows of a local copy of a public data set, with the instruction the paper gives it.

    Example: `suwen curate convert mednli mli_train_v1.jsonl rows/mednli.jsonl.gz`
    """
    from suwen.bench.published_tables import instructions
    from suwen.curate.convert import convert as converted
    from suwen.curate.leakage import HeldOut

    with measuring("rows") as progress:
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
            progress=progress,
            tell=lambda names: say(f"left out: {names}"),
        )
    show_counts(counts, to, json)
    if unknown := counts["of_unknown_origin"]:
        say(
            f"{unknown:,} records do not say where they come from: collections such as MedDialog also have dialogues "
            "of iCliniq, an evaluation set of the paper. Convert the files of the other sites alone, or pass --held-out"
        )


def pairs(
    mix: Annotated[Path, typer.Argument(metavar="MIX", help="A mix of corpora (.toml), or one corpus.")],
    to: Rows,
    count: Annotated[int | None, typer.Option("--count", min=1, help="So many pairs [all there are].")] = None,
    size: Annotated[
        int, typer.Option("--size", min=40, help="Characters of a passage of an untitled text.")
    ] = PAIR_SIZE,
    held_out: HeldOutPath = None,
    longest: Longest = LONGEST_TEXT,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Make pairs for pre-training: title and text, or two passages of an untitled text; corpora are mixed by weight.

    Example: `suwen curate pairs mix.toml rows/pretraining.jsonl.gz --count 1000000`
    """
    from suwen.curate.leakage import HeldOut
    from suwen.curate.text_pairs import make_pairs, read_mix

    with measuring("rows") as progress:
        counts = make_pairs(
            read_mix(mix),
            to,
            count=count,
            size=size,
            longest=longest,
            seed=seed,
            held_out=HeldOut.read(held_out) if held_out else None,
            progress=progress,
            tell=_say_left_out,
        )
    show_counts(counts, to, json)


def _say_left_out(why: str) -> None:
    say(f"left out, as the first: {why}")


def _counting_into(counts: Counter[str]) -> Callable[[str], None]:
    """Counts records that cannot be read, and says of the first one why."""

    def skip(why: str) -> None:
        counts["unreadable"] += 1
        if counts["unreadable"] == 1:
            _say_left_out(why)

    return skip


@with_options
def synthesise(
    to: Rows,
    session: Session,
    source: Annotated[
        Path | None, typer.Option("--from", help="Documents: a query is written for each of their passages.")
    ] = None,
    dataset: Annotated[str, typer.Option("--dataset", help="What the documents are: pubmed, meadow, or a name.")] = "",
    instruction: Annotated[str, typer.Option("--instruction", help="Of the rows, where the paper has none.")] = "",
    tasks: Annotated[int, typer.Option("--tasks", min=0, help="Think of so many tasks, with an example each.")] = 0,
    questions: Annotated[
        int, typer.Option("--questions", min=0, help="In place of rows, so many questions of a passage to index by.")
    ] = 0,
    pair: PairFolder = None,
    count: Count = None,
    size: Annotated[
        int | None, typer.Option("--size", min=8, help="Tokens of a passage [400 estimated; questions: the index's].")
    ] = None,
    held_out: HeldOutPath = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Have a model write training rows: queries for passages (`--from`), or examples of search tasks (`--tasks`).

    With `--from` and `--questions N`, OUT is a file for `suwen index --questions`; `--pair` is the index's.

    Example: `suwen curate synthesise rows.jsonl.gz --from pubmed.jsonl --dataset pubmed -m large --dry-run`
    """
    from suwen.curate.leakage import HeldOut
    from suwen.curate.synthesise import synthesise_rows

    if questions:
        _write_questions(to, session, source, questions, pair, size, seed, json)
        return
    with asking(session, "requests") as asker:
        counts = synthesise_rows(
            to,
            asker,
            source=source,
            dataset=dataset,
            instruction=instruction,
            tasks=tasks,
            count=count,
            size=size or WRITTEN_FOR,
            seed=seed,
            held_out=HeldOut.read(held_out) if held_out else None,
            tell=_say_left_out,
        )
    if not session.dry_run and counts["tasks"] < tasks:
        say(
            f"{tasks:,} tasks were asked for and {counts['tasks']:,} found: the model has no new ones. Give it a "
            "higher temperature, take another --seed and put the rows together, or ask a larger model"
        )
    show_outcome(asker, counts, json, out=to)


def _write_questions(
    to: Path,
    session: Session,
    source: Path | None,
    each: int,
    pair: Path | None,
    size: int | None,
    seed: int,
    json: bool,
) -> None:
    from suwen.curate.questions import cut_as_indexed, plan_questions, write_questions
    from suwen.curate.screening import check_output
    from suwen.curate.synthesise import readable
    from suwen.encoders.pair import Pair
    from suwen.hyde.writing import Writer
    from suwen.llm.asker import Step

    if source is None:
        raise SuwenError("--questions are written for passages: name their source with --from")
    check_output(to, source)
    counts: Counter[str] = Counter()
    passages = cut_as_indexed(readable(source, _counting_into(counts)), Pair.load(pair).count_tokens, size)
    with asking(session, "requests") as asker:
        writer = Writer(asker.llm, session.model, session.language, steps=asker.steps)
        if session.dry_run:
            for number, plan in enumerate(plan_questions(passages, writer, each, seed)):
                name = f"question {number + 1}"
                asker.steps[name] = Step(name, plan.calls, plan.cached, tokens=plan.tokens, cost=plan.cost)
        else:
            try:
                counts += write_questions(passages, to, writer, each, seed)
            finally:
                asker.problem = writer.problem
            counts += writer.counts
    show_outcome(asker, counts, json, out=to)


@with_options
def rewrites(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Unlabelled documents; longer ones are cut.")],
    to: Rows,
    session: Session,
    pair: PairFolder = None,
    tier: QueryTier = None,
    candidates: Annotated[int, typer.Option("--candidates", min=1, help="Documents written for a query.")] = 5,
    by: Annotated[
        Literal["document", "mean"],
        typer.Option("--by", help="Rank by the written document alone, or by its mean with the query."),
    ] = "document",
    domain: Annotated[str, typer.Option("--domain", help="What the texts are about [medicine].")] = "",
    count: Count = None,
    size: PassageSize = WRITTEN_FOR,
    held_out: HeldOutPath = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Have a model write a query and hypothetical documents for each document; keep those that find it best.

    Example: `suwen curate rewrites encyclopaedia.jsonl rewrites.jsonl.gz -m small --candidates 5 --count 10000`
    """
    from suwen.curate.hypothetical import CANDIDATES, plan_rewrites, write_rewrites
    from suwen.curate.leakage import HeldOut
    from suwen.curate.screening import check_output, draw
    from suwen.curate.synthesise import passages
    from suwen.encoders.pair import Pair
    from suwen.hyde.writing import Writer
    from suwen.llm.asker import Step

    check_output(to, source)
    left: Counter[str] = Counter()
    texts = passages(source, size, _counting_into(left))
    drawn = list(texts) if count is None else draw(texts, count, seed)
    with asking(session, "requests") as asker:
        writer = Writer(asker.llm, session.model, session.language, domain, steps=asker.steps)
        if session.dry_run:
            for name, plan in zip(("queries", "candidates"), plan_rewrites(drawn, writer, candidates), strict=True):
                asker.steps[name] = Step(name, plan.calls, plan.cached, tokens=plan.tokens, cost=plan.cost)
            counts: Counter[str] = Counter()
        else:
            encoder = Pair.load(pair).encoder(tier)
            settings: dict[str, Any] = {"candidates": candidates, "by": by, "draws": replace(CANDIDATES, seed=seed)}
            settings["held_out"] = HeldOut.read(held_out) if held_out else None
            try:
                counts = write_rewrites(drawn, to, writer, encoder.encode_queries, encoder.encode_documents, **settings)
            finally:
                asker.problem = writer.problem
            counts += writer.counts
    show_outcome(asker, counts + left, json, out=to)


@with_options
def paraphrase(
    shelf: Annotated[
        Path, typer.Argument(metavar="SHELF", help="Books: a folder, or a file (PDF, .docx, .epub, text…).")
    ],
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The folder of triplets, `data.root` of a recipe.")],
    session: Sessions,
    shares: Annotated[
        str, typer.Option("--shares", help="Of training, validation, test; the paper also has 0.9,0.1.")
    ] = ",".join(map(str, SHARES)),
    way: Annotated[
        Literal["far", "length", "mined"],
        typer.Option("--negatives", help="Far off in the corpus (paper), by length (its code), or mined by the pair."),
    ] = "far",
    negatives: Annotated[int, typer.Option("--count-negatives", min=0, help="Of a row; the code has 3.")] = 1,
    each: Annotated[
        bool, typer.Option("--each", help="Every model paraphrases every sentence; else they take turns.")
    ] = False,
    names: Annotated[Path | None, typer.Option("--names", help="Names that must stay, one a line.")] = None,
    count: Count = None,
    ocr: Ocr = True,
    ocr_model: OcrModel = None,
    pair: PairFolder = None,
    held_out: HeldOutPath = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Have models say the sentences of books in other words: triplets, split by sentence, with a report of refusals.

    Example: `suwen curate paraphrase books/ triplets -m large -m small --dry-run`
    """
    from suwen.curate.leakage import HeldOut
    from suwen.curate.paraphrase import Paraphrasing, paraphrase_shelf, read_names
    from suwen.curate.triplets import read_shares

    settings = Paraphrasing(
        shares=read_shares(shares),
        way=way,
        negatives=negatives,
        count=count,
        names=read_names(names) if names else frozenset(),
        each=each,
        pair=pair,
        seed=seed,
    )
    kept_out = HeldOut.read(held_out) if held_out else None
    tell_of_one(session)
    with (
        scan_reading(ocr, ocr_model, config=session.config, dry_run=session.dry_run) as scans,
        asking_all(session, "requests") as askers,
    ):
        report = paraphrase_shelf(shelf, to, askers, settings, _tell_page, held_out=kept_out, **scans._asdict())
    show_outcome(askers[0], report["counts"], json, out=to)


def _tell_page(path: Path, page: int, why: str) -> None:
    from suwen.corpora.books import place_of

    say(f"left out: {path}: {place_of(path, page)}{why}")


VERBS = (convert, pairs, synthesise, rewrites, paraphrase)
