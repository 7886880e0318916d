"""From a shelf of books to a specialist pair, measured before and after: the steps, each kept once it is done.

Questions, triplets, data, training, measuring: each step is a folder of the work folder, so that the same command goes
on where it was stopped. What a step does is elsewhere (``curate/``, the recipe's stages, ``bench/``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suwen.bench.comparison import TaskComparison, compare
from suwen.bench.result_files import read_results
from suwen.bench.suite_runner import run_suite
from suwen.corpora.books import place_of
from suwen.corpora.readers import read_documents
from suwen.curate.leakage import HeldOut
from suwen.curate.paraphrase import SOURCE, Paraphrasing, paraphrase_shelf
from suwen.curate.shelf_questions import most_asked, shelf_passages, write_questions
from suwen.curate.suite_file import SuiteTask, suite_text
from suwen.durable import write_json, write_text
from suwen.encoders.pair import pair_folder
from suwen.encoders.space import load_manifest
from suwen.errors import Stopped
from suwen.llm.asker import Asker, Step
from suwen.training.adapting_data import QUESTIONS, put_together
from suwen.training.adapting_keys import Adaptation, AdaptError, models_of, recipe_keys
from suwen.training.adapting_progress import UnderWay, counted
from suwen.training.loop.journal import StageReport
from suwen.training.recipe.recipe_file import load_recipe

#: Of the calls, what questions may take, with some left for what is asked twice: malformed replies, calls that failed.
_ASKING, _REPAIRS = 0.3, 0.9
#: The variable that names the base of a document encoder's adapter.
_BASE = "SUWEN_BASE"
#: The most that the general sets may lose, as a part of 1.
MOST_LOST = 0.01
#: Questions kept apart below which nothing is told: five that are all better or all worse are chance once in 16.
FEWEST = 6


class OutOfTime(AdaptError):
    """The time is spent; what is done is kept."""


@dataclass
class Outcome:
    """What came of it: the specialist, how it compares on each task, and the plain answer."""

    specialist: Path
    tasks: list[TaskComparison]
    answer: str
    gain: bool
    counts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


Tell = Callable[[str], None]


def adapt(
    wanted: Adaptation, askers: Sequence[Asker], tell: Tell, watch: UnderWay, progress: Any = None
) -> Outcome | None:
    """Do every step that is not done yet; None in a dry run, which only counts what would be asked.

    Args:
        wanted: What is asked for.
        askers: The models.
        tell: Told in words how it goes on.
        watch: Keeps the page of the work folder.
        progress: Called with every logged step of the training.

    Raises:
        OutOfTime: The time is spent before it is trained; the same command goes on.
        Stopped: A signal has ended the training; the same command goes on.
        AdaptError: The work folder was begun with other wishes, or the recipe exports no pair.
    """
    # What cannot be trained is refused before anything is asked.
    models_of(load_recipe(wanted.recipe, wanted.sets), wanted)
    if askers[0].dry_run:
        tell(counted(QUESTIONS, _ask_questions(wanted, askers[0], tell, watch)))
        tell(counted("triplets", _ask_paraphrases(wanted, askers, tell, watch)))
        return None
    _same_wishes(wanted)
    watch.counting(lambda: askers[0].llm.spent.calls)

    def step(name: str, done: Path, work: Callable[[], Mapping[str, int]]) -> None:
        if done.exists():
            tell(f"{name}: done before")
            watch.kept(name)
        else:
            tell(f"{name} …")
            with watch.step(name):
                tell(counted(name, work()))

    step(QUESTIONS, wanted.work / QUESTIONS, lambda: _ask_questions(wanted, askers[0], tell, watch))
    rows = wanted.work / "triplets" / "rows" / f"{SOURCE}.jsonl.gz"
    step("triplets", rows, lambda: _ask_paraphrases(wanted, askers, tell, watch))
    step("data", wanted.work / "data", lambda: put_together(wanted.work, wanted.general, wanted.pair))
    with watch.step("training"):
        specialist = _train(wanted, watch, tell, progress)
    with watch.step("measuring"):
        tasks = measure(wanted, specialist, tell)
    gain, answer = verdict(tasks)
    reports = {name: wanted.work / name / "report.json" for name in (QUESTIONS, "triplets")}
    counts = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in reports.items()}
    return Outcome(specialist, tasks, answer, gain, counts, watch.seconds)


def _same_wishes(wanted: Adaptation) -> None:
    """Refuse a work folder that was begun with other wishes: half of it would be of another specialist."""
    said = {
        "shelf": str(wanted.shelf.resolve()),
        "recipe": wanted.recipe,
        "sets": list(wanted.sets),
        "pair": wanted.pair,
        "general": str(wanted.general) if wanted.general else None,
        "seed": wanted.seed,
    }
    file = wanted.work / "wishes.json"
    if not file.is_file():
        wanted.work.mkdir(parents=True, exist_ok=True)
        write_json(file, said)
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    if changed := [key for key, value in said.items() if before.get(key) != value]:
        raise AdaptError(
            f"{wanted.work} was begun with another {', '.join(changed)}: name another --work, or delete that folder"
        )


def _reading(wanted: Adaptation, watch: UnderWay) -> Callable[[Path, int, int], None]:
    """Tells the page of the work folder how far the shelf is read, and ends the reading where the time is spent."""

    def read(book: Path, page: int, pages: int) -> None:
        watch.read(book, page, pages)
        if watch.is_late():
            raise OutOfTime(f"{book}: the {wanted.minutes:g} minutes are spent; pages read are kept: run it again")

    return read


def _ask_questions(wanted: Adaptation, asker: Asker, tell: Tell, watch: UnderWay) -> Mapping[str, int]:
    documents = read_documents(
        wanted.shelf, on_skip=tell, ocr=wanted.ocr, pictures=wanted.pictures, on_read=_reading(wanted, watch)
    )
    passages = shelf_passages(documents)
    most = most_asked() * len(passages)
    if wanted.calls is not None:
        most = min(most, int(_ASKING * _REPAIRS * wanted.calls))
    return write_questions(passages, wanted.work / QUESTIONS, asker, count=most, seed=wanted.seed)


def _ask_paraphrases(wanted: Adaptation, askers: Sequence[Asker], tell: Tell, watch: UnderWay) -> Mapping[str, int]:
    count = None if wanted.calls is None else _planned(wanted, wanted.calls, askers, tell)
    file = wanted.work / QUESTIONS / "held-out.jsonl.gz"
    apart = HeldOut.read(file) if file.is_file() else None
    report = paraphrase_shelf(
        wanted.shelf,
        wanted.work / "triplets",
        askers,
        Paraphrasing(count=count, apart=apart, seed=wanted.seed),
        lambda path, page, why: tell(f"{path}: {place_of(path, page)}{why}"),
        ocr=wanted.ocr,
        pictures=wanted.pictures,
        on_read=_reading(wanted, watch),
    )
    counts: Mapping[str, int] = report["counts"]
    return counts


def _planned(wanted: Adaptation, calls: int, askers: Sequence[Asker], tell: Tell) -> int:
    """How many sentences are paraphrased: as many as what the questions left of the calls is enough for.

    A reply that is malformed takes a second call, so a sentence is expected to take as many as a question did. The plan
    is kept: a run that goes on has the calls anew, and asks about the same sentences.
    """
    file, dry = wanted.work / "sentences-planned.json", askers[0].dry_run
    if not dry and file.is_file() and (kept := json.loads(file.read_text(encoding="utf-8")))["calls"] == calls:
        return int(kept["sentences"])
    asked, each = askers[0].steps.get(QUESTIONS, Step(QUESTIONS)), 1.0
    if not dry and asked.calls:
        whole = json.loads((wanted.work / QUESTIONS / "report.json").read_text(encoding="utf-8"))["passages"]
        each = max(1.0, asked.calls / max(1, whole - asked.cached))
    # A sentence is asked about by every model in the worst case.
    sentences = max(1, int(_REPAIRS * (calls - asked.calls) / (each * len(askers))))
    if not dry:
        tell(f"triplets: at most {sentences} sentences; {calls - asked.calls} calls are left, {each:.2f} for a reply")
        write_json(file, {"calls": calls, "sentences": sentences})
    return sentences


def _train(wanted: Adaptation, watch: UnderWay, tell: Tell, progress: Any) -> Path:
    from suwen.training.recipe_runner import train

    recipe = load_recipe(wanted.recipe, recipe_keys(wanted))
    last = next((stage.name for stage in reversed(recipe.stages) if stage.ships), None)
    if last is None:
        raise AdaptError(f"the recipe {wanted.recipe} has no stage `export`: take one that writes a pair")
    tell("training …")

    def heard(stage: str, *values: Any) -> None:
        watch.trained(stage, *values)
        if progress is not None:
            progress(stage, *values)

    def done(stage: StageReport) -> None:
        tell(f"  {stage.name}")
        watch.finished(stage.name, stage.seconds)

    report = train(
        recipe,
        wanted.work / "runs",
        resume=True,
        device=wanted.device,
        progress=heard,
        on_stage=done,
        stop=watch.is_late,
    )
    if not report.complete and not watch.is_late():
        raise Stopped(f"{report.stopped}; run it again to go on")
    if not report.complete:
        raise OutOfTime(f"{report.stopped}: the {wanted.minutes:g} minutes are spent; run it again to go on")
    return report.folder / last / "model"


def same_queries(pair: str, specialist: Path) -> bool:
    """Whether a specialist's light side is that of the pair it goes on with, so that what is new are its documents."""
    before, after = (load_manifest(folder).tiers for folder in (pair_folder(pair), specialist))
    return any(name in before and tier.files == before[name].files for name, tier in after.items())


