"""The ``suwen`` command: puts the verbs together and turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from suwen import __version__
from suwen.cli import demo, indexing, maintaining, mask_command, models, searching, serving, training, worker
from suwen.cli.benchmark import bench_app
from suwen.cli.curating import curate_app
from suwen.cli.jury import jury_app
from suwen.cli.output import FAILED, INTERRUPTED, say
from suwen.cli.serving import key_app
from suwen.errors import SuwenError

app = typer.Typer(
    name="suwen",
    help="Medical text retrieval, Chinese first: index documents, search them, look after the index.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    epilog="Example: `suwen index my-index documents/` then `suwen search my-index 肾结石怎么判断酸性还是碱性`",
)
for family in (demo, indexing, searching, serving, worker, maintaining, models, mask_command, training):
    for verb in family.VERBS:
        # Of a verb that is a word of Python, such as import, the name ends in an underscore.
        app.command(verb.__name__.rstrip("_").replace("_", "-"))(verb)
for group in (bench_app, jury_app, curate_app, key_app):
    app.add_typer(group)


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
