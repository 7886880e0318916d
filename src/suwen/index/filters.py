"""The language of metadata filters: what a caller may ask, read and checked. Which rows it admits, an engine finds out.

A filter is text (:mod:`suwen.index.filter_text`, as on the command line) or a mapping, which say the same. Every engine
admits the same documents:

* A condition is met when one of the field's values meets it. All bounds on a field that stand under one *and* are a
  range, which one value must lie in. ``ne`` is *not* ``eq``: no value equals, and a document without the field passes.
* Numbers are compared as numbers (7 equals 7.0, true equals 1), and text that spells one counts as that number, on
  either side: a CSV source has its numbers as text. Between two texts only the spelling counts: 250.0 is not 250.00.
* A text that is asked for may spell a number of a field in any way (1e3, full-width digits, 1,000); where a field holds
  numbers alone, a text that spells none is refused. Where they are kept as text, and no other text is, one that spells
  a number in another way than they do is refused: it would equal none.
* A bound holds for its own kind, and texts that all spell numbers are numbers. Where no value of a field is of the
  bound's kind the filter is refused.
* An empty list, null, NaN and infinity are no values: the field is missing. A field that no document has is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from suwen.corpora.records import Scalar
from suwen.errors import SuwenError
from suwen.text.fold import fold

#: Text, several texts of which all must hold, or a mapping: ``{"topic": "用药"}`` equality, ``{"lang": ["zh", "en"]}``
#: any of, ``{"year": {"gte": 2020, "ne": 2022}}`` operators, ``{"topic": None}`` missing, and filters of filters under
#: ``$and``, ``$or`` and ``$not``.
Where: TypeAlias = str | Sequence[str] | Mapping[str, Any]
T = TypeVar("T")
Bound = Literal["gt", "gte", "lt", "lte"]

BOUNDS: tuple[Bound, ...] = ("gt", "gte", "lt", "lte")
OPERATORS = ("eq", "ne", *BOUNDS, "missing")
COMBINED = ("$and", "$or", "$not")
#: How many conditions a filter may have, and how deep they may be nested: what one query may cost to compile.
MOST_CONDITIONS = 256
DEEPEST = 16

# No leading zeros, no sign of plus, no exponent: 007 and 1E5 are codes.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,39})(\.[0-9]{1,40})?")
# What is asked for is held against values that are numbers: there no code can be meant.
_ASKED = re.compile(r"[+-]?([0-9]{1,40}|[0-9]{1,3}(?:,[0-9]{3})+)(\.[0-9]{0,40})?(e[+-]?[0-9]{1,3})?")


class FilterError(SuwenError):
    """A filter that cannot be understood, or that names a field no document has."""


class UnknownField(FilterError):
    """A field that no document has; ``where`` says what names it: the filter, or what hits are sorted or counted by."""

    where = "where"


class AnyOf(NamedTuple):
    """A field has one of these values: a text, a number, or a text that spells one of the numbers ``spelled``."""

    field: str
    texts: tuple[str, ...]
    numbers: tuple[float, ...]
    spelled: tuple[float, ...]


class Within(NamedTuple):
    """A field has a value that meets every bound: as a number where the bound is one, else as text."""

    field: str
    bounds: tuple[tuple[Bound, str | float], ...]


class Missing(NamedTuple):
    """A document has no value of a field."""

    field: str


class Not(NamedTuple):
    """What a filter does not admit."""

    part: Filter


class Every(NamedTuple):
    """All of these; of none, everything."""

    parts: tuple[Filter, ...]


class Either(NamedTuple):
    """At least one of these."""

    parts: tuple[Filter, ...]


Filter: TypeAlias = AnyOf | Within | Missing | Not | Every | Either


def read_where(where: Where) -> Filter:
    """A filter taken apart and checked, for an engine to compile.

    Raises:
        FilterError: It cannot be understood. That a field is not there, only an engine can tell: :func:`unknown_field`.

    >>> read_where({"year": {"gte": 2020, "lt": "2024"}})
    Within(field='year', bounds=(('gte', 2020), ('lt', 2024)))
    """
    from suwen.index.filter_text import read_text

    if isinstance(where, str):
        found = read_text(where)
    elif isinstance(where, Mapping):
        found = _read_mapping(where, 1)
    elif isinstance(where, Sequence) and all(isinstance(one, str) for one in where):
        found = every(map(read_text, where))
    else:
        raise FilterError(f"a filter is text or a mapping of field to value, not {type(where).__name__}")
    if (count := sum(1 for _ in conditions(found))) > MOST_CONDITIONS:
        raise FilterError(f"the filter has {count} conditions, at most {MOST_CONDITIONS} are taken: use lists")
    return found


def conditions(found: Filter) -> Iterator[AnyOf | Within | Missing]:
    """Everything a filter asks of a field."""
    if isinstance(found, Not):
        yield from conditions(found.part)
    elif isinstance(found, Every | Either):
        for part in found.parts:
            yield from conditions(part)
    else:
        yield found


def every(parts: Iterable[Filter]) -> Filter:
    """All of these filters, with the bounds on each field together."""
    flat: list[Filter] = []
    bounds: dict[str, list[tuple[Bound, str | float]]] = {}
    for part in parts:
        for one in part.parts if isinstance(part, Every) else (part,):
            if isinstance(one, Within):
                bounds.setdefault(one.field, []).extend(one.bounds)
            else:
                flat.append(one)
    flat += [Within(field, tuple(dict.fromkeys(given))) for field, given in bounds.items()]
    return flat[0] if len(flat) == 1 else Every(tuple(flat))


def equal(field: str, values: Iterable[Any]) -> AnyOf:
    """The condition that a field has one of these values."""
    texts: list[str] = []
    numbers: list[float] = []
    spelled: list[float] = []
    for value in values:
        if not isinstance(value, str | int | float):
            raise FilterError(f"filter on {field!r}: {value!r} is not text, a number or a truth value")
        if isinstance(value, str):
            texts.append(_written(value))
            # Where numbers are kept as text, full-width digits are those digits.
            texts += [folded] if number_of(folded := fold(value)) is not None else []
            numbers += [number] if (number := _asked(value)) is not None else []
        elif _is_finite(value):
            numbers.append(value)
            spelled.append(value)
            texts += [str(value), str(value).lower(), str(value).upper()] if isinstance(value, bool) else []
    return AnyOf(_field(field), _once(texts), _once(numbers), _once(spelled))


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float holds, and no stored number is
        return False


def _once(values: list[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))


def bounded(field: str, name: Bound, bound: Any) -> Within:
    """The condition that a field has a value on one side of a bound."""
    if not isinstance(bound, str | int | float) or bound != bound:
        raise FilterError(f"filter on {field!r}: the bound {bound!r} is neither a number nor text")
    number = number_of(fold(bound)) if isinstance(bound, str) else bound
    return Within(_field(field), ((name, _written(bound) if isinstance(bound, str) and number is None else number),))  # type: ignore[arg-type]


def number_of(text: str) -> float | None:
    """The number that a text spells; None where it is none, or might be a code."""
    found = _NUMBER.fullmatch(text)
    return None if found is None else float(text) if found[2] else int(text)


def _asked(text: str) -> float | None:
    """The number that a text asks for, however it is spelled; a truth value is one."""
    folded = fold(text).strip()
    if folded in ("true", "false"):
        return int(folded == "true")
    if (found := _ASKED.fullmatch(folded)) is None:
        return None
    plain = folded.replace(",", "")
    number = float(plain) if found[2] or found[3] else int(plain)
    return number if math.isfinite(number) else None


def no_numbers(found: AnyOf) -> list[str]:
    """The texts of a condition that no number equals: an engine refuses them where a field holds numbers alone."""
    return [text for text in found.texts if _asked(text) is None]


def otherwise_spelled(found: AnyOf) -> list[str]:
    """The texts of a condition that are numbers spelled as no stored text spells one: none of those equals them."""
    # A truth value brings its words and the number that texts may spell.
    asked = [(text, _asked(text)) for text in found.texts if number_of(fold(text)) is None]
    return [text for text, number in asked if number is not None and number not in found.spelled]


def unlike_stored(field: str, text: str, example: object) -> FilterError:
    """The error for a number asked for in another spelling than that of a field's numbers, which are kept as text."""
    return FilterError(
        f"filter on {field!r}: the field's numbers are kept as text, such as {example!r}, "
        f"and none is spelled {text!r}: write {_plainly(text)}"
    )