@contextmanager
def by_document_encoder(wanted: Adaptation, specialist: Path) -> Iterator[None]:
    """Documents by the document encoder, where the light side stayed as it was: by that alone nothing has changed."""
    if not same_queries(wanted.pair, specialist):
        yield
        return
    named = os.environ.get(_BASE)
    os.environ[_BASE] = str(wanted.base or named or load_recipe(wanted.recipe, wanted.sets).decoder_stage.base)
    try:
        yield
    finally:
        os.environ.pop(_BASE)
        if named is not None:
            os.environ[_BASE] = named


def measure(wanted: Adaptation, specialist: Path, tell: Tell) -> list[TaskComparison]:
    """BM25, the pair you have and the specialist, on the questions and paraphrases kept apart and the general sets."""
    suite, out = wanted.work / "suite.toml", wanted.work / "results"
    triplets = wanted.work / "triplets"
    tasks = [SuiteTask("retrieval", str((wanted.work / QUESTIONS / "apart").resolve()), name=QUESTIONS)]
    if (triplets / "suite.toml").is_file():
        tasks.append(SuiteTask("paraphrase", str((triplets / "test.jsonl.gz").resolve()), name=SOURCE))
    write_text(suite, suite_text("adapted", tasks))
    systems = ["bm25:words", f"before=pair:{pair_folder(wanted.pair)}", f"after=pair:{specialist}"]
    with by_document_encoder(wanted, specialist):
        for path in (suite, wanted.measure):
            if path is not None:
                tell(f"measuring on {path} …")
                run_suite(path, systems, out=out)
    return list(compare(read_results(out), "after", "before").tasks)


