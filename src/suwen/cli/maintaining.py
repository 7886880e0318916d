"""Verbs that look after an index: ``verify``, ``rebuild``, ``compact``, ``backup``, ``restore``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from suwen.cli.output import NEGATIVE, Json, measuring, out, print_json
from suwen.index import upkeep
from suwen.index.embedded import EmbeddedEngine

IndexFolder = Annotated[Path, typer.Argument(metavar="INDEX", help="The index folder.")]


def verify(index: IndexFolder, json: Json = False) -> None:
    """Read the whole index and check it; exit code 3 when something is wrong, with the fix of each problem.

    Example: `suwen verify my-index`
    """
    engine = EmbeddedEngine.open(index, heal=False)
    try:
        with measuring("verifying") as progress:
            problems = engine.verify(progress)
    finally:
        engine.close()
    if json:
        print_json({"index": str(index), "ok": not problems, "problems": problems})
    else:
        for problem in problems or [f"{index} is in order"]:
            out.print(problem, soft_wrap=True)
    if problems:
        raise typer.Exit(NEGATIVE)


def rebuild(index: IndexFolder, json: Json = False) -> None:
    """Derive every search file anew from the truth. Needs no encoder; searches go on meanwhile.

    Example: `suwen rebuild my-index`
    """
    started = time.monotonic()
    passages = _rebuilt(index)
    _told(json, f"{index}: rebuilt {passages} passages", {"passages": passages}, started)


def compact(index: IndexFolder, json: Json = False) -> None:
    """Fold deleted passages away and give their space back.

    Example: `suwen compact my-index`
    """
    engine = EmbeddedEngine.open(index, write=True)
    started = time.monotonic()
    try:
        before = engine.stats()
        with measuring("compacting") as progress:
            worked = engine.compact(progress)
        after = engine.stats()
    finally:
        engine.close()
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
    engine = EmbeddedEngine.open(index)
    try:
        engine.backup(to)
    finally:
        engine.close()
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
    upkeep.restore(source, index)
    passages = _rebuilt(index)
    _told(json, f"{index}: restored {passages} passages", {"passages": passages}, started)


def _rebuilt(index: Path) -> int:
    engine = EmbeddedEngine.open(index, write=True, heal=False)
    try:
        with measuring("rebuilding") as progress:
            engine.rebuild(progress)
        return engine.stats().passages
    finally:
        engine.close()


def _told(json: bool, said: str, about: dict[str, object], started: float) -> None:
    seconds = round(time.monotonic() - started, 3)
    if json:
        print_json({**about, "seconds": seconds})
    else:
        out.print(f"{said} in {seconds:.1f} s", soft_wrap=True)


VERBS = (verify, rebuild, compact, backup, restore)