def _plainly(text: str) -> str:
    number = _asked(text)
    return "a number" if number is None else f"{number:.0f}" if number == int(number) else repr(number)


def no_number(field: str, text: str, example: object) -> FilterError:
    """The error for a text that a field which holds numbers alone cannot have."""
    return FilterError(
        f"filter on {field!r}: {text!r} is no number, and the field holds numbers alone, such as {example!r}: "
        f"write one like it, or several as {field}=1|2 (a list in a mapping)"
    )


def unknown_field(field: str, fields: Sequence[str]) -> UnknownField:
    """The error for a field that no document has, beside those that some have."""
    there = f"the fields are {', '.join(fields)}" if fields else "this index has no metadata at all"
    return UnknownField(f"no document has the field {field!r}: {there}")


def wrong_kind(field: str, bound: Scalar, example: object) -> FilterError:
    """The error for a bound of a kind that no value of the field is of."""
    if isinstance(bound, str):
        said = f"the bound {bound!r} is text, and the values of the field are numbers, such as {example!r}"
        return FilterError(f"filter on {field!r}: {said}: write {_plainly(bound)} like them")
    said = f"the bound {bound!r} is a number, and the values of the field are not, such as {example!r}"
    return FilterError(f"filter on {field!r}: {said}: give a bound that is text like them")


