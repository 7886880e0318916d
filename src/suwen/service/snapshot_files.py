"""A backup of an index as one stream of bytes, and back: a plain tar of the files that the engine wrote. No HTTP."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from suwen.durable import sync
from suwen.service.problems import Problem

#: Bytes read or written at once.
PART = 2**20
_BLOCK = tarfile.BLOCKSIZE
_END = b"\0" * (2 * _BLOCK)


class Packed:
    """The files of a folder as a tar, whose length is known before any of it is made.

    Args:
        folder: Holds plain files, and nothing else.
    """

    def __init__(self, folder: Path) -> None:
        self._files = sorted(file for file in folder.iterdir() if file.is_file())
        sizes = [file.stat().st_size for file in self._files]
        self.length = sum(_BLOCK + -(-size // _BLOCK) * _BLOCK for size in sizes) + len(_END)

    def parts(self) -> Iterator[bytes]:
        """The bytes, a part at a time."""
        for file in self._files:
            about = tarfile.TarInfo(file.name)
            about.size = file.stat().st_size
            yield about.tobuf(tarfile.GNU_FORMAT)
            with file.open("rb") as stream:
                while part := stream.read(PART):
                    yield part
            yield b"\0" * (-about.size % _BLOCK)
        yield _END


def unpack(packed: Path, folder: Path) -> None:
    """Lay the files of a tar down in a new folder, durably.

    Raises:
        Problem: It is no tar, not a whole one, or holds anything but plain files.
    """
    folder.mkdir()
    try:
        with tarfile.open(packed, "r:") as archive:
            for about in archive:
                if not about.isreg() or not re.fullmatch(r"\w[\w.-]*", about.name):
                    raise Problem("bad_snapshot", f"the snapshot holds {about.name[:80]!r}, which is no plain file")
                source = archive.extractfile(about)
                assert source is not None
                with source, (folder / about.name).open("xb") as target:
                    shutil.copyfileobj(source, target, PART)
                    sync(folder / about.name)
                    if target.tell() != about.size:
                        raise tarfile.ReadError("unexpected end of data")
        with packed.open("rb") as stream:
            # A tar that was cut off between two files has no end.
            stream.seek(-len(_END), 2)
            if stream.read() != _END:
                raise tarfile.ReadError("it has no end")
    except (tarfile.TarError, OSError, EOFError) as problem:
        raise Problem(
            "bad_snapshot",
            f"the body is not a whole snapshot ({problem}): send what GET /snapshot gave, all of it",
        ) from None
