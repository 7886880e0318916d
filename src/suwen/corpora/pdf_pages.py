"""The pages of a PDF file: words with their places from the text layer, and pictures of pages without one.

Runs in a process of its own (``page_child``): a damaged file may take pdfium down with it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from suwen.corpora.files import CorpusError
from suwen.corpora.pdf_forms import with_values
from suwen.corpora.pdf_signs import upright_box, way_of, with_joined, with_raised
from suwen.text.page_layout import RIGHT_TO_LEFT, Word

if TYPE_CHECKING:
    from PIL.Image import Image
    from pypdfium2 import PdfDocument, PdfPage

#: pdfium writes a sign of its own for a hyphen at the end of a line, and joins the halves.
_RUN = re.compile(r"[^\s\x00\x02\ufffe]+[\x02\ufffe]?")
#: A page with fewer visible characters than this and a picture over this share of it is a scan.
_FEW, _COVERED = 24, 0.3
#: A picture over this share of a page is a scan too where no more than a stamp is on it ("Downloaded from ..."): so few
#: characters, or words on such a share of the page (a full page: 0.3). More characters than the last are no stamp.
_WHOLE, _STAMP, _STAMPED, _MANY = 0.8, 60, 0.03, 1500
#: So many lines and curves may be letters: one has about twenty.
_DRAWN = 1000
#: Of its size: how high a word is at the most, and of a page: what runs across along its edge ("Downloaded from ...").
_TALL, _EDGE = 1.3, 0.08
#: Dots per inch of a rendered page, and the most dots: a page may claim to be a mile wide.
DPI, _MOST_DOTS = 150, 16_000_000


class PdfPageContent(NamedTuple):
    """What one page holds; ``picture`` is there where the text has to be read off it.

    ``stamped`` says that the words are no hidden layer of that picture but a stamp on it. ``across`` are words that run
    another way than most, by that way, with their places as one sees them who turns the page.
    """

    words: list[Word]
    height: float
    picture: Image | None = None
    stamped: bool = False
    across: list[list[Word]] = []  # noqa: RUF012 - nobody adds to it


def open_pdf(path: Path) -> PdfDocument:
    """Open a PDF file; raises :class:`CorpusError` where that cannot be, with the reason."""
    try:
        import pypdfium2
    except ImportError:
        raise CorpusError(f"{path}: reading PDF needs pypdfium2: pip install 'suwen[files]'") from None
    if not path.stat().st_size:
        raise CorpusError(f"{path}: the file is empty; remove it or get it again")
    try:
        document = pypdfium2.PdfDocument(path)
        document.init_forms()  # before its pages are looked at; of a file without a form it makes none
        if not len(document):
            raise CorpusError(f"{path}: the PDF has no pages; get it again")
        if document.get_formtype() == pypdfium2.raw.FORMTYPE_XFA_FULL:
            raise CorpusError(
                f"{path}: the PDF is a form in XFA, which is not read; its pages only ask for another program. Open it "
                "in Adobe Reader and print it to a new PDF"
            )
    except pypdfium2.PdfiumError as problem:
        if "password" in str(problem).lower():
            raise CorpusError(
                f"{path}: the PDF is locked with a password; save it without one (for example: qpdf --decrypt "
                "--password=… IN OUT)"
            ) from None
        if "security scheme" in str(problem):
            raise CorpusError(
                f"{path}: the PDF is encrypted in a way that is not read here (for the owner of a certificate, "
                "as a rule); save it without that"
            ) from None
        raise CorpusError(f"{path}: not a whole PDF ({problem}); get it again") from None
    return document


def title_of(document: PdfDocument) -> str:
    """The title that the file gives itself, or nothing where it is plainly not one."""
    title = str(document.get_metadata_dict(skip_empty=True).get("Title", "")).strip()
    return (
        "" if re.search(r"\.(?:docx?|indd|pdf|tex|html?)$|^untitled|^microsoft word", title, re.IGNORECASE) else title
    )


def read_pdf_page(document: PdfDocument, number: int) -> PdfPageContent:
    """Read one page, counted from 1; a scan is rendered."""
    page = document[number - 1]
    try:
        text_page = page.get_textpage()
        try:
            ways = _by_way(_words(page, text_page))
        finally:
            text_page.close()
        words = [word for way in ways.values() for word in way]
        content = _upright_content(page, ways)
        visible = sum(len(word.text) for word in words)
        if (visible < _FEW or _is_garbage(words)) and (_pictured(page) > _COVERED or _is_drawn(page)):
            return content._replace(picture=_rendered(page))
        if _is_little(page, words, visible) and _pictured(page) > _WHOLE and not _has_hidden_text(page):
            return content._replace(picture=_rendered(page), stamped=True)
        form = document.formenv.raw if document.formenv is not None else None
        return _with_values(page, form, content, _main(page, ways))
    finally:
        page.close()


def _by_way(words: Iterable[tuple[int, Word]]) -> dict[int, list[Word]]:
    """The words of each of the four ways in which text may run."""
    ways: dict[int, list[Word]] = {}
    for way, word in words:
        ways.setdefault(way, []).append(word)
    return {way: _sized(own) for way, own in ways.items()}


def _upright_content(page: PdfPage, ways: dict[int, list[Word]]) -> PdfPageContent:
    """The page held so that most of its text is upright; what runs another way along an edge is no text of it."""
    left, bottom, right, top = page.get_bbox()
    main = _main(page, ways)
    heights = {way: right - left if way % 180 else top - bottom for way in {main, *ways}}
    across = []
    for way, words in ways.items():
        edge = _EDGE * heights[way]
        inner = [word for word in words if word.bottom > edge and word.top < heights[way] - edge]
        across += [inner] if inner and way != main else []
    return PdfPageContent(ways.get(main, []), float(heights[main]), across=across)


def _main(page: PdfPage, ways: dict[int, list[Word]]) -> int:
    """The way in which most of the text runs."""
    return max(ways, key=lambda way: sum(len(word.text) for word in ways[way]), default=page.get_rotation())


def _with_values(page: PdfPage, form: Any, content: PdfPageContent, way: int) -> PdfPageContent:
    """The page with what is filled into its form and typed onto it; a scan shows that in its picture."""
    x, y, *end = page.get_bbox()

    def upright(box: list[float]) -> tuple[float, float, float, float]:
        return upright_box([box[0] - x, box[1] - y, box[2] - x, box[3] - y], end[0] - x, end[1] - y, way)

    return content._replace(words=with_values(page, form, content.words, upright))


def _words(page: PdfPage, text_page: Any) -> Iterator[tuple[int, Word]]:
    """The words in the order of the file, and which way each runs, in degrees.

    Two boxes for each word: one for each character would cost four times.
    """
    import pypdfium2.raw as pdfium

    x, y, *end = page.get_bbox()
    width, height = end[0] - x, end[1] - y
    left, right, bottom, top = (ctypes.c_double() for _ in range(4))
    loose, edges = pdfium.FS_RECTF(), [ctypes.byref(one) for one in (left, right, bottom, top)]
    text, index = _text(text_page)
    text = with_joined(text, text_page, index)
    runs = [found.span() for found in _RUN.finditer(text)][::-1]
    while runs:
        start, end = runs.pop()
        word = text[start:end].replace("\x02", "-").replace("\ufffe", "-")
        first, last = index(start), index(end - 1 - (word != text[start:end]))
        if not pdfium.FPDFText_GetLooseCharBox(text_page.raw, first, ctypes.byref(loose)):
            continue
        box = [loose.left, loose.top, loose.right, loose.bottom]
        if last != first and pdfium.FPDFText_GetCharBox(text_page.raw, last, *edges):
            is_below = top.value < box[3] or bottom.value > box[1]
            if is_below and word.isascii() and (at := _next_line(text_page, index, start, end)):
                runs += [(at, end), (start, at)]
                continue
            box = [min(box[0], left.value), max(box[1], top.value), max(box[2], right.value), min(box[3], bottom.value)]
        if RIGHT_TO_LEFT.search(word):
            box = _around(text_page, range(first, last + 1), box)
        way = way_of(text_page, first)
        if not way and RIGHT_TO_LEFT.search(word):
            word = _from_the_right(word, text_page, first)
        word = with_raised(word, text_page, index, start, way)
        box = [box[0] - x, box[1] - y, box[2] - x, box[3] - y]
        shown = box[0] < width and box[3] < height and box[1] > 0 and box[2] > 0  # not cut off with the printer's marks
        x0, y0, x1, y1 = upright_box(box, width, height, way)
        if shown and x1 > x0 and y1 > y0:
            yield way, Word(word, x0, y0, x1, y1, pdfium.FPDFText_GetFontSize(text_page.raw, first))


def _next_line(text_page: Any, index: Any, start: int, end: int) -> int:
    """Where a run of an upright page goes on in another line, as cells of one letter do (5 over 6); 0: nowhere.

    Chinese that runs downwards stays together.
    """
    import pypdfium2.raw as pdfium

    one, other = pdfium.FS_RECTF(), pdfium.FS_RECTF()
    if way_of(text_page, index(start)):
        return 0
    for place in range(start + 1, end):
        pdfium.FPDFText_GetLooseCharBox(text_page.raw, index(place - 1), ctypes.byref(one))
        pdfium.FPDFText_GetLooseCharBox(text_page.raw, index(place), ctypes.byref(other))
        if other.left < one.right and (other.top < one.bottom or other.bottom > one.top):
            return place
    return 0


def _around(text_page: Any, places: range, box: list[float]) -> list[float]:
    """A box around every sign of a word: of one with a full stop the last need not stand at an end."""
    import pypdfium2.raw as pdfium

    sign = pdfium.FS_RECTF()
    for place in places:
        if pdfium.FPDFText_GetLooseCharBox(text_page.raw, place, ctypes.byref(sign)):
            box = [min(box[0], sign.left), max(box[1], sign.top), max(box[2], sign.right), min(box[3], sign.bottom)]
    return box


def _from_the_right(word: str, text_page: Any, first: int) -> str:
    """A word of Hebrew or Arabic in the order in which it is read; some files hold its letters as they stand."""
    import pypdfium2.raw as pdfium

    start = next(place for place, sign in enumerate(word) if RIGHT_TO_LEFT.match(sign))
    if start + 1 == len(word) or not RIGHT_TO_LEFT.match(word[start + 1]):
        return word
    boxes = []
    for place in (first + start, first + start + 1):
        box = pdfium.FS_RECTF()
        pdfium.FPDFText_GetLooseCharBox(text_page.raw, place, ctypes.byref(box))
        boxes.append(box.left)
    turned = re.sub(f"{RIGHT_TO_LEFT.pattern}+", lambda found: found[0][::-1], word)
    return turned if boxes[0] < boxes[1] else word


def _sized(words: list[Word]) -> list[Word]:
    """Words with sizes in points: those of their fonts, which may be scaled, brought to the height of most lines.

    Heights alone would do for Latin, but a full stop of a Chinese font is half as high as its characters.
    """
    if not words:
        return []
    if {word.size for word in words} <= {0.0, 1.0}:
        return [word._replace(size=word.bottom - word.top) for word in words]
    scale = median((word.bottom - word.top) / word.size for word in words if word.size > 0)
    sized = [word._replace(size=word.size * scale if word.size > 0 else word.bottom - word.top) for word in words]
    return [_levelled(word, sized[max(0, at - 1) : at] + sized[at + 1 : at + 2]) for at, word in enumerate(sized)]


def _levelled(word: Word, near: list[Word]) -> Word:
    """A sign of a font for formulas, such as TeX's ×, has a box into the next line: as high as the word beside it."""
    others = [other for other in near if other.bottom - other.top <= _TALL * other.size]
    if word.bottom - word.top <= _TALL * word.size or not others:
        return word

    def shared(other: Word) -> float:
        return min(word.bottom, other.bottom) - max(word.top, other.top)

    best = max(others, key=lambda other: shared(other) - max(0.0, other.left - word.right, word.left - other.right))
    return word._replace(top=best.top, bottom=best.bottom) if shared(best) > 0.5 * (best.bottom - best.top) else word


