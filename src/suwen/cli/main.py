"""The ``suwen`` command: puts the verbs together and turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from suwen import __version__
from suwen.cli import demo, indexing, maintaining, models, searching, serving, training, worker
from suwen.cli.output import FAILED, INTERRUPTED, say
from suwen.errors import SuwenError

#: Verbs that most calls do without, and their modules: these take a quarter of the time in which the command starts.
LATER = {"mask": "mask_command", "bench": "benchmark", "jury": "jury", "curate": "curating"}


class _Verbs(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *LATER]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)
        return typer.main.get_command(getattr(import_module(f"suwen.cli.{LATER[cmd_name]}"), f"{cmd_name}_app"))


app = typer.Typer(
    name="suwen",
    cls=_Verbs,
    help="Medical text retrieval, Chinese first: index documents, search them, look after the index.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Example: `suwen index my-index documents/` then `suwen search my-index 肾结石怎么判断酸性还是碱性`",
)
for family in (demo, indexing, searching, serving, worker, maintaining, models, training):
    for verb in family.VERBS:
        # Of a verb that is a word of Python, such as import, the name ends in an underscore.
        app.command(verb.__name__.rstrip("_").replace("_", "-"))(verb)
app.add_typer(serving.key_app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"suwen {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Medical text retrieval, Chinese first: index documents, search them, look after the index."""


def run() -> None:
    """Entry point: exit code 0 done, 1 failed with a message, 2 wrong usage, 3 a negative answer, 130 interrupted."""
    try:
        app()
    except SuwenError as problem:
        say(f"error: {problem}")
        sys.exit(FAILED)
    except (KeyboardInterrupt, SystemExit) as end:
        # typer turns an interrupt into an exit of its own, without a word.
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        say("interrupted: what was stored stays; run the same command again to go on")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe (head, less) left: nothing is wrong.
        sys.stderr.close()
        sys.exit(0)
