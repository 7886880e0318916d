"""Records with their personal data masked: the name of a field says what stands in it. No files are opened here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from suwen.text import mask_en, mask_zh
from suwen.text.mask import MASK, Masker, validate
from suwen.text.mask_labels import is_plain, kind_of_field

_HAN = re.compile("[\u3400-\u9fff]")
_EMPTY = frozenset(
    [
        "无",
        "不详",
        "未知",
        "同上",
        "本人",
        "保密",
        "匿名",
        "未填",
        "未提供",
        "n/a",
        "na",
        "none",
        "null",
        "unknown",
        "-",
        "--",
        "/",
        "anonymous",
        "self",
        "same",
    ]
)
_SEVERAL = re.compile(r"\s*[、;；/\n|]\s*|(?<=[\u3400-\u9fff])\s*[,，]\s*")
_BRACKET = re.compile(r"^(.{2,30}?)\s*[(（].*[)）]$")
_NAME = re.compile(r"[\u3400-\u9fff·•・]{2,16}|[^\W\d_][^\W\d_'’.,\- ]*(?:[^\W\d_]|[ '’.,-]){0,60}")
_DATE = re.compile(r"\d{4}.{1,2}\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{2,4}|\d{8}|[A-Za-z]{3,9}\.? \d|\d [A-Za-z]{3}")
#: The least letters and digits, and the least digits, of a value of a kind; what has fewer is left to the rules.
_LEAST = {
    **dict.fromkeys(("id_card", "bank_card", "ssn"), (6, 6)),
    **dict.fromkeys(("record", "insurance", "passport"), (4, 3)),
    "phone": (5, 5),
    "account": (4, 0),
    "plate": (4, 1),
    "bed": (1, 1),
    "address": (4, 0),
    "email": (5, 0),
    "url": (5, 0),
    "ip": (4, 4),
}
_LONGEST = 160
#: A number without a word for it is masked when all of it has the shape of a phone or a card.
_LONG_NUMBER = 10**10


class Leaf(NamedTuple):
    """A value of a record that holds no others, and the nearest name above it."""

    path: str
    field: str
    value: Any


class MaskedRecord(NamedTuple):
    """A record after masking, how many masks of each kind it got, and what is wrong with it."""

    record: dict[str, Any]
    counts: Counter[str]
    problems: list[str]


def mask_record(record: Mapping[str, Any], masker: Masker, fields: Collection[str] = ()) -> MaskedRecord:
    """Mask a record: labelled values whole, and they and what the rules find wherever else they stand.

    >>> mask_record({"姓名": "王建国", "年龄": 46, "记录": "王建国诉头晕"}, Masker()).record
    {'姓名': '[姓名1]', '年龄': 46, '记录': '[姓名1]诉头晕'}

    Args:
        record: the record, nested or not.
        masker: of this record alone.
        fields: the top fields to mask; all when there are none.
    """
    chosen = {name: value for name, value in record.items() if not fields or name in fields}
    found = list(leaves(chosen))
    chinese = any(_HAN.search(f"{leaf.path}{leaf.value}") for leaf in found)
    for leaf in found:
        for value, kind in _labelled(leaf, masker):
            masker.know(value, kind)
    # A name may stand bare in the title and with its title in the text.
    for leaf in found:
        if isinstance(leaf.value, str):
            masker.learn(leaf.value)
    counts: Counter[str] = Counter()
    done = {name: _put(name, "", value, masker, counts, chinese=chinese) for name, value in chosen.items()}
    return MaskedRecord(dict(record) | done, counts, list(_problems(done, masker)))


def leaves(value: Any, field: str = "", path: str = "") -> Iterator[Leaf]:
    """Every value that holds no others; an item of a list belongs to the list's field."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from leaves(item, _inherited(field, str(name)), f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, field, path)
    else:
        yield Leaf(path, field, value)


