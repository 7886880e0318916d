"""Records of the sources of evaluation sets, and their fields by kind. What is made of them is their builders'.

A record that lacks a field, or has something of another kind in it, raises :class:`LeftOut`: the others can be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from suwen.bench.task_data import DataError
from suwen.corpora.dialogues import read_dialogues
from suwen.corpora.files import BadRecord
from suwen.corpora.pubmed import is_xml, source_files
from suwen.corpora.record_fields import find_field
from suwen.corpora.tabular import format_of, records
from suwen.text.clean import clean

#: What a count calls a field that is not there, and one that holds a number where a text belongs, or the like.
WITHOUT_A_FIELD, OF_ANOTHER_KIND = "without_a_field", "with_a_field_of_another_kind"
_DIALOGUES = "*_dialogue*.txt"
_T = TypeVar("_T")


class LeftOut(BadRecord):
    """A record that is not used; ``why`` is the name it is counted under."""

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why


class Record:
    """A record that knows its place, whose fields are asked for by the names they may have."""

    def __init__(self, said: Mapping[str, Any], place: str, path: Path | None = None) -> None:
        """Look at what a file says at a place of it."""
        self.said, self.place, self.path = said, place, path or Path()

    def holds(self, kind: type, *names: str) -> bool:
        """Whether the field has a value of a kind."""
        return isinstance(self._value(names), kind)

    def has(self, name: str) -> bool:
        """Whether there is such a field, and something in it."""
        return self.said.get(name) is not None

    def text(self, *names: str) -> str:
        """A text, cleaned; nothing for null."""
        value = self._value(names)
        return "" if value is None else clean(self._checked(value, str, names, "a text"))

    def optional_text(self, name: str) -> str:
        """Likewise, and nothing where there is no such field."""
        return self.text(name) if self.has(name) else ""

    def id(self, *names: str) -> str:
        """An id: a text or a whole number."""
        return self._id(self._value(names), names)

    def ids(self, *names: str) -> list[str]:
        """A list of ids."""
        return [self._id(item, names) for item in self.items(*names)]

    def whole_number(self, *names: str) -> int:
        """A whole number, also as a text."""
        value = self._value(names)
        try:
            number = float("nan" if isinstance(value, bool) else value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        return int(number) if number.is_integer() else self._refuse(value, names, "a whole number")

    def items(self, *names: str) -> Sequence[Any]:
        """A list of anything."""
        value: Sequence[Any] = self._checked(self._value(names), list, names, "a list")
        return value

    def texts(self, *names: str) -> list[str]:
        """A list of texts."""
        items = self.items(*names)
        return [self._checked(item, str, names, "a list of texts") for item in items]

    def inside(self, *names: str) -> Record:
        """The fields of an object in this one."""
        said = self._checked(self._value(names), dict, names, "an object")
        return Record(said, f"{self.place}: {self._named(names)}", self.path)

    def each(self, *names: str) -> Iterator[Record]:
        """The objects of a list."""
        for number, item in enumerate(self.items(*names), 1):
            said = self._checked(item, dict, names, "a list of objects")
            yield Record(said, f"{self.place}: {self._named(names)} {number}", self.path)

    def _named(self, names: Sequence[str]) -> str:
        try:
            return find_field(self.said, names, self.place)
        except BadRecord as problem:
            raise LeftOut(WITHOUT_A_FIELD, str(problem)) from None

    def _value(self, names: Sequence[str]) -> Any:
        return self.said[self._named(names)]

    def _id(self, value: Any, names: Sequence[str]) -> str:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # a column of whole numbers with a gap in it comes as floats
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        found = "" if value is None else clean(self._checked(value, str, names, "an id"))
        if not found:
            raise LeftOut("without_an_id", f"{self.place}: the field {self._named(names)!r} has no id in it")
        return found if found.isprintable() else str(self._refuse(value, names, "an id of one line"))

    def _checked(self, value: Any, kind: type[_T], names: Sequence[str], wanted: str) -> _T:
        return value if isinstance(value, kind) else self._refuse(value, names, wanted)

    def _refuse(self, value: Any, names: Sequence[str], wanted: str) -> Any:
        found = "null" if value is None else f"{value!r:.40}"
        raise LeftOut(OF_ANOTHER_KIND, f"{self.place}: the field {self._named(names)!r} holds {found}, not {wanted}")


def read_sources(sources: Sequence[Path]) -> Iterator[Record]:
    """The records of tables.

    Raises:
        CorpusError: A file cannot be read.
        DataError: A file is XML.
    """
    for path in chain.from_iterable(map(source_files, sources)):
        if is_xml(path):
            raise DataError(f"{path}: an XML file where JSON belongs")
        yield from (Record(said, place, path) for place, said in records(path))


def read_dialogue_sources(sources: Sequence[Path]) -> Iterator[Record]:
    """Likewise, and MedDialog's dialogues in text files; of a folder those called so."""
    for source in sources:
        texts = sorted(source.rglob(_DIALOGUES)) if source.is_dir() else [source] if format_of(source) == "text" else []
        for path in texts:
            yield from (Record(said, place, path) for place, said in read_dialogues(path))
        if not texts or source.is_dir():
            yield from read_sources([source])
