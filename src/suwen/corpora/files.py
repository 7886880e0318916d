"""Opening text files, gzipped or not, and saying plainly why one cannot be read. What is in them is for others."""

from __future__ import annotations

import codecs
import difflib
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from suwen.errors import SuwenError


class CorpusError(SuwenError):
    """A file or folder cannot be read, or a collection cannot be written."""


class BadRecord(CorpusError):
    """One record of a file cannot be used; the others can, so a reader may skip it."""


_GZIP_MAGIC = b"\x1f\x8b"
_MAGICS = {
    b"%PDF": "a PDF file: take its text out first",
    b"PK\x03\x04": "a zip archive or an Office file: unpack it, or save it as text or CSV",
    b"PAR1": "a parquet file: name it .parquet",
    _GZIP_MAGIC: "gzip data: give the file a name that ends in .gz",
}
#: First the longer marks: UTF-32's begins with UTF-16's.
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_HEAD = 8192
_GUESS = 1 << 20
_PIECE, _PIECES = 1 << 16, 256
_TWO_HAN = re.compile("[\u4e00-\u9fff]{2}")
#: Of the characters of Chinese text so many are common ones, of GB 2312's first level: at least 0.9 in each text of the
#: sample collection. Big5 read as GB18030 has 0.1 to 0.6.
_COMMON = 0.7


@contextmanager
def open_text(path: Path, encoding: str = "utf-8") -> Iterator[TextIO]:
    """Open ``path`` for reading as text, whatever its line ends; a ``.gz`` name is unpacked and a BOM dropped.

    Raises:
        CorpusError: on opening, the file is missing, empty or not text; while reading, it turns out to be in another
            encoding, damaged or cut off. The message names the file, the line and the way out.
    """
    try:
        codec = codecs.lookup(encoding).name
    except LookupError:
        raise CorpusError(f"there is no encoding {encoding!r}; use a name such as utf-8 or gb18030") from None
    try:
        with _open_bytes(path) as raw:
            _check_head(path, cast(io.BufferedReader, raw).peek(_HEAD)[:_HEAD], codec)
            with io.TextIOWrapper(raw, encoding="utf-8-sig" if codec == "utf-8" else codec, newline="") as text:
                yield text
    except UnicodeDecodeError as error:
        raise _wrong_encoding(path, codec, error) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, error) from None
    except FileNotFoundError:
        raise CorpusError(not_there(path)) from None
    except OSError as error:
        raise CorpusError(
            f"{path}: cannot be read ({error.strerror or error}); check the name and your rights"
        ) from error


