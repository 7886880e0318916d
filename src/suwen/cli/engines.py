"""Verbs about engines: ``engine copy``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from suwen.cli.options import Json
from suwen.cli.output import measuring, plural, show

engine_app = typer.Typer(name="engine", help="Engines: move an index from one to another.", no_args_is_help=True)


@engine_app.callback()
def _group() -> None:
    """Engines: move an index from one to another."""


@engine_app.command()
def copy(
    source: Annotated[Path, typer.Argument(metavar="FROM", help="An index: its folder, or postgresql://…")],
    target: Annotated[Path, typer.Argument(metavar="TO", help="A place without an index, or an unfinished copy.")],
    json: Json = False,
) -> None:
    """Copy an index to another engine, vectors and all, without an encoder. Run it again to go on where it was cut off.

    Example: `suwen engine copy my-index postgresql://suwen@db/clinic`
    """
    from suwen.index.address import shown
    from suwen.index.copying import copy_index

    started = time.monotonic()
    with measuring("copying") as progress:
        documents, passages = copy_index(source, target, progress)
    about = {"from": shown(source), "to": shown(target), "documents": documents, "passages": passages}
    about["seconds"] = round(time.monotonic() - started, 3)
    said = (
        f"{shown(target)}: {plural(documents, 'document')}, {plural(passages, 'passage')}, in {about['seconds']:.1f} s"
    )
    show(about, said, json=json)
