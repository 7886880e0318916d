"""What somebody filled into the form of a PDF file, or typed onto it, as words where it stands.

pdfium's text of a page lacks both.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from suwen.text.page_layout import Word

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

#: What a box shows that is ticked, and one that is not.
_TICKED, _OPEN = "☑", "☐"
#: Of a word's size: how far before a field its label may end, and what is between them then.
_BESIDE, _BETWEEN = 4.0, 0.3
#: The size of words where the page has none, in points.
_SIZE = 10.0
_PARAGRAPHS = re.compile(r"[\r\n\u2028\u2029]+")


class _Field(NamedTuple):
    """What a field or a text box shows, a paragraph each, and where: from the top left corner of the upright page."""

    shown: list[str]
    left: float
    top: float
    right: float
    bottom: float


def with_values(
    page: PdfPage,
    form: Any,
    words: Sequence[Word],
    upright: Callable[[list[float]], tuple[float, float, float, float]],
) -> list[Word]:
    """The words of a page and what is filled in or typed onto it, each behind what stands before it on its line.

    Args:
        page: The page.
        form: The form of its document; None where it has none.
        words: Those of the page itself.
        upright: Turns a box of the file into one of the upright page.
    """
    found = list(words)
    fields = sorted(_fields(page, form, upright), key=lambda one: (one.top, one.left))
    size = median(word.size for word in words) if words and fields else _SIZE
    for field in fields:
        inside = "".join(word.text for word in words if _is_inside(word, field))
        if inside != "".join("".join(field.shown).split()):  # else it was drawn on the page, too
            for line in _lines(field, size):
                _insert(line, found)
    return found


def _is_inside(word: Word, field: _Field) -> bool:
    across, down = (word.left + word.right) / 2, (word.top + word.bottom) / 2
    return field.left < across < field.right and field.top < down < field.bottom


def _lines(field: _Field, size: float) -> Iterator[Word]:
    """A word for each paragraph: those of one in the middle of the field's height, others from its top."""
    height = field.bottom - field.top
    step = min(1.2 * size, height / len(field.shown))
    top = field.top if len(field.shown) > 1 or height > 3 * size else field.top + (height - step) / 2
    for number, text in enumerate(field.shown):
        right = min(field.right, field.left + max(1.0, size * len(text)))
        yield Word(text, field.left, top + number * step, right, top + (number + 1) * step, size)


def _insert(line: Word, words: list[Word]) -> None:
    """Put a line behind the word before it, as high as that: a value and its label are read as one."""

    def is_level(other: Word) -> bool:
        shared = min(line.bottom, other.bottom) - max(line.top, other.top)
        return shared > 0.5 * min(other.bottom - other.top, line.size)

    near = [at for at, other in enumerate(words) if is_level(other)]
    before = [at for at in near if (words[at].left + words[at].right) / 2 < line.left]
    if not near:
        words.append(line)
    elif not before:
        at = min(near, key=lambda one: words[one].left)
        words.insert(at, line._replace(top=words[at].top, bottom=words[at].bottom))
    else:
        at = max(before, key=lambda one: words[one].right)
        label = words[at]
        is_beside = line.left - label.right < _BESIDE * label.size
        left = label.right + _BETWEEN * label.size if is_beside else line.left
        right = max(line.right, left + 1)
        words.insert(at + 1, line._replace(left=left, right=right, top=label.top, bottom=label.bottom))


def _fields(
    page: PdfPage, form: Any, upright: Callable[[list[float]], tuple[float, float, float, float]]
) -> Iterator[_Field]:
    import pypdfium2.raw as pdfium

    hidden = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
    for place in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        note = pdfium.FPDFPage_GetAnnot(page.raw, place)
        try:
            kind = pdfium.FPDFAnnot_GetSubtype(note)
            if kind != pdfium.FPDF_ANNOT_FREETEXT and (kind != pdfium.FPDF_ANNOT_WIDGET or form is None):
                continue
            box = pdfium.FS_RECTF()
            if pdfium.FPDFAnnot_GetFlags(note) & hidden or not pdfium.FPDFAnnot_GetRect(note, ctypes.byref(box)):
                continue
            edges = _clipped(box, page.get_bbox())
            typed = kind == pdfium.FPDF_ANNOT_FREETEXT
            said = _PARAGRAPHS.split(_text(_contents, note)) if typed else _shown(form, note)
            if edges and (shown := [text for text in (" ".join(one.split()) for one in said) if text]):
                yield _Field(shown, *upright(edges))
        finally:
            pdfium.FPDFPage_CloseAnnot(note)


def _clipped(box: Any, page: tuple[float, float, float, float]) -> list[float] | None:
    """Left, top, right and bottom of what a page shows of a box; None where that is nothing."""
    # Some programs write the corners of a box the other way round.
    left, right = max(min(box.left, box.right), page[0]), min(max(box.left, box.right), page[2])
    bottom, top = max(min(box.bottom, box.top), page[1]), min(max(box.bottom, box.top), page[3])
    return [left, top, right, bottom] if left < right and bottom < top else None


def _shown(form: Any, note: Any) -> list[str]:
    """What a field shows; nothing of buttons, signatures and passwords."""
    import pypdfium2.raw as pdfium

    kind = pdfium.FPDFAnnot_GetFormFieldType(form, note)
    if kind in (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON):
        return [_TICKED if pdfium.FPDFAnnot_IsChecked(form, note) else _OPEN]
    if kind in (pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX):
        chosen = [
            _text(pdfium.FPDFAnnot_GetOptionLabel, form, note, place)
            for place in range(max(0, pdfium.FPDFAnnot_GetOptionCount(form, note)))
            if pdfium.FPDFAnnot_IsOptionSelected(form, note, place)
        ]
        return chosen or [_text(pdfium.FPDFAnnot_GetFormFieldValue, form, note)]
    is_secret = pdfium.FPDFAnnot_GetFormFieldFlags(form, note) & pdfium.FPDF_FORMFLAG_TEXT_PASSWORD
    if kind != pdfium.FPDF_FORMFIELD_TEXTFIELD or is_secret:
        return []
    return _PARAGRAPHS.split(_text(pdfium.FPDFAnnot_GetFormFieldValue, form, note))


def _contents(note: Any, room: Any, length: int) -> int:
    import pypdfium2.raw as pdfium

    return int(pdfium.FPDFAnnot_GetStringValue(note, b"Contents", room, length))


def _text(get: Callable[..., int], *of: Any) -> str:
    """What one of pdfium's functions writes where it is given room for it."""
    import pypdfium2.raw as pdfium

    length = get(*of, None, 0)
    room = ctypes.create_string_buffer(max(2, length))
    get(*of, ctypes.cast(room, ctypes.POINTER(pdfium.FPDF_WCHAR)), length)
    return room.raw[: max(0, length - 2)].decode("utf-16-le", errors="replace")
