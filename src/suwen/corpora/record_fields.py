"""From a raw record to a document, a query or a judgement: which field is which. No files are opened here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from hashlib import sha1
from typing import Any, NamedTuple

from suwen.corpora.files import BadRecord
from suwen.corpora.records import Document, Qrel, Query, Scalar
from suwen.text.clean import clean

_ID = ("_id", "id", "doc_id", "docid", "pid", "编号")
_TEXT = ("text", "content", "document", "body", "passage", "contents", "正文", "内容", "答案", "摘要")
_TITLE = ("title", "name", "标题", "问题")
_QUERY_ID = ("_id", "id", "qid", "q_id", "query_id", "query-id")
_QUERY_TEXT = ("text", "query", "question", "content")
_QREL_QUERY = ("query-id", "query_id", "qid", "q_id", "query")
_QREL_DOCUMENT = ("corpus-id", "corpus_id", "pid", "p_id", "doc_id", "docid", "document_id", "document")
_QREL_GRADE = ("score", "label", "grade", "relevance", "rel")
#: How the message on a record without a text ends: for commands with this option. Others put their own way out there.
TEXT_REMEDY = "set --text-field to the one that is meant"


class Fields(NamedTuple):
    """The fields a user named; None leaves one to be guessed."""

    id: str | None = None
    text: str | None = None
    title: str | None = None


def to_document(record: Mapping[str, Any], place: str, fields: Fields = Fields()) -> Document:  # noqa: B008 - immutable
    """Make a document of a record.

    A record without an id gets one made of its content, the same at every reading. One that has a title and no text
    is its title. Fields that are neither become metadata when they hold a scalar or a list of scalars.

    Raises:
        BadRecord: there is no text, or a named field is missing.
    """
    id_field, text_field, title_field = document_fields(record, place, fields)
    text = text_of(record[text_field], place, text_field)
    title = text_of(record[title_field], place, title_field) if title_field else ""
    if not text:
        text, title = title, ""
    if not text:
        raise BadRecord(f"{place}: the field {text_field!r} is empty; give the record a text, or skip bad records")
    identifier = identifier_of(record[id_field], place, id_field) if id_field else ""
    if not identifier:
        identifier = made_id(title, text)
    used = {text_field, title_field, id_field}
    metadata = tidy_metadata({key: value for key, value in record.items() if key not in used})
    return Document(identifier, text, title, metadata)


def made_id(title: str, text: str) -> str:
    """The id of a record that has none: the same for the same title and text."""
    return sha1(f"{title}\n{text}".encode()).hexdigest()[:16]


def document_fields(
    record: Mapping[str, Any],
    place: str,
    fields: Fields = Fields(),  # noqa: B008 - immutable
) -> tuple[str | None, str, str | None]:
    """The names of a record's id, text and title; id and title may be missing."""
    text = find_field(record, _TEXT, place, fields.text, "--text-field")
    title = fields.title if fields.title in record else _guess(record, () if fields.title else _TITLE)
    named = find_field(record, _ID, place, fields.id, "--id-field") if fields.id else _guess(record, _ID)
    return named, text, title


def to_query(record: Mapping[str, Any], place: str) -> Query:
    """Make a query of a record; raises :class:`BadRecord` when it has no id or no text."""
    id_field = find_field(record, _QUERY_ID, place)
    text_field = find_field(record, _QUERY_TEXT, place)
    identifier = identifier_of(record[id_field], place, id_field)
    text = text_of(record[text_field], place, text_field)
    if not identifier or not text:
        raise BadRecord(
            f"{place}: a query needs an id and a text, here {'the text' if identifier else 'the id'} is empty"
        )
    return Query(identifier, text)


def to_qrel(record: Mapping[str, Any], place: str) -> Qrel:
    """Make a judgement of a record; raises :class:`BadRecord` when an id is missing or the grade is no whole number."""
    query, document, grade = (find_field(record, names, place) for names in (_QREL_QUERY, _QREL_DOCUMENT, _QREL_GRADE))
    ids = [identifier_of(record[field], place, field) for field in (query, document)]
    try:
        value = float(record[grade])
    except (TypeError, ValueError):
        value = math.nan
    if not all(ids) or not value.is_integer():
        raise BadRecord(
            f"{place}: a judgement needs {query}, {document} and a whole number as {grade}, "
            f"found {ids[0]!r}, {ids[1]!r} and {record[grade]!r}"
        )
    return Qrel(ids[0], ids[1], int(value))


def tidy_metadata(items: Mapping[str, Any]) -> dict[str, Scalar | list[Scalar]]:
    """Keep the scalars and lists of scalars, with texts cleaned; what a nested ``metadata`` holds joins the rest.

    Null is no value: a field that is null is left out, and so is null in a list.
    """
    tidy: dict[str, Scalar | list[Scalar]] = {}
    for key, value in items.items():
        if key == "metadata" and isinstance(value, Mapping):
            tidy |= tidy_metadata(value)
        elif isinstance(value, list | tuple):
            there = [part for part in value if part is not None]
            scalars = [scalar for part in there if (scalar := _scalar(part)) is not None]
            if len(scalars) == len(there):
                tidy[clean(str(key))] = scalars
        elif (scalar := _scalar(value)) is not None:
            tidy[clean(str(key))] = scalar
    return tidy


def _guess(record: Mapping[str, Any], names: Sequence[str]) -> str | None:
    for name in names:
        if name in record:
            return name
    folded = {str(key).lower(): key for key in record}
    return next((folded[name] for name in names if name in folded), None)


def find_field(
    record: Mapping[str, Any], names: Sequence[str], place: str, wanted: str | None = None, option: str | None = None
) -> str:
    """The name of the field that is meant: the wanted one, or else the first of ``names`` that is there.

    Raises:
        BadRecord: It is not there; the message says which fields are, and names the option that sets it.
    """
    name = (wanted if wanted in record else None) if wanted else _guess(record, names)
    if name is not None:
        return name
    there = ", ".join(map(str, record)) or "none"
    called = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    sought = f"field {wanted!r}" if wanted else f"field called {called}"
    remedy = f"set {option} to the one that is meant" if option else "rename the one that is meant"
    raise BadRecord(f"{place}: no {sought}; the fields here are: {there}; {remedy}")


def text_of(value: Any, place: str, field: str) -> str:
    """A field's value as a cleaned text; nothing for null.

    Raises:
        BadRecord: It is no text, no list of texts and no number.
    """
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        value = "\n".join(value)
    if value is None or isinstance(value, str):
        return clean(value or "")
    if isinstance(value, int | float):
        return str(value)
    raise BadRecord(f"{place}: the field {field!r} holds a {type(value).__name__}, not text; name another field")


def identifier_of(value: Any, place: str, field: str) -> str:
    """A field's value as an id; errors as in :func:`text_of`."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of whole numbers with a gap in it comes as floats
    return text_of(value, place, field)


def _scalar(value: Any) -> Scalar | None:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None  # JSON has no word for the others
    return value if isinstance(value, bool | int) else None