def _inherited(above: str, name: str) -> str:
    """Parts of a name or an address (given, city) belong to the field above that says so."""
    plain = kind_of_field(above) in ("address", "phone") or (kind_of_field(above) == "name" and is_plain(above))
    return above if plain and kind_of_field(name) is None else name


def _labelled(leaf: Leaf, masker: Masker) -> list[tuple[str, str]]:
    """The personal values of a leaf that its field's name announces, with their kind."""
    kind = kind_of_field(leaf.field) if leaf.field else None
    if (
        kind is None
        or kind not in masker.kinds
        or isinstance(leaf.value, bool)
        or not isinstance(leaf.value, str | int)
    ):
        return []
    text = str(leaf.value).strip()
    if not text or len(text) > _LONGEST or text.lower() in _EMPTY or MASK.search(text):
        return []
    if kind == "name":
        names = [_BRACKET.sub(r"\1", part) for part in _SEVERAL.split(text)]
        return [
            (name, kind) for name in names if name.lower() not in _EMPTY and _is_name(name, sure=is_plain(leaf.field))
        ]
    if kind == "birth":
        return [(text, kind)] if _DATE.search(text) else []
    least = _LEAST[kind]
    enough = sum(map(str.isalnum, text)) >= least[0] and sum(map(str.isdigit, text)) >= least[1]
    if kind == "phone" and enough:
        return [(part, kind) for part in re.split(r"\s*[/、;,，]\s*", text) if sum(map(str.isdigit, part)) >= least[1]]
    return [(text, kind)] if enough else []


def _is_name(text: str, *, sure: bool) -> bool:
    if not _NAME.fullmatch(text):
        return False
    return sure or mask_zh.is_full_name(text) or mask_en.is_full_name(text)


def _put(name: str, above: str, value: Any, masker: Masker, counts: Counter[str], *, chinese: bool) -> Any:
    field = _inherited(above, name)
    if isinstance(value, Mapping):
        return {key: _put(str(key), field, item, masker, counts, chinese=chinese) for key, item in value.items()}
    if isinstance(value, list):
        return [_put(name, above, item, masker, counts, chinese=chinese) for item in value]
    text = value if isinstance(value, str) else str(value)
    for known, kind in sorted(_labelled(Leaf("", field, value), masker), key=lambda pair: -len(pair[0])):
        put = masker.mask_of(known, kind, chinese=chinese)
        text = text.replace(known, put)
        counts[kind] += 1
    if isinstance(value, str):
        text, spans = masker.mask(text)
        counts.update(span.kind for span in spans)
        return text
    if text != str(value):
        return text
    return _number(value, masker, counts) if isinstance(value, int) and value >= _LONG_NUMBER else value


def _number(value: int, masker: Masker, counts: Counter[str]) -> Any:
    """A bare number: a mask where all of it is a phone or a card, else itself."""
    text, spans = masker.mask(str(value))
    if len(spans) == 1 and spans[0].original == str(value):
        counts[spans[0].kind] += 1
        return text
    return value


def _problems(done: Mapping[str, Any], masker: Masker) -> Iterator[str]:
    """What keeps a masked record from being published: the field and the kind, never the value."""
    for leaf in leaves(done):
        if isinstance(leaf.value, str):
            for span in validate(leaf.value):
                if span.kind in masker.kinds:
                    yield f"the field {leaf.path!r} still has what looks like {span.kind}"
        for _, kind in _labelled(leaf, masker):
            yield f"the field {leaf.path!r} still has a {kind}"
        if (
            kind_of_field(leaf.field) == "name"
            and is_plain(leaf.field)
            and "name" in masker.kinds
            and _unread(leaf.value)
        ):
            yield f"the field {leaf.path!r} should hold a name, and what stands there could not be read as one"


def _unread(value: Any) -> bool:
    """Whether letters are left in the field of a name that are neither a mask nor a word for nobody."""
    left = _BRACKET.sub(r"\1", MASK.sub("", value).strip()) if isinstance(value, str) else ""
    return left.lower() not in _EMPTY and sum(map(str.isalpha, left)) > 1 and not MASK.search(str(value))
