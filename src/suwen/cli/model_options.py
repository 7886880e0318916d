"""What the verbs that ask a model share: their options, opening the client, and printing plans and funnels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from suwen.cli.output import NEGATIVE, measuring, out, print_json, print_table, say
from suwen.durable import FileLock, Locked
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.llm.asker import Asker
    from suwen.llm.client import LLM
    from suwen.llm.ledger import Progress

NO_REPLY = "requests got no reply that could be used; the first problem"
Model = Annotated[str, typer.Option("--model", "-m", help="The model, by its name in suwen.toml.")]
Models = Annotated[list[str], typer.Option("--model", "-m", help="A model, by its name in suwen.toml; give several.")]
Replies = Annotated[
    Path | None, typer.Option("--replies", help="The file of replies: what is in it is not asked again [replies.db].")
]
Language = Annotated[Literal["zh", "en"], typer.Option("--language", help="The language of the prompts.")]
Config = Annotated[Path | None, typer.Option("--config", help="The configuration [SUWEN_CONFIG, suwen.toml].")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the calls and the estimated tokens.")]
Calls = Annotated[int | None, typer.Option("--calls", help="Budget: the most calls.")]
Tokens = Annotated[int | None, typer.Option("--tokens", help="Budget: the most tokens.")]
Cost = Annotated[float | None, typer.Option("--cost", help="Budget: the most to spend, in the prices' currency.")]


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The configuration and the budget: options of every verb that asks models, see :func:`with_options`."""

    config: Config = None
    dry_run: DryRun = False
    calls: Calls = None
    tokens: Tokens = None
    cost: Cost = None


@dataclass(frozen=True, kw_only=True)
class Session(Spending):
    """How one model is asked, as the options say."""

    model: Model
    replies: Replies = None
    language: Language = "zh"