def verdict(tasks: Sequence[TaskComparison]) -> tuple[bool, str]:
    """Whether the specialist is better where it should be, and not much worse elsewhere; and a plain answer."""
    own = next(task for task in tasks if task.task == QUESTIONS)
    general = [task.difference for task in tasks if task.task not in (QUESTIONS, SOURCE)]
    lost = -sum(general) / len(general) if general else 0.0
    said = f"{100 * own.b:.1f} before, {100 * own.a:.1f} after ({own.metric} on {own.queries} questions kept apart)"
    reasons = []
    if own.queries < FEWEST:
        reasons.append(f"so few questions tell nothing (add books, or calls; {FEWEST} at least)")
    elif own.interval is None or own.interval.low <= 0:
        reasons.append("the difference could be chance")
    if lost > MOST_LOST:
        reasons.append(f"the general sets lose {100 * lost:.1f} points, of which {100 * MOST_LOST:g} may be lost")
    if reasons:
        return False, f"no gain: keep the pair you have. {said}: {', and '.join(reasons)}"
    return True, f"gain: {said}" + (f"; the general sets change by {-100 * lost:+.1f} points" if general else "")


def as_record(outcome: Outcome) -> Mapping[str, Any]:
    """An outcome as JSON."""
    rows = [
        {
            "task": task.task,
            "metric": task.metric,
            "before": task.b,
            "after": task.a,
            "difference": task.difference,
            "interval": None if task.interval is None else [task.interval.low, task.interval.high],
            "queries": task.queries,
        }
        for task in outcome.tasks
    ]
    return {
        "answer": outcome.answer,
        "gain": outcome.gain,
        "tasks": rows,
        "counts": outcome.counts,
        "seconds": outcome.seconds,
    }
