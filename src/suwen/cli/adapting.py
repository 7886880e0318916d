"""The verb ``adapt``: from a shelf of books to a specialist pair."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from suwen.cli.model_options import Sessions, asking_all, show_outcome, tell_of_one, with_options
from suwen.cli.options import Base, Json, Ocr, OcrModel
from suwen.cli.output import NEGATIVE, UNFINISHED, out, print_json, print_table, say
from suwen.cli.page_reading import Scans, scan_reading
from suwen.durable import new_folder
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.training.adapting import Outcome

_HEADINGS = ("task", "metric", "before", "after", "difference", "95% interval", "queries")
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe; repeat.")
]


@with_options
def adapt(
    shelf: Annotated[
        Path, typer.Argument(metavar="SHELF", help="Books: a folder, or a file (PDF, .docx, .epub, text…).")
    ],
    to: Annotated[Path, typer.Option("--out", metavar="PAIR", help="The specialist, written where it is a gain.")],
    session: Sessions,
    pair: Annotated[
        str, typer.Option("--pair", help="The pair you have: it is compared, and gone on with.")
    ] = "default",
    recipe: Annotated[str, typer.Option("--recipe", help="How it is trained.")] = "cardioembed-mini",
    base: Base = None,
    sets: Set = None,
    work: Annotated[Path | None, typer.Option("--work", help="Where the steps are kept [PAIR-work].")] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0.01, help="Budget: the most time; measuring and --index come on top."),
    ] = None,
    general: Annotated[
        Path | None, typer.Option("--general", help="General rows and texts against forgetting: a data folder.")
    ] = None,
    measure: Annotated[
        Path | None, typer.Option("--measure", help="General tasks that may lose one point: a suite file.")
    ] = None,
    index: Annotated[Path | None, typer.Option("--index", help="Index the shelf here with the specialist.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Where to train [a GPU where there is one].")] = None,
    ocr: Ocr = True,
    ocr_model: OcrModel = None,
    seed: Annotated[int, typer.Option("--seed", help="Of every draw.")] = 0,
    json: Json = False,
) -> None:
    """Make a specialist of a shelf of books, and measure it before and after (needs suwen[train]).

    Exit code 3: no gain, keep the pair you have. Exit code 4: a budget is spent, run it again to go on.

    Example: `suwen adapt books/ --out cardiology -m small --base base.gguf --minutes 60 --calls 5000`
    """
    from suwen.cli.training import found_recipe, shown_steps

    found_recipe(recipe)  # it is read when the books are, which takes hours
    from suwen.training.adapting import OutOfTime, by_document_encoder
    from suwen.training.adapting import adapt as run
    from suwen.training.adapting_keys import Adaptation
    from suwen.training.adapting_page import write_page
    from suwen.training.adapting_progress import UnderWay

    folder = _work_folder(work, to)
    watch = UnderWay(folder, minutes, session.calls)
    tell_of_one(session)
    told: Any = {"stopped": UNFINISHED, "heard": watch.asked, "until": watch.until}
    with scan_reading(ocr, ocr_model, config=session.config, dry_run=session.dry_run) as scans:
        budget = (minutes, session.calls)
        wanted = Adaptation(
            shelf,
            folder,
            recipe,
            sets or [],
            pair,
            base,
            *budget,
            general,
            measure,
            device,
            scans.ocr,
            seed,
            scans.pictures,
        )
        try:
            with asking_all(session, "requests", folder / "replies.db", **told) as askers, shown_steps() as progress:
                outcome = run(wanted, askers, say, watch, progress)
        except OutOfTime as problem:
            say(str(problem))
            raise typer.Exit(UNFINISHED) from None
        if outcome is None:
            show_outcome(askers[0], {}, json)
            return
        page = write_page(outcome, folder)
        if outcome.gain:
            _put(outcome.specialist, to)
            if index is not None:
                with by_document_encoder(wanted, to):
                    _index(shelf, index, to, scans)
    _answer(outcome, page, to if outcome.gain else None, json)
    if outcome.gain and not json:
        _tell_of_documents(pair, to, base)


def _work_folder(work: Path | None, to: Path) -> Path:
    folder = work or to.with_name(f"{to.name}-work")
    if to.exists() and not (folder / "outcome.json").is_file():
        raise SuwenError(f"{to} is there already: name a new folder for the specialist, or remove it")
    return folder


def _answer(outcome: Outcome, page: Path, pair: Path | None, json: bool) -> None:
    """The answer with its reasons: every task before and after."""
    from suwen.training.adapting import as_record

    tasks = as_record(outcome)["tasks"]
    if json:
        where = {"pair": None if pair is None else str(pair), "page": str(page)}
        print_json({**where, "answer": outcome.answer, "gain": outcome.gain, "tasks": tasks})
    else:
        out.print(outcome.answer, soft_wrap=True)
        print_table("Before and after, x 100", _HEADINGS, map(_row, tasks), words=2)
        for line in (f"the report: {page}", *([] if pair is None else [f"the specialist: {pair}"])):
            out.print(line, soft_wrap=True)
    if pair is None:
        raise typer.Exit(NEGATIVE)


def _tell_of_documents(pair: str, specialist: Path, base: str | None) -> None:
    """Where the queries stayed as they were, a light index would be the one there is."""
    from suwen.training.adapting import same_queries

    if same_queries(pair, specialist):
        hint = f"SUWEN_BASE={base or 'BASE'} suwen index INDEX SOURCES --pair {specialist}"
        out.print(f"its queries are those of the pair you have, its documents are better: {hint}", soft_wrap=True)


def _row(task: Mapping[str, Any]) -> tuple[str, ...]:
    span = "" if task["interval"] is None else "{:+.1f} to {:+.1f}".format(*(100 * end for end in task["interval"]))
    numbers = (f"{100 * task['before']:.1f}", f"{100 * task['after']:.1f}", f"{100 * task['difference']:+.1f}")
    return task["task"], task["metric"], *numbers, span, f"{task['queries']:,}"


def _put(specialist: Path, to: Path) -> None:
    """The specialist in its place, whole or not at all; the same one may be there from a run that was stopped later."""
    from suwen.encoders.pair import Pair

    if not to.exists():
        with new_folder(to) as folder:
            shutil.copytree(specialist, folder, dirs_exist_ok=True)
    elif Pair.load(to).space.id != Pair.load(specialist).space.id:
        raise SuwenError(
            f"{to} is there already, and is another pair: name a new folder for the specialist, or remove it"
        )


def _index(shelf: Path, index: Path, pair: Path, scans: Scans) -> None:
    from suwen.corpora.readers import read_documents
    from suwen.retrieve.retriever import Index

    say(f"indexing {shelf} …")
    with Index.open_or_create(index, pair=pair) as opened:
        opened.add(read_documents(shelf, on_skip=say, **scans._asdict()))
