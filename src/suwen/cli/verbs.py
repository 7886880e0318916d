"""Which verbs there are, in the order of the help, and the group that loads one when it is called. No verb is here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class Verb(NamedTuple):
    """Where a verb is, and its line in the help, which is shown without loading it."""

    module: str
    attribute: str
    help: str

    def load(self, name: str) -> Any:
        """The command itself: a function, or a group of verbs."""
        found = getattr(import_module(f"suwen.cli.{self.module}"), self.attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)  # one with a single verb stays a group
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
        alone.command(name)(found)
        return typer.main.get_command(alone)


VERBS = {
    "demo": Verb(
        "demo",
        "demo",
        "Index the bundled sample collection and ask it three questions in Chinese and one in English.",
    ),
    "index": Verb("indexing", "index", "Make an index of the sources, or bring it up to date with them."),
    "add": Verb("indexing", "add", "Add documents to an index, or replace those with the same id; nothing is dropped."),
    "delete": Verb("indexing", "delete", "Delete documents by id."),
    "encode": Verb(
        "encoding",
        "encode",
        "Encode documents on a GPU machine, for `suwen index --vectors` where it is served (needs suwen[train]).",
    ),
    "search": Verb("searching", "search", "Search an index. Exit code 3 when nothing relevant was found."),
    "info": Verb(
        "searching",
        "info",
        "Explain an index or a pair: what it holds, which space it is in, who encoded it.",
    ),
    "recall": Verb("searching", "recall", "Measure the index's recall against exact search, on its own vectors."),
    "synonyms": Verb(
        "searching",
        "synonyms",
        "Give an index names of its own: one group a line, separated by commas. Searches read it at once.",
    ),
    "serve": Verb(
        "serving",
        "serve",
        "Serve an index over HTTP, with a web page: search, and documents that are found at once.",
    ),
    "worker": Verb(
        "worker",
        "worker",
        "Encode again, in the background: a server's fresh documents, or what the fastest tier encoded of an index.",
    ),
    "verify": Verb(
        "maintaining",
        "verify",
        "Read the whole index and check it; exit code 3 when something is wrong, with the fix of each problem.",
    ),
    "rebuild": Verb(
        "maintaining",
        "rebuild",
        "Derive every search file again from the truth. Needs no encoder; searches go on meanwhile.",
    ),
    "compact": Verb("maintaining", "compact", "Give the space of deleted passages back."),
    "engine": Verb("engines", "engine_app", "Engines: move an index to another, try one out."),
    "backup": Verb(
        "maintaining",
        "backup",
        "Copy a live index's truth to a folder; searches and writes go on meanwhile.",
    ),
    "restore": Verb("maintaining", "restore", "Make an index of a backup, search files included."),
    "import": Verb(
        "models",
        "import_",
        "Bring released weights into a pair that index, search, serve and bench take (needs suwen[train]).",
    ),
    "export": Verb(
        "models",
        "export",
        "Turn a model into a light pair that serves without torch (needs suwen[train]).",
    ),
    "assemble": Verb(
        "models",
        "assemble",
        "Make the full pair of a light one: its adapter merged into the base you have (needs suwen[train]).",
    ),
    "train": Verb(
        "training",
        "train",
        "Train by a recipe (needs suwen[train]). Finished stages are kept; interrupt it and go on with --resume.",
    ),
    "sweep": Verb(
        "training",
        "sweep",
        "Run a recipe's variants over seeds and write a table or figure of its paper (needs suwen[train]).",
    ),
    "adapt": Verb(
        "adapting",
        "adapt",
        "Make a specialist of a shelf of books, and measure it before and after (needs suwen[train]).",
    ),
    "key": Verb("serving", "key_app", "Keys of the service: who may do what, until when."),
    "mask": Verb(
        "mask_command",
        "mask",
        "Mask names, numbers and addresses of people; the same person has the same mask all over a document.",
    ),
    "bench": Verb(
        "benchmark",
        "bench_app",
        "Benchmarks: run suites, compare and report results, check training rows for a suite's queries.",
    ),
    "jury": Verb(
        "jury",
        "jury_app",
        "Build and audit benchmarks with LLM judges: pool, judge, consensus, report, review, audit.",
    ),
    "curate": Verb("curating", "curate_app", "Make benchmarks and training data."),
}


#: What pydantic says of an option's value, and what a user is told.
_PLAINLY = (
    (r"Value error, ", ""),
    (r"Input should be a valid integer.*", "it is not a whole number"),
    (r"Input should be a valid number.*", "it is not a number"),
    (r"Input should be greater than or equal to (.*)", r"it must be at least \1"),
    (r"Input should be less than or equal to (.*)", r"it must be at most \1"),
    (r"Input should be", "it must be"),
)


class Verbs(TyperGroup):
    """Loads a verb's module when the verb is called: all of them take a second and more."""

    _listing = False

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=verb.help) for name, verb in VERBS.items()}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb; in the help only its name and its line."""
        verb = VERBS.get(cmd_name)
        return self.commands.get(cmd_name) if self._listing or verb is None else verb.load(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """The verb, with plain words for a wrong value of one of its options."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as problem:
            problem.message = plainly(problem.message)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, in colour; wrong arguments get plain lines, without the time that rich takes to load."""
        self._listing, self.rich_markup_mode = True, "markdown"
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing, self.rich_markup_mode = False, None


def plainly(message: str) -> str:
    """What is wrong with an option's value, in plain words; a word that is not among those it takes has a nearest one.

    >>> plainly("Value error, 'hybird' is not one of 'hybrid', 'dense'.")
    "'hybird' is not one of 'hybrid', 'dense'. Did you mean 'hybrid'?"
    """
    for said, plain in _PLAINLY:
        message = re.sub(f"^{said}", plain, message)
    if (found := re.fullmatch(r"'(.*)' is not one of (.*)\.", message)) is not None:
        close = difflib.get_close_matches(found[1], re.findall(r"'(.*?)'", found[2]), n=1)
        message += f" Did you mean '{close[0]}'?" if close else ""
    return message


def show_help(group: Any, arguments: Sequence[str]) -> bool:
    """Show the help that arguments ask for, before they are parsed, which loads pydantic; whether they name a verb."""
    command, context = group, group.context_class(group, info_name="suwen")
    for word in arguments[: arguments.index("--help")]:
        if not isinstance(command, TyperGroup):
            break
        if (command := command.get_command(context, word)) is None:
            return False
        context = command.context_class(command, info_name=word, parent=context)
    # What rich shows it has printed by itself, and there is nothing left to say.
    if plain := command.get_help(context):
        typer.echo(plain)
    return True