@dataclass(frozen=True, kw_only=True)
class Sessions(Spending):
    """How several models are asked, as the options say; each text in its own language."""

    model: Models
    replies: Replies = None


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb with the options of :class:`Spending` or :class:`Session` in place of its parameter ``session``."""
    own = dict(inspect.signature(verb, eval_str=True).parameters)
    kind = own["session"].annotation
    options = inspect.signature(kind, eval_str=True).parameters
    # By name only: the model, which must be given, may then stand after what has a default.
    named = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.items()
        for one in (options.values() if name == "session" else [parameter])
    ]

    def command(**values: Any) -> None:
        session = kind(**{name: values.pop(name) for name in options})
        verb(**values, session=session)

    command.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in named}
    command.__name__, command.__doc__ = verb.__name__, verb.__doc__
    return command


@contextmanager
def client(
    session: Spending,
    models: Sequence[str],
    replies: Path,
    what: str,
    *,
    heard: Callable[[Progress], None] | None = None,
    until: float | None = None,
) -> Iterator[LLM]:
    """Open the client; names, keys and endpoints are checked before anything is asked.

    One process at a time spends on one file of replies: two at once would both pay for the same questions. ``heard`` is
    told of every reply, and no call is made later than ``until``.
    """
    from suwen.llm.client import LLM
    from suwen.llm.config import load_config
    from suwen.llm.ledger import Budget

    budget = Budget(session.calls, session.tokens, session.cost, until)
    with _kept_in(replies, session.dry_run) as file, measuring(what) as show:

        def progress(made: Progress) -> None:
            show(made.done, made.total or 0)
            if heard is not None:
                heard(made)

        with LLM.open(load_config(session.config), file, budget=budget, progress=progress) as llm:
            for remark in () if session.dry_run else llm.check(models):
                say(remark)
            yield llm


@contextmanager
def _kept_in(replies: Path, dry_run: bool) -> Iterator[Path]:
    """The file of replies, ours alone; a dry run looks at one that is there, and leaves none behind."""
    if not dry_run:
        with _alone(replies):
            yield replies
    elif replies.is_file():
        yield replies
    else:
        with TemporaryDirectory(prefix="suwen-") as folder:
            yield Path(folder) / replies.name


@contextmanager
def _alone(replies: Path) -> Iterator[None]:
    from suwen.llm.config import LLMError

    replies.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(replies.with_name(f".{replies.name}.lock"))
    try:
        lock.acquire()
    except Locked as problem:
        raise LLMError(
            f"process {problem.holder} is asking models with {replies} now, and a second one would pay for the same "
            "again: wait for it to end, or take another folder or file of replies"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def asking(session: Session, what: str, replies: Path = Path("replies.db")) -> Iterator[Asker]:
    """Open the client for one model; where a run is stopped, that is said, exit 3."""
    from suwen.llm.asker import Asker

    with client(session, [session.model], session.replies or replies, what) as llm:
        asker = Asker(llm, session.model, session.language, dry_run=session.dry_run)
        with _ended([asker], NEGATIVE):
            yield asker


@contextmanager
def _ended(askers: Sequence[Asker], stopped: int) -> Iterator[None]:
    """Say that a run was stopped; where it failed, say too why replies were of no use: often that is why."""
    from suwen.llm.asker import Unfinished

    try:
        yield
    except Unfinished as problem:
        say(str(problem))
        raise typer.Exit(stopped) from None
    except SuwenError:
        if problems := [asker.problem for asker in askers if asker.problem]:
            say(f"{askers[0].failed} {NO_REPLY}: {problems[0]}")
        raise


def tell_of_one(session: Sessions) -> None:
    """Say so where one model writes all paraphrases."""
    if len(set(session.model)) == 1:
        say(
            f"all paraphrases will be {session.model[0]}'s: CardioEmbed has two models or more, so that no model's "
            "own wording is learnt and one takes over where the other fails; give another -m"
        )


@contextmanager
def asking_all(
    session: Sessions, what: str, replies: Path = Path("replies.db"), *, stopped: int = NEGATIVE, **more: Any
) -> Iterator[list[Asker]]:
    """Open the client for several models, whose steps are told together; a run that was stopped says so.

    It ends with the exit code ``stopped`` then. More arguments are those of :func:`client`.
    """
    from suwen.llm.asker import Asker

    with client(session, session.model, session.replies or replies, what, **more) as llm:
        askers = [Asker(llm, model, dry_run=session.dry_run) for model in session.model]
        for other in askers[1:]:
            other.steps = askers[0].steps
        with _ended(askers, stopped):
            yield askers


def show_outcome(asker: Asker, funnel: Mapping[str, int], json: bool, **more: Any) -> None:
    """Print what was asked and what came of it; in a dry run, what would be asked. Exit 3 where replies are missing."""
    steps = [asdict(step) for step in asker.steps.values()]
    if json:
        key = "plan" if asker.dry_run else "steps"
        names = ("calls", "cached", "failed", "repaired", "tokens", "cost")
        kept = {} if asker.dry_run else {"funnel": dict(funnel), "problem": asker.problem, **more}
        totals = {name: sum(step[name] for step in steps) for name in names}
        print_json({key: steps, "total": totals, "cut": asker.cut, **kept})
    else:
        _print(asker, funnel, {name: str(value) for name, value in more.items()})
    if not asker.dry_run and asker.failed:
        say(f"{asker.failed} {NO_REPLY}: {asker.problem}")
        raise typer.Exit(NEGATIVE)


def _print(asker: Asker, funnel: Mapping[str, int], more: Mapping[str, str]) -> None:
    title = "Would be asked, at the most" if asker.dry_run else "Asked"
    rows = [
        (step.name, f"{step.calls:,}", f"{step.cached:,}", f"{step.tokens:,}", f"{step.cost:.4g}")
        for step in asker.steps.values()
    ]
    print_table(f"{title}, of {asker.model}", ("step", "calls", "answered already", "tokens", "cost"), rows)
    if asker.cut:
        out.print(f"{asker.cut:,} texts are longer than the model's context allows: cut and marked")
    if repaired := sum(step.repaired for step in asker.steps.values()):
        out.print(f"{repaired:,} replies were not of the form asked for, and came right when asked for again")
    if not asker.dry_run:
        for line in (*funnel_lines(funnel), *(f"{name}: {value}" for name, value in more.items())):
            out.print(line, soft_wrap=True)


def funnel_lines(funnel: Mapping[str, int]) -> list[str]:
    """The counts of a funnel, one a line; a name that has words already ends in that of a file."""
    return [f"  {count:>9,}  {name if ' ' in name else name.replace('_', ' ')}" for name, count in funnel.items()]
