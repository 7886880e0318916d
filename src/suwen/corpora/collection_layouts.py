"""Where the parts of a public collection lie: BEIR, CMIRB, and the parquet folders of MTEB and C-MTEB.

Finding only; reading is for ``readers`` and ``collection``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from suwen.corpora.tabular import format_of

_SHARD = re.compile(r"-\d{5}-of-\d{5}(-[0-9a-f]+)?$")
_QRELS = re.compile(r"qrels(?:[-_.](.+))?")
_SPLITS = frozenset({"train", "dev", "test", "validation"})
# A collection that names no split has one, and it is meant for testing.
_ONLY_SPLIT = "test"
_QUERY_NAMES = ("queries", "query")
_FLAT_FOLDERS = ("", "data", "default")


class Layout(NamedTuple):
    """The files of a collection, each list in reading order; empty where there are none."""

    corpus: list[Path]
    queries: list[Path]
    qrels: dict[str, list[Path]]


def find_layout(folder: Path) -> Layout:
    """Find the parts of the collection in ``folder``; ``corpus`` is empty when it holds none.

    Known are files called ``corpus``, ``queries`` or ``query`` and ``qrels`` or ``qrels-<split>`` (possibly in
    numbered shards, in the folder or in ``data``), and folders of these names, where a file of ``qrels`` is called
    after its split. C-MTEB keeps judgements in a sibling folder, ``<name>-qrels``, as ``dev`` or ``test``.
    """
    layout = Layout([], [], {})
    for below in _FLAT_FOLDERS:
        for path, name in tables_in(folder / below):
            _place_by_name(layout, path, name)
    layout.corpus.extend(path for path, _ in tables_in(folder / "corpus"))
    layout.queries.extend(path for below in _QUERY_NAMES for path, _ in tables_in(folder / below))
    for path, name in tables_in(folder / "qrels"):
        _add_qrels(layout, _split(name) or name, path)
    _add_splits(layout, folder)
    return layout


def _place_by_name(layout: Layout, path: Path, name: str) -> None:
    if name == "corpus":
        layout.corpus.append(path)
    elif name in _QUERY_NAMES or name.startswith(("queries-", "queries_")):
        layout.queries.append(path)
    elif split := _split(name):
        _add_qrels(layout, split, path)


def _add_splits(layout: Layout, folder: Path) -> None:
    """Take files called only after a split for judgements, where nothing else is, and there is something to judge."""
    if layout.qrels or not layout.corpus:
        return
    for place in (
        folder,
        folder / "data",
        folder / "default",
        Path(f"{folder}-qrels"),
        Path(f"{folder}-qrels", "data"),
    ):
        for path, name in tables_in(place):
            if name in _SPLITS:
                _add_qrels(layout, name, path)


def _add_qrels(layout: Layout, split: str, path: Path) -> None:
    layout.qrels.setdefault(split, []).append(path)


def _split(name: str) -> str | None:
    match = _QRELS.fullmatch(name)
    return (match[1] or _ONLY_SPLIT) if match else None


def tables_in(folder: Path) -> Iterator[tuple[Path, str]]:
    """The table files of a folder, sorted, with their names less suffix and shard number; packed twins left out."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or format_of(path) in (None, "text") or not path.is_file():
            continue
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        if path is plain or not plain.is_file():
            yield path, _SHARD.sub("", plain.stem)
