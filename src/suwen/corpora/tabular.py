"""Rows of JSON lines, JSON arrays, CSV, TSV and parquet files, streamed. What fields mean is for ``record_fields``."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TextIO

from suwen.corpora.files import BadRecord, CorpusError, open_text

#: A record, or the reason why there is none at this place.
Row = tuple[str, Mapping[str, Any] | BadRecord]

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "text",
    ".md": "text",
    ".markdown": "text",
}
#: A first line by which Excel is told what parts the columns.
_SEPARATOR = re.compile(r"sep=(.)\r?\n?", re.I)
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_CUT_OFF = "the file looks cut off; get it again, or remove this last record"
_CHUNK = 1 << 16
_CELL_LIMIT = 1 << 26
_BATCH_ROWS = 512
_BETWEEN = re.compile(r"[\s,:]*")
#: Of a JSON file: an array; an object with an array of records under its first name (BioASQ's ``questions``); or
#: records by their ids (PubMedQA's).
_NAME = r'\s*"(?:[^"\\]|\\.)*"\s*:\s*'
_OPENING = re.compile(rf"\[|\{{{_NAME}\[(?=\s*\{{)|(?P<keyed>\{{)(?={_NAME}\{{)")


def format_of(path: Path) -> str | None:
    """The format that a file's name stands for: jsonl, json, csv, tsv, parquet or text; None when it says nothing."""
    gzipped = path.suffix == ".gz"
    format = _SUFFIXES.get(Path(path.stem).suffix.lower() if gzipped else path.suffix.lower())
    return None if gzipped and format in ("parquet", "text") else format


def rows(
    path: Path, format: str, encoding: str = "utf-8", columns: Sequence[str] = (), headings: Collection[str] = ()
) -> Iterator[Row]:
    """Yield ``(place, record)`` for every record of a file, one at a time.

    ``place`` is what an error message calls the record. A record that cannot be parsed is yielded as a
    :class:`BadRecord` so that the caller may go on; what is wrong with the file as a whole is raised.

    ``columns`` names the cells of a csv or tsv file without a header row (one whose first row has none of these names,
    nor of ``headings``, the other names a header may have) and the items of JSON lines that are arrays. The last of
    them may be missing: in any array, and in all rows of a file if they are in its first. With columns a quote in a tsv
    is a letter like any other, as the public sets have it.
    """
    if format == "jsonl":
        return _json_lines(path, encoding, columns)
    if format == "json":
        return _json_array(path, encoding)
    if format == "parquet":
        return _parquet(path)
    if format not in _DELIMITERS:
        raise CorpusError(
            f"{path}: a text has no records, and records belong here; give jsonl, json, csv, tsv or parquet, and if it "
            "is one of these, name it so"
        )
    return _delimited(path, encoding, _DELIMITERS[format], columns, headings)


