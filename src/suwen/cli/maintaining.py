"""Verbs that look after an index: ``verify``, ``rebuild``, ``compact``, ``backup``, ``restore``."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from suwen.cli.options import Json
from suwen.cli.output import NEGATIVE, measuring, out, print_json
from suwen.index.engine import need
from suwen.index.opening import open_engine
from suwen.index.opening import restore as restore_index

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="The index folder.")]


def verify(index: IndexFolder, json: Json = False) -> None:
    """Read the whole index and check it; exit code 3 when something is wrong, with the fix of each problem.

    Example: `suwen verify my-index`
    """
    with closing(open_engine(index, repair=False)) as engine, measuring("verifying") as progress:
        need(engine, "upkeep")
        problems = engine.verify(progress)
    if json:
        print_json({"index": str(index), "ok": not problems, "problems": problems})
    else:
        for problem in problems or [f"{index} is in order"]:
            out.print(problem, soft_wrap=True)
    if problems:
        raise typer.Exit(NEGATIVE)


def rebuild(index: IndexFolder, json: Json = False) -> None:
    """Derive every search file again from the truth. Needs no encoder; searches go on meanwhile.

    Example: `suwen rebuild my-index`
    """
    started = time.monotonic()
    passages = _rebuilt(index)
    _told(json, f"{index}: rebuilt {passages} passages", {"passages": passages}, started)


def compact(index: IndexFolder, json: Json = False) -> None:
    """Fold deleted passages away and give their space back.

    Example: `suwen compact my-index`
    """
    with closing(open_engine(index, write=True)) as engine, measuring("compacting") as progress:
        need(engine, "upkeep")
        started, before = time.monotonic(), engine.stats()
        worked = engine.compact(progress)
        after = engine.stats()
    freed = before.bytes_truth + before.bytes_derived - after.bytes_truth - after.bytes_derived
    said = f"{index}: {before.deleted} deleted passages folded away" if worked else f"{index}: nothing to compact"
    _told(json, said, {"worked": worked, "folded": before.deleted, "bytes_freed": freed}, started)


def backup(
    index: IndexFolder,
    to: Annotated[Path, typer.Argument(help="A new folder for the backup.")],
    json: Json = False,
) -> None:
    """Copy a live index's truth to a folder; searches and writes go on meanwhile.

    Example: `suwen backup my-index backups/monday`
    """
    started = time.monotonic()
    with closing(open_engine(index)) as engine:
        need(engine, "backup")
        engine.backup(to)
    _told(json, f"{index} is backed up in {to}", {"backup": str(to)}, started)


def restore(
    source: Annotated[Path, typer.Argument(help="The folder that `suwen backup` wrote.")],
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="A new folder for the index.")],
    json: Json = False,
) -> None:
    """Make an index of a backup, search files included.

    Example: `suwen restore backups/monday my-index`
    """
    started = time.monotonic()
    restore_index(source, index)
    passages = _rebuilt(index)
    _told(json, f"{index}: restored {passages} passages", {"passages": passages}, started)


def _rebuilt(index: Path) -> int:
    with closing(open_engine(index, write=True, repair=False)) as engine, measuring("rebuilding") as progress:
        need(engine, "upkeep")
        engine.rebuild(progress)
        return engine.stats().passages


def _told(json: bool, said: str, about: dict[str, object], started: float) -> None:
    seconds = round(time.monotonic() - started, 3)
    if json:
        print_json({**about, "seconds": seconds})
    else:
        out.print(f"{said} in {seconds:.1f} s", soft_wrap=True)


VERBS = (verify, rebuild, compact, backup, restore)
