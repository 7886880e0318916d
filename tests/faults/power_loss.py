"""What a power cut leaves of a folder, worked out from the fault shim's journal. Knows files, nothing of indexes.

The page cache of a killed process survives; that of a machine without power does not. Four losses are applied:
``none`` keeps everything, ``zeros`` blanks every byte that was written and not synced afterwards, ``cut`` takes a file
back to its size at its last sync, and ``names`` is ``zeros`` and also takes every folder back to the names it had at
its last sync, except that a new file's own sync brings its name along (as ext4, XFS and Btrfs do).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LOSSES = ("none", "zeros", "cut", "names")
KINDS = {"W": "write", "T": "write", "S": "fsync", "R": "rename", "U": "unlink"}


class Change(NamedTuple):
    """One counted change: in which call of the workload, of which kind, on which path."""

    phase: str
    kind: str
    path: str


@dataclass
class File:
    """What the journal tells of one inode."""

    size: int = 0
    synced_size: int = 0
    dirty: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Disk:
    """A folder as the journal saw it: contents by inode, names as they are and names as a power cut leaves them."""

    root: str
    files: dict[int, File] = field(default_factory=dict)
    live: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    moved_folders: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def scan(cls, root: Path) -> Disk:
        """The folder as it stands, all of it synced: where a journal begins."""
        disk = cls(str(root))
        for path in root.rglob("*"):
            if path.is_file():
                about = path.stat()
                disk.files[about.st_ino] = File(about.st_size, about.st_size)
                disk.live[str(path)] = disk.durable[str(path)] = about.st_ino
        return disk

    def replay(self, journal: Path) -> Disk:
        """Follow the journal to its end."""
        for line in journal.read_text().splitlines():
            letter, *rest = line.split("\t")
            if letter in "WTSRU":
                getattr(self, f"_on_{letter}")(int(rest[0]), *rest[1:])
        return self

    def _on_W(self, inode: int, offset: str, length: str, path: str) -> None:
        file = self._written(inode, path)
        file.dirty.append((int(offset), int(offset) + int(length)))
        file.size = max(file.size, int(offset) + int(length))

    def _on_T(self, inode: int, size: str, path: str) -> None:
        file = self._written(inode, path)
        file.size = int(size)
        file.synced_size = min(file.synced_size, file.size)
        file.dirty = [(start, min(end, file.size)) for start, end in file.dirty if start < file.size]

    def _written(self, inode: int, path: str) -> File:
        if not path.endswith(" (deleted)"):
            self.live[path] = inode
        return self.files.setdefault(inode, File())

    def _on_S(self, inode: int, path: str) -> None:
        if inode in self.files:
            file = self.files[inode]
            file.dirty.clear()
            file.synced_size = file.size
            if self.live.get(path) == inode:
                self.durable = {name: kept for name, kept in self.durable.items() if kept != inode} | {path: inode}
            return
        for old, new in [move for move in self.moved_folders if os.path.dirname(move[1]) == path]:  # noqa: PTH120
            self.durable = dict(_moved(self.durable, old, new))
            self.moved_folders.remove((old, new))
        inside = {name: kept for name, kept in self.live.items() if os.path.dirname(name) == path}  # noqa: PTH120
        arrived = set(inside.values())
        self.durable = inside | {
            name: kept
            for name, kept in self.durable.items()
            if os.path.dirname(name) != path and kept not in arrived  # noqa: PTH120
        }

    def _on_R(self, inode: int, old: str, new: str) -> None:
        if old in self.live:
            self.live[new] = self.live.pop(old)
        else:
            self.live = dict(_moved(self.live, old, new))
            self.moved_folders.append((old, new))

    def _on_U(self, inode: int, path: str) -> None:
        self.live.pop(path, None)

    def lose(self, loss: str, trash: Path) -> None:
        """Take from the folder what a power cut takes; ``trash`` has the files that lost their names."""
        if loss == "none":
            return
        for path in Path(self.root).rglob("*-shm"):
            path.unlink()
        if loss == "names":
            self._restore_names(trash)
        for path in Path(self.root).rglob("*"):
            file = self.files.get(path.stat().st_ino) if path.is_file() else None
            if file is not None and loss == "cut":
                os.truncate(path, min(path.stat().st_size, file.synced_size))
            elif file is not None:
                _blank(path, file.dirty)

    def _restore_names(self, trash: Path) -> None:
        """Give every journalled file the name it has after the cut, or none."""
        for path in list(Path(self.root).rglob("*")):
            if path.is_file() and path.stat().st_ino in self.files:
                path.replace(trash / str(path.stat().st_ino))
        for name, inode in self.durable.items():
            if (trash / str(inode)).exists():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(trash / str(inode), name)
                self.files[Path(name).stat().st_ino] = self.files[inode]


def _blank(path: Path, ranges: list[tuple[int, int]]) -> None:
    size = path.stat().st_size
    with path.open("rb+") as file:
        for start, end in ranges:
            file.seek(start)
            file.write(bytes(max(0, min(end, size) - start)))


def _moved(names: dict[str, int], old: str, new: str) -> Iterator[tuple[str, int]]:
    for name, inode in names.items():
        yield (new + name[len(old) :] if name.startswith(old + "/") else name), inode


def changes(journal: Path) -> list[Change]:
    """The changes the shim counted, in order: those after it was armed, without shared memory."""
    phase, found = "", []
    for line in journal.read_text().splitlines():
        letter, *rest = line.split("\t")
        if letter == "P":
            phase = rest[0]
        elif letter in KINDS and phase and not rest[-1].endswith("-shm"):
            found.append(Change(phase, KINDS[letter], rest[-1]))
    return found


def killed_at(journal: Path) -> Change | None:
    """Where the shim killed the process, if it did."""
    last = journal.read_text().splitlines()[-1:]
    return Change(*last[0].split("\t")[1:]) if last and last[0].startswith("K\t") else None