def records(path: Path, format: str | None = None, encoding: str = "utf-8") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield ``(place, record)`` for every record of a file, of the format its name says unless given (else jsonl).

    Raises:
        CorpusError: The file cannot be read, or a record cannot be parsed.
    """
    for place, record in rows(path, format or format_of(path) or "jsonl", encoding):
        if isinstance(record, BadRecord):
            raise record
        yield place, record


def _json_lines(path: Path, encoding: str, columns: Sequence[str]) -> Iterator[Row]:
    with open_text(path, encoding) as file:
        for number, line in enumerate(file, 1):
            if line and not line.isspace():
                place = f"{path}:{number}"
                yield place, _parse(line, place, columns)


def _parse(line: str, place: str, columns: Sequence[str]) -> Mapping[str, Any] | BadRecord:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        if not line.endswith(("\n", "\r")):
            return BadRecord(f"{place}: not a whole JSON object ({error}); {_CUT_OFF}")
        return BadRecord(f"{place}: not valid JSON ({error}); each line must be one JSON object")
    if not columns or not isinstance(record, list):
        return _object(record, place)
    if len(record) > len(columns):
        return BadRecord(f"{place}: an array of {len(record)} where {_known(columns)}; take out what is none of these")
    return dict(zip(columns, record, strict=False))


def _known(columns: Sequence[str]) -> str:
    return f"at most {len(columns)} items are known ({', '.join(columns)})"


def _object(record: Any, place: str) -> Mapping[str, Any] | BadRecord:
    if isinstance(record, dict):
        return record
    return BadRecord(f'{place}: a JSON {type(record).__name__} where an object such as {{"id": …, "text": …}} belongs')


def _json_array(path: Path, encoding: str) -> Iterator[Row]:
    with open_text(path, encoding) as file:
        for number, record in enumerate(_items(file, path), 1):
            place = f"{path}: record {number}"
            yield place, _object(record, place)


def _items(file: TextIO, path: Path) -> Iterator[Any]:
    """The items of a JSON array, or of an object by ids, holding one item and one chunk of text at a time."""
    decode = json.JSONDecoder().raw_decode
    buffer = file.read(_CHUNK).lstrip()
    opening = _OPENING.match(buffer)
    if opening is None:
        raise CorpusError(
            f"{path}: a .json file must hold one array of objects, or objects by their ids; if it has an object on "
            "each line, name it .jsonl; if its records lie deeper, write them into one array, or on lines of a .jsonl"
        )
    position, number, key = opening.end(), 1, None
    keyed, opening = bool(opening["keyed"]), None  # a match would keep the first chunk
    while True:
        between = _BETWEEN.match(buffer, position)
        position = between.end() if between else position
        if buffer.startswith("}" if keyed else "]", position):
            return
        try:
            item, position = decode(buffer, position)
        except (json.JSONDecodeError, RecursionError) as error:
            if not _may_go_on(error, buffer):
                raise CorpusError(f"{path}: record {number} is not valid JSON ({error}); correct it") from None
            # Twice as much each time, or an item of many megabytes would be parsed once per chunk.
            more = file.read(max(_CHUNK, len(buffer) - position))
            if not more:
                raise CorpusError(f"{path}: record {number} does not end; {_CUT_OFF}") from None
            buffer, position = buffer[position:] + more, 0
            continue
        if keyed and key is None:
            key = item
            continue
        if number == 1 and key is not None and _is_column(key, item):
            raise CorpusError(f"{path}: {_columns_to_lines(path)}")
        number += 1
        yield item if key is None or not isinstance(item, dict) else {"_id": key, **item}
        key = None
        if position > _CHUNK:
            buffer, position = buffer[position:], 0


def _is_column(key: Any, item: Any) -> bool:
    """Whether an object holds columns by their names (MS MARCO's own file), each with its values by their numbers."""
    return isinstance(item, dict) and "0" in item and not str(key).isdigit() and all(map(str.isdigit, item))


def _columns_to_lines(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return (
        "it holds columns, not records, and would have to be read whole. Write its records on a line each: "
        f"""python -c "import json; d = json.load(open('{name}')); [print(json.dumps(dict(zip(d, row)))) """
        f"""for row in zip(*(c.values() for c in d.values()))]" > {name.removesuffix(".json")}.jsonl"""
    )


def _may_go_on(error: json.JSONDecodeError | RecursionError, buffer: str) -> bool:
    """Whether more text could put the error right: it lies at the end, or in a string that has not ended."""
    if isinstance(error, RecursionError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos > len(buffer) - 16


def _delimited(
    path: Path, encoding: str, delimiter: str, columns: Sequence[str], headings: Collection[str]
) -> Iterator[Row]:
    # The limit is the process's own; it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), _CELL_LIMIT))
    with open_text(path, encoding) as file:
        first, above = [file.readline()], 0
        if said := _SEPARATOR.fullmatch(first[0]):
            first, above, delimiter = [file.readline()], 1, said[1]
        elif not columns:
            delimiter = _delimiter(first[0], delimiter)
        named = {cell.strip(' "\r\n') for cell in first[0].split(delimiter)} & {*columns, *headings}
        bare = columns and not named
        quoting: Literal[0, 3] = 3 if columns and delimiter == "\t" else 0  # csv.QUOTE_NONE, csv.QUOTE_MINIMAL
        reader = csv.reader(chain(first, file), delimiter=delimiter, strict=True, quoting=quoting)
        header = [] if bare else _header(reader, path)
        while True:
            place = f"{path}:{reader.line_num + 1 + above}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if "unexpected end" in str(error) or "limit" in str(error):
                    raise CorpusError(f"{place}: a quoted cell opens here and does not end; {_CUT_OFF}") from None
                yield place, BadRecord(f"{place}: {error}; write a quote inside a quoted cell twice")
                continue
            if cells:
                header = header or list(columns[: len(cells)])
                yield place, _cells(cells, header, place)


def _delimiter(header: str, usual: str) -> str:
    """What parts the columns: spreadsheets of many languages write ``;``, databases ``|``, and call it .csv too."""
    return max((usual, ",", ";", "\t", "|"), key=lambda sign: len(next(csv.reader([header], delimiter=sign), [])))


def _header(reader: Iterator[list[str]], path: Path) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise CorpusError(f"{path}:1: the header row cannot be read ({error})") from None
    if not any(header) or len(set(header)) < len(header):
        raise CorpusError(
            f"{path}:1: the first row must name each column once, found: {', '.join(header) or 'nothing'}"
        )
    return header


def _cells(cells: list[str], header: list[str], place: str) -> Mapping[str, Any] | BadRecord:
    if len(cells) != len(header):
        return BadRecord(
            f"{place}: {len(cells)} cells where the header names {len(header)} columns; "
            "put quotes around cells that hold the delimiter or a quote"
        )
    return {name: cell or None for name, cell in zip(header, cells, strict=True)}


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise CorpusError(f"{path}: reading parquet needs pyarrow: pip install 'suwen[parquet]'") from None
    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}: row {number}", record
    except (pyarrow.ArrowInvalid, OSError) as error:
        reason = "the file is empty" if path.is_file() and not path.stat().st_size else "not a whole parquet file"
        raise CorpusError(f"{path}: {reason} ({error}); get it again") from None
