"""Files and folders that are on the disk whole or not at all, a power cut included, and the lock of a single writer.

One policy for the whole house: write beside, sync, rename, sync the folder. What is in a file is its owner's business.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from suwen.errors import SuwenError


class Locked(SuwenError):
    """Another process holds the lock; ``holder`` is its number, where it could be read."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is held by process {holder}: wait for it to finish")
        self.path, self.holder = path, holder


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Put a folder and all that is in it on the disk."""
    for entry in folder.rglob("*"):
        sync(entry)
    sync(folder)


def beside(path: Path) -> Path:
    """Where something is written before it takes its place: hidden, and nobody else's.

    By chance: machines that share a folder have processes of the same number, and containers even of the same name.
    """
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes ``file`` when the block ends well; otherwise the file stays as it was.

    Folders above it are made. What is written to a name that ends in ``.gz`` is packed.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = beside(file)
    try:
        with unfinished.open("wb") as stream:
            if file.suffix == ".gz":
                # No name and no time in the header: the same content gives the same file.
                with gzip.GzipFile("", "wb", fileobj=stream, mtime=0) as packed:
                    yield packed  # type: ignore[misc]
            else:
                yield stream
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    sync(file.parent)


@contextmanager
def replacing_text(file: Path) -> Iterator[TextIO]:
    """As :func:`replacing`, for text in UTF-8 with its line ends as they are."""
    with replacing(file) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="")
        yield text
        text.flush()
        text.detach()


def write_bytes(file: Path, data: bytes) -> None:
    """Replace a file in one go."""
    with replacing(file) as stream:
        stream.write(data)


def write_text(file: Path, text: str) -> None:
    """Replace a text file, in UTF-8 and with its line ends as they are; half a character pair is written as escaped."""
    write_bytes(file, text.encode("utf-8", "backslashreplace"))


def write_json(file: Path, value: Any) -> None:
    """Replace a JSON document, laid out for people to read as well."""
    write_text(file, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_lines(file: Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Replace a file of JSON lines; gives their number."""
    count = 0
    with replacing(file) as stream:
        for record in records:
            stream.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
            count += 1
    return count


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes its place as ``folder`` when the block ends well.

    A folder that is there already is replaced: refuse it before, where it should stay.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = beside(folder)
    unfinished.mkdir()
    try:
        yield unfinished
        sync_tree(unfinished)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


class FileLock:
    """An advisory lock on a file: one process at a time, released when it dies. The file holds the process's number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._handle is not None

    def acquire(self, wait: float = 0.0, *, stop: Callable[[], bool] | None = None) -> None:
        """Take the lock, trying for ``wait`` seconds or until ``stop`` says so.

        Raises:
            Locked: Another process held it all that time.
        """
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        give_up = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < give_up and not (stop is not None and stop()):
                    time.sleep(0.02)
                    continue
                holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
                os.close(handle)
                raise Locked(self.path, holder) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._handle = handle

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