def encoding_of(path: Path) -> str:
    """The encoding that a file seems to have: UTF-8 unless its mark or its bytes say UTF-16, UTF-32 or GB18030.

    A file that is none of these is called UTF-8 too: opening it says what is wrong.
    """
    if not path.is_file():
        return "utf-8"  # a pipe can be read only once
    try:
        with _open_bytes(path) as raw:
            sample = _telling(raw)
    except (OSError, EOFError, zlib.error):
        return "utf-8"
    for mark, name in _MARKS.items():
        if sample.startswith(mark):
            return name
    return "gb18030" if _is_common_chinese(sample) and not _is_mostly_utf8(sample) else "utf-8"


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Return all of a text file; errors as in :func:`open_text`."""
    with open_text(path, encoding) as file:
        return file.read()


def not_there(missing: Path) -> str:
    """What to say of a path where nothing is: the nearest name beside it, if there is one."""
    if missing.parts[:1] in (("http:",), ("https:",)):  # a path has lost one of the two strokes
        return f"{missing.parts[0]}//{'/'.join(missing.parts[1:])}: an address is not read; download it first"
    if missing.is_symlink():
        return f"{missing}: the link leads to {missing.readlink()}, and there is nothing: mend the link or remove it"
    there = [path.name for path in missing.parent.iterdir()] if missing.parent.is_dir() else []
    close = difflib.get_close_matches(missing.name, there, n=1)
    way_out = f"did you mean {missing.with_name(close[0])}?" if close else "check the path"
    return f"{missing}: there is no such file or folder; {way_out}"


def _open_bytes(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _check_head(path: Path, head: bytes, codec: str) -> None:
    if not head:
        raise CorpusError(f"{path}: the file is empty; remove it or write it again")
    for magic, meaning in _MAGICS.items():
        if head.startswith(magic):
            raise CorpusError(f"{path}: this is not text but {meaning}")
    if codec.startswith(("utf-16", "utf-32")):
        return
    if head.startswith(_UTF16_MARKS):
        raise CorpusError(f"{path}:1: not {codec} text; {_way_out(path, 'UTF-16')}")
    if b"\0" in head:
        raise CorpusError(f"{path}: this is a binary file (it holds NUL bytes), not text; convert it to text first")


def _way_out(path: Path, name: str) -> str:
    return (
        f"it looks like {name}. Convert it (iconv -f {name} -t UTF-8 {path.name} > utf8-{path.name}) "
        f"or give --encoding {name.lower()} where the command has it"
    )


def _wrong_encoding(path: Path, codec: str, error: UnicodeDecodeError) -> CorpusError:
    line, is_last = _bad_line(path, codec)
    place = f"{path}:{line}" if line else str(path)
    if is_last and error.reason == "unexpected end of data":
        return CorpusError(f"{place}: the last character is half there, the file looks cut off; get it again")
    with _open_bytes(path) as raw:
        sample = raw.read(_GUESS)
    for name, is_it in (("GB18030", _is_common_chinese), ("BIG5", _is_common_big5)):
        if codec != name.lower() and is_it(sample):
            return CorpusError(f"{place}: not {codec} text; {_way_out(path, name)}")
    return CorpusError(
        f"{place}: not {codec} text ({error.reason}); find out its encoding and save it as UTF-8 "
        f"(iconv -f ENCODING -t UTF-8 {path.name} > utf8-{path.name}), or give --encoding where the command has it"
    )


def _bad_line(path: Path, codec: str) -> tuple[int, bool]:
    """The number of the first line that does not decode, and whether it is the last; 0 where lines are not bytes."""
    if "a\n".encode(codec) != b"a\n":
        return 0, False
    with _open_bytes(path) as raw:
        for number, line in enumerate(raw, 1):
            try:
                line.decode(codec)
            except UnicodeDecodeError:
                return number, not line.endswith(b"\n")
    return 0, False


def _telling(raw: BinaryIO) -> bytes:
    """The first piece of a file that is not ASCII, from which its encoding can be told; or its last one looked at."""
    piece = raw.read(_PIECE)
    for _ in range(_PIECES):
        if not piece.isascii() or len(piece) < _PIECE:
            break
        piece = raw.read(_PIECE)
    return piece


def _is_mostly_utf8(sample: bytes) -> bool:
    """Whether most of it is whole UTF-8: a damaged file, which GB18030 might read as other characters."""
    text = sample.decode(errors="replace")
    broken = text.count("\ufffd")
    # Characters of three bytes: those of two come about by chance where two Chinese ones meet.
    return sum(character > "\u07ff" for character in text) - broken >= broken


def _is_gb18030(sample: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("gb18030")().decode(sample)
    except UnicodeDecodeError:
        return False
    # Latin-1 text often decodes too, but its accents come singly and so never give two characters in a row.
    return _TWO_HAN.search(text) is not None


def _is_common_chinese(sample: bytes) -> bool:
    """Whether it is surely GB18030: Big5 and others decode as well, into characters that nobody writes."""
    if not _is_gb18030(sample):
        return False
    text = codecs.getincrementaldecoder("gb18030")().decode(sample)
    codes = [character.encode("gb18030") for character in text if character > "\x7f"]
    signs = sum(code[0] in (0xA1, 0xA3) for code in codes)  # punctuation, and letters of full width
    common = sum(0xB0 <= code[0] <= 0xD7 and code[1] >= 0xA1 for code in codes)
    return common >= _COMMON * (len(codes) - signs)


def _is_common_big5(sample: bytes) -> bool:
    """Whether it is surely Big5, by the characters of its first level."""
    try:
        text = codecs.getincrementaldecoder("big5")().decode(sample)
    except UnicodeDecodeError:
        return False
    leads = [character.encode("big5", "replace")[0] for character in text if character > "\x7f"]
    words = [lead for lead in leads if lead > 0xA3]  # the rest is punctuation
    return bool(words) and sum(lead <= 0xC6 for lead in words) >= _COMMON * len(words)


def _damaged(path: Path, error: Exception) -> CorpusError:
    if path.suffix != ".gz":
        return CorpusError(f"{path}: cannot be unpacked ({error})")
    lines = 0
    try:
        with _open_bytes(path) as raw:
            for lines, _ in enumerate(raw, 1):  # noqa: B007 - the count reached is what is wanted
                pass
    except (EOFError, OSError, zlib.error):
        pass
    if isinstance(error, gzip.BadGzipFile) and not lines:
        return CorpusError(f"{path}: named .gz but not gzip data ({error}); rename it or pack it again")
    return CorpusError(f"{path}:{lines + 1}: the file looks cut off or damaged here ({error}); get it again")
