"""The ``suwen`` command: puts the verbs together and turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import Annotated

import typer

from suwen import __version__
from suwen.cli.output import FAILED, INTERRUPTED, say
from suwen.cli.verbs import Verbs, show_help
from suwen.errors import Stopped, SuwenError

#: What a file or folder refuses because of its place; anything else that the system says is a bug of ours.
_PLACE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
}

app = typer.Typer(
    name="suwen",
    cls=Verbs,
    help="Medical text retrieval, Chinese first: index documents, search them, look after the index.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Example: `suwen index my-index documents/` then `suwen search my-index 肾结石怎么判断酸性还是碱性`",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"suwen {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Medical text retrieval, Chinese first: index documents, search them, look after the index."""


def _helped(arguments: list[str]) -> bool:
    asked = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--help" in asked and show_help(typer.main.get_command(app), asked)


def run() -> None:
    """Entry point: ends with one of the exit codes that the README lists."""
    if sys.argv[1:] == ["--version"]:  # before typer, which loads pydantic for the first option it meets
        sys.stdout.write(f"suwen {__version__}\n")
        return
    # pydantic would look for plugins in the metadata of every installed package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        if not _helped(sys.argv[1:]):
            app()
    except Stopped as problem:
        if str(problem):  # of several processes, one speaks
            say(str(problem))
        sys.exit(INTERRUPTED)
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
    except OSError as problem:
        if problem.errno not in _PLACE:
            raise
        where = f"{problem.filename}: " if problem.filename else ""
        say(f"error: {where}{problem.strerror}; check your rights and the space there, or name another place")
        sys.exit(FAILED)
    finally:
        gc.freeze()  # the process ends, and with it what a last look for garbage would take a tenth of a second to find
