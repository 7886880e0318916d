"""Verbs about engines: ``engine copy`` and ``engine check``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from suwen.cli.options import Json
from suwen.cli.output import measuring, plural, show

engine_app = typer.Typer(name="engine", help="Engines: move an index to another, try one out.", no_args_is_help=True)


@engine_app.callback()
def _group() -> None:
    """Engines: move an index to another, try one out."""


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


@engine_app.command()
def check(
    address: Annotated[Path, typer.Argument(metavar="ADDRESS", help="A database: postgresql://…[?milvus=HOST:19530]")],
    rounds: Annotated[int, typer.Option(min=1, help="How many random changes.")] = 40,
    seed: Annotated[int, typer.Option(help="Of the random changes.")] = 0,
    json: Json = False,
) -> None:
    """Try an engine out on your own servers, in an index of its own that is taken away again; no encoder is needed.

    Example: `suwen engine check postgresql://suwen@db/clinic?milvus=milvus:19530`
    """
    from suwen.index.address import shown
    from suwen.index.opening import try_engine

    started = time.monotonic()
    with measuring("trying the engine out") as progress:
        found = try_engine(address, rounds, seed, progress)
    broken = [one for one in found if one.problem]
    about = {"address": shown(address), "held": not broken, "promises": [one._asdict() for one in found]}
    about["seconds"] = round(time.monotonic() - started, 3)
    lines = [f"{'BROKEN' if one.problem else 'held'}: {one.promise}" for one in found]
    lines += [f"  {one.promise}: {one.problem}" for one in broken]
    show(about, "\n".join(lines), json=json)
    if broken:
        raise typer.Exit(1)
