"""XML and zip files from strangers: no entities, nothing unpacked beyond its limits. What is in them is for others."""

from __future__ import annotations

import codecs
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree
from xml.parsers import expat

from suwen.corpora.files import BadRecord

#: Bytes of one part and of all parts unpacked; a part so many times its packed size is a bomb (prose: three).
_MOST_PART, _MOST, _RATIO = 64 * 2**20, 1024 * 2**20, 200
_DEPTH = 400
#: The longer marks first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
_DECLARED = re.compile(rb"""\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([\w.:-]{1,40})""")
#: What is declared as one of these is often written in the larger one that holds it.
_LARGER = {"gb2312": "gb18030", "gbk": "gb18030"}


class UnsafeFile(BadRecord):
    """A file that was made to do harm, or is damaged so that it would."""


def decoded(data: bytes, place: str) -> str:
    r"""XML as text, by its byte-order mark or what it declares, else as UTF-8.

    >>> decoded('<?xml version="1.0" encoding="GBK"?><p>心</p>'.encode("gbk"), "a.xml")
    '<?xml version="1.0" encoding="GBK"?><p>心</p>'

    Raises:
        BadRecord: It is in another encoding than it says, or in one that nobody knows.
    """
    named = next((name for mark, name in _MARKS if data.startswith(mark)), "")
    if not named:
        declared = _DECLARED.match(data)
        name = declared[1].decode("ascii").lower() if declared else "utf-8"
        # The declaration was read byte by byte: it cannot be in what takes two for each.
        named = "utf-8" if name.startswith(("utf-16", "utf-32", "ucs")) else _LARGER.get(name, name)
    problems: list[Exception] = []
    for name in (
        named,
        "utf-8",
    ):  # what says something wrong of itself is mostly in UTF-8, which is hardly met by chance
        try:
            return data.decode(name)
        except (LookupError, UnicodeError) as problem:
            problems.append(problem)
    raise BadRecord(f"{place}: it is not written in {named} as it says ({problems[0]}); save it as UTF-8")


def parse_xml(data: bytes, place: str) -> ElementTree.Element:
    """Parse XML that declares no entities; names lose their namespaces.

    Raises:
        UnsafeFile: It declares entities, which can grow without end, or is nested without reason.
        BadRecord: It is not whole.
    """
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    depth = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH:
            raise UnsafeFile(f"{place}: elements are nested over {_DEPTH} deep; the file is damaged or hostile")
        builder.start(_local(name), {_local(key): value for key, value in attributes.items()})

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_local(name))

    def entity(*_: object) -> None:
        raise UnsafeFile(f"{place}: it declares XML entities, which are not expanded here; save it without them")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = builder.data, entity
    try:
        parser.Parse(decoded(data, place), True)
        return builder.close()
    except (expat.ExpatError, AssertionError) as problem:
        raise BadRecord(f"{place}: not whole XML ({problem}); get it again") from None


def _local(name: str) -> str:
    return name.rpartition("}")[2]


class SafeZip:
    """The parts of a zip file, each checked before it is unpacked."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self._archive = path, archive
        self.names = frozenset(archive.namelist())

    def read(self, name: str) -> bytes:
        """One part; raises :class:`BadRecord` where it is missing or damaged."""
        try:
            with self._archive.open(name) as part:
                data = part.read(_MOST_PART + 1)
        except (KeyError, zipfile.BadZipFile, RuntimeError, OSError, EOFError, zlib.error) as problem:
            raise BadRecord(f"{self.path}: its part {name} cannot be read ({problem}); get the file again") from None
        if len(data) > _MOST_PART:
            raise UnsafeFile(f"{self.path}: its part {name} is over {_MOST_PART // 2**20} MiB unpacked: not read")
        return data


@contextmanager
def open_zip(path: Path) -> Iterator[SafeZip]:
    """Open a zip file.

    Raises:
        UnsafeFile: It would unpack to far more than any book.
        BadRecord: It is no zip file, or is cut off.
    """
    if not path.stat().st_size:
        raise BadRecord(f"{path}: the file is empty; remove it or get it again")
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as problem:
        raise BadRecord(f"{path}: not a whole file of its kind ({problem}); get it again") from None
    with archive:
        for part in archive.infolist():
            if part.file_size > _MOST_PART or part.file_size > max(2**20, _RATIO * part.compress_size):
                raise UnsafeFile(
                    f"{path}: a zip bomb? its part {part.filename} unpacks {part.compress_size:,} bytes to "
                    f"{part.file_size:,}; nothing of it was read"
                )
        if sum(part.file_size for part in archive.infolist()) > _MOST:
            raise UnsafeFile(f"{path}: it unpacks to over {_MOST // 2**20} MiB; nothing of it was read")
        yield SafeZip(path, archive)