def _text(text_page: Any) -> tuple[str, Any]:
    """The text of a page, and the place among pdfium's characters of each of its own."""
    import pypdfium2.raw as pdfium

    text = text_page.get_text_range()
    count = text_page.count_chars()
    if len(text) == count:
        return text, lambda place: place
    # Some characters have no text, others are two of UTF-16's: one by one then.
    codes = [pdfium.FPDFText_GetUnicode(text_page.raw, place) for place in range(count)]
    return "".join(chr(code) if code and not 0xD800 <= code <= 0xDFFF else "\0" for code in codes), lambda place: place


def _is_garbage(words: list[Word]) -> bool:
    """Whether a text layer says nothing: characters without meaning, as a font without a table of them leaves."""
    text = "".join(word.text for word in words)
    strange = sum(sign == "\ufffd" or "\ue000" <= sign <= "\uf8ff" or sign < " " for sign in text)
    return strange > 0.3 * len(text)


def _is_little(page: PdfPage, words: list[Word], visible: int) -> bool:
    if visible < _STAMP or visible > _MANY:
        return visible < _STAMP
    written = sum((word.right - word.left) * (word.bottom - word.top) for word in words)
    return written < _STAMPED * float(page.get_width()) * float(page.get_height())


def _pictured(page: PdfPage) -> float:
    """The share of a page that pictures cover."""
    import pypdfium2.raw as pdfium

    left, bottom, right, top = page.get_bbox()
    covered = 0.0
    for item in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_IMAGE], max_depth=2):
        # One that is laid out larger than the page covers what is on it.
        x0, y0, x1, y1 = item.get_bounds()
        covered += max(0.0, min(right, x1) - max(left, x0)) * max(0.0, min(top, y1) - max(bottom, y0))
    return float(covered / max(1.0, (right - left) * (top - bottom)))


def _is_drawn(page: PdfPage) -> bool:
    """Whether a page without text has so many strokes that letters may be drawn, as printers' files have them."""
    import pypdfium2.raw as pdfium

    strokes = 0
    for item in page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_PATH], max_depth=3):
        strokes += pdfium.FPDFPath_CountSegments(item.raw)
        if strokes > _DRAWN:
            return True
    return False


def _has_hidden_text(page: PdfPage) -> bool:
    """Whether somebody has read the picture already, and left the words behind it where they can be searched."""
    import pypdfium2.raw as pdfium

    texts = page.get_objects(filter=[pdfium.FPDF_PAGEOBJ_TEXT], max_depth=3)
    return any(pdfium.FPDFTextObj_GetTextRenderMode(one.raw) == pdfium.FPDF_TEXTRENDERMODE_INVISIBLE for one in texts)


def _rendered(page: PdfPage) -> Image:
    scale = DPI / 72
    dots = float(page.get_width()) * float(page.get_height()) * scale**2
    if dots > _MOST_DOTS:
        scale *= (_MOST_DOTS / dots) ** 0.5
    picture: Image = page.render(scale=scale, grayscale=False).to_pil().convert("RGB")
    return picture
