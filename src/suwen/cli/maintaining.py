"""Verbs that look after an index: ``verify``, ``rebuild``, ``compact``, ``backup``, ``restore``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from suwen.cli.options import IndexFolder, Json
from suwen.cli.output import NEGATIVE, measuring, plural, show

if TYPE_CHECKING:
    from suwen.index.engine import Engine


def verify(index: IndexFolder, json: Json = False) -> None:
    """Read the whole index and check it; exit code 3 when something is wrong, with the fix of each problem.

    Example: `suwen verify my-index`
    """
    with _engine(index, repair=False) as engine, measuring("verifying") as progress:
        problems = engine.verify(progress)
        told = engine.address
    about = {"index": told, "ok": not problems, "problems": problems}
    show(about, *(problems or [f"{told} is in order"]), json=json)
    if problems:
        raise typer.Exit(NEGATIVE)


def rebuild(index: IndexFolder, json: Json = False) -> None:
    """Derive every search file again from the truth. Needs no encoder; searches go on meanwhile.

    Example: `suwen rebuild my-index`
    """
    started = time.monotonic()
    told, passages = _rebuilt(index)
    _tell(json, f"{told}: rebuilt {plural(passages, 'passage')}", {"passages": passages}, started)


def compact(index: IndexFolder, json: Json = False) -> None:
    """Give the space of deleted passages back.

    In a large index they stay in the derived files, hidden, until they are a twentieth; `suwen rebuild` folds any away.

    Example: `suwen compact my-index`
    """
    started = time.monotonic()
    with _engine(index, write=True) as engine, measuring("compacting") as progress:
        before, worked, after = engine.stats(), engine.compact(progress), engine.stats()
    freed = before.bytes_truth + before.bytes_derived - after.bytes_truth - after.bytes_derived
    folded = before.deleted - after.deleted
    said = f"{plural(folded, 'deleted passage')} folded away" if worked else "nothing to compact"
    if after.deleted:
        said += f"; {plural(after.deleted, 'deleted passage')} left until there are more (suwen rebuild folds any away)"
    _tell(
        json,
        f"{engine.address}: {said}",
        {"worked": worked, "folded": folded, "left": after.deleted, "bytes_freed": freed},
        started,
    )


def backup(
    index: IndexFolder,
    to: Annotated[Path, typer.Argument(help="A new folder for the backup.")],
    json: Json = False,
) -> None:
    """Copy a live index's truth to a folder; searches and writes go on meanwhile.

    Example: `suwen backup my-index backups/monday`
    """
    started = time.monotonic()
    with _engine(index, ability="backup") as engine:
        engine.backup(to)
    _tell(json, f"{index} is backed up in {to}", {"backup": str(to)}, started)


def restore(
    source: Annotated[Path, typer.Argument(help="The folder that `suwen backup` wrote.")],
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="A new folder for the index.")],
    json: Json = False,
) -> None:
    """Make an index of a backup, search files included.

    Example: `suwen restore backups/monday my-index`
    """
    from suwen.index.opening import restore as restore_index

    started = time.monotonic()
    restore_index(source, index)
    told, passages = _rebuilt(index)
    _tell(json, f"{told}: restored {plural(passages, 'passage')}", {"passages": passages}, started)


@contextmanager
def _engine(
    index: Path, *, write: bool = False, repair: bool = True, ability: Literal["upkeep", "backup"] = "upkeep"
) -> Iterator[Engine]:
    """The engine of an index, open, if it can do what is asked of it."""
    from suwen.index.engine import need
    from suwen.index.opening import open_engine

    with closing(open_engine(index, write=write, repair=repair)) as engine:
        need(engine, ability)
        yield engine


def _rebuilt(index: Path) -> tuple[str, int]:
    with _engine(index, write=True, repair=False) as engine, measuring("rebuilding") as progress:
        engine.rebuild(progress)
        return engine.address, engine.stats().passages


def _tell(json: bool, said: str, about: dict[str, object], started: float) -> None:
    seconds = round(time.monotonic() - started, 3)
    show({**about, "seconds": seconds}, f"{said} in {seconds:.1f} s", json=json)


VERBS = (verify, rebuild, compact, backup, restore)