def _read_mapping(where: Mapping[str, Any], depth: int) -> Filter:
    if depth > DEEPEST:
        raise FilterError(f"the filter is nested deeper than {DEEPEST} levels: flatten it")
    return every(_read_entry(name, wanted, depth) for name, wanted in where.items())


def _read_entry(name: str, wanted: Any, depth: int) -> Filter:
    if name not in COMBINED:
        return _read_field(name, wanted)
    if name == "$not":
        return Not(_read_mapping(_mapping(name, wanted), depth + 1))
    if not isinstance(wanted, Sequence) or isinstance(wanted, str) or not wanted:
        raise FilterError(f"{name!r} takes a list of at least one filter, such as [{{'field': value}}, …]")
    parts = (_read_mapping(_mapping(name, one), depth + 1) for one in wanted)
    return every(parts) if name == "$and" else Either(tuple(parts))


def _mapping(name: str, wanted: Any) -> Mapping[str, Any]:
    if not isinstance(wanted, Mapping) or not wanted:
        raise FilterError(f"{name!r} takes filters of field to value, not {wanted!r}")
    return wanted


def _read_field(field: str, wanted: Any) -> Filter:
    if wanted is None:
        return Missing(_field(field))
    if isinstance(wanted, Mapping):
        unknown = [str(name) for name in wanted if name not in OPERATORS]
        if unknown or not wanted:
            got = ", ".join(unknown) or "none"
            raise FilterError(f"filter on {field!r}: the operators are {', '.join(OPERATORS)}; got {got}")
        return every(_operate(field, name, value) for name, value in wanted.items())
    return equal(field, _values(field, wanted))


def _operate(field: str, name: str, value: Any) -> Filter:
    if name == "missing":
        if not isinstance(value, bool):
            raise FilterError(f"filter on {field!r}: 'missing' is true or false, not {value!r}")
        return Missing(_field(field)) if value else Not(Missing(_field(field)))
    if name in ("eq", "ne"):
        found: Filter = Missing(_field(field)) if value is None else equal(field, _values(field, value))
        return found if name == "eq" else Not(found)
    return bounded(field, name, value)  # type: ignore[arg-type]


def _values(field: str, wanted: Any) -> Iterable[Any]:
    if isinstance(wanted, str | int | float):
        return [wanted]
    if isinstance(wanted, bytes) or not isinstance(wanted, Sequence | set | frozenset):
        raise FilterError(f"filter on {field!r}: {wanted!r} is not a value, a list of values or a range")
    return wanted


def _field(field: Any) -> str:
    if not isinstance(field, str) or _written(field) != field:
        raise UnknownField(f"{field!r} is not the name of a field: no document has the field")
    return field


def _written(text: str) -> str:
    """A text as it can be stored: half of a character pair becomes a question mark, which it equals nowhere else."""
    return text.encode(errors="replace").decode()
