"""Two renderers of a drawn book, fpdf2 (lines broken here) and Chromium (there), and its pages as scans."""

from __future__ import annotations

import html
import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from shelf_pages import Book, Element

PAGE = (595, 842)
HAN_FONTS = {True: "NotoSerifCJK-Regular.ttc", False: "NotoSansCJK-Regular.ttc"}
FONTS = Path("/usr/share/fonts/opentype/noto")


def render(book: Book, path: Path) -> Path:
    """Write the book as a PDF with a text layer, by the renderer of its layout."""
    (_by_fpdf if book.layout.renderer == "fpdf" else _by_chromium)(book, path)
    return path


class _Sheet:
    """Pages of fpdf2 with columns: knows where the next line goes."""

    def __init__(self, book: Book) -> None:
        import matplotlib
        from fpdf import FPDF

        self.book, self.at = book, book.layout
        self.pdf = FPDF(unit="pt", format=PAGE)
        self.pdf.set_auto_page_break(False)
        if self.at.language == "zh":
            self.pdf.add_font("B", "", FONTS / HAN_FONTS[self.at.serif], collection_font_number=2)
        else:
            name = "DejaVuSerif.ttf" if self.at.serif else "DejaVuSans.ttf"
            self.pdf.add_font("B", "", Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name)
        self.top, self.bottom = 84, PAGE[1] - 80
        gap = 24
        self.width = (PAGE[0] - 2 * self.at.margin - gap * (self.at.columns - 1)) / self.at.columns
        self.lefts = [self.at.margin + place * (self.width + gap) for place in range(self.at.columns)]
        self.column = self.at.columns
        self.y = self.bottom

    def room(self, height: float) -> None:
        """Go to the next column or page where there is no room."""
        if self.y + height <= self.bottom:
            return
        self.column += 1
        if self.column >= self.at.columns:
            self.pdf.add_page()
            self._furniture(self.pdf.page_no())
            self.column = 0
        self.y = self.top

    def _furniture(self, number: int) -> None:
        at, title = self.at, self.book.title
        self.pdf.set_font("B", size=8)
        chapter = "Heart and Vessels" if at.language == "en" else "心脏与血管"
        right = PAGE[0] - at.margin
        if at.head == "title":
            self.pdf.text(at.margin, 44, title)
        elif at.head == "both":
            self.pdf.text(at.margin, 44, title)
            self.pdf.text(right - self.pdf.get_string_width(chapter), 44, chapter)
        elif at.head == "sides":
            said = title if number % 2 else chapter
            self.pdf.text(at.margin if number % 2 else right - self.pdf.get_string_width(said), 44, said)
        foot = _foot(at.foot, at.language, title, number)
        self.pdf.text((PAGE[0] - self.pdf.get_string_width(foot)) / 2, PAGE[1] - 36, foot)

    def block(self, text: str, size: float, *, indent: float = 0, hang: float = 0, before: float = 0) -> None:
        """Lines of one block, broken to the column's width."""
        self.pdf.set_font("B", size=size)
        pitch = size * self.at.leading
        self.y += before
        lines = self._lines(text, indent, hang)
        for number, line in enumerate(lines):
            self.room(pitch)
            self.pdf.set_font("B", size=size)
            left = self.lefts[self.column] + (indent if number == 0 else hang)
            self._put(left, line, size, number + 1 < len(lines), indent if number == 0 else hang)
            self.y += pitch

    def _put(self, left: float, line: str, size: float, full: bool, used: float) -> None:
        words = line.split(" ")
        spare = self.width - used - self.pdf.get_string_width(line)
        if not (self.at.justify and full and len(words) > 3 and 0 < spare < 0.2 * self.width):
            self.pdf.text(left, self.y + size, line)
            return
        space = self.pdf.get_string_width(" ") + spare / (len(words) - 1)
        for word in words:
            self.pdf.text(left, self.y + size, word)
            left += self.pdf.get_string_width(word) + space

    def _lines(self, text: str, indent: float, hang: float) -> list[str]:
        parts = re.findall(r"[\u3000-\u9fff\uff00-\uffef①-⑳]|[^\s\u3000-\u9fff\uff00-\uffef①-⑳]+\s?|\s", text)
        lines, line = [], ""
        for part in parts:
            width = self.width - (hang if lines else indent)
            if not line or self.pdf.get_string_width((line + part).rstrip()) <= width or part in "。，；！？：）":
                line += part
                continue
            head = self._hyphen(line, part, width)
            if head:
                lines.append(line + head + "-")
                line = part[len(head) :]
            else:
                lines.append(line.rstrip())
                line = part
        return [*lines, line.rstrip()]

    def _hyphen(self, line: str, word: str, width: float) -> str:
        bare = re.match(r"[a-z]+", word)
        if not self.at.hyphenate or not bare or len(bare[0]) < 8:
            return ""
        for cut in range(len(bare[0]) - 3, 3, -1):
            if self.pdf.get_string_width(line + word[:cut] + "-") <= width:
                return word[:cut]
        return ""

    def table(self, rows: list[list[str]]) -> None:
        """A table over the column, its rows kept together."""
        pitch = self.at.size * self.at.leading + 3
        self.room(pitch * (len(rows) + 1))
        self.pdf.set_font("B", size=self.at.size - 1)
        for row in rows:
            for place, cell in enumerate(row):
                self.pdf.text(self.lefts[self.column] + place * self.width / len(row), self.y + self.at.size, cell)
            if self.at.rules:
                self.pdf.line(
                    self.lefts[self.column],
                    self.y + pitch - 3,
                    self.lefts[self.column] + self.width,
                    self.y + pitch - 3,
                )
            self.y += pitch
        self.y += 8

    def figure(self) -> None:
        """A grey box."""
        self.room(70)
        self.pdf.set_fill_color(200)
        self.pdf.rect(self.lefts[self.column], self.y + 4, self.width, 50, style="F")
        self.y += 60


def _foot(kind: str, language: str, title: str, number: int) -> str:
    if kind == "words":
        return f"Page {number}" if language == "en" else f"第{number}页"
    return {"number": str(number), "dashes": f"- {number} -", "title": f"{title} | {number}"}[kind]


def _by_fpdf(book: Book, path: Path) -> None:
    sheet, at = _Sheet(book), book.layout
    for element in book.elements:
        if element.kind == "table":
            sheet.table(element.rows)
        elif element.kind == "figure":
            sheet.figure()
        elif element.kind == "heading":
            sheet.block(element.text, at.size + 2.5, before=10)
            sheet.y += 4
        elif element.kind == "caption":
            sheet.block(element.text, at.size - 1.5, before=3)
            sheet.y += 8
        elif element.kind in ("item", "reference"):
            sheet.block(element.text, at.size, hang=14)
        else:
            sheet.block(element.text, at.size, indent=2 * at.size if at.indent else 0, before=0 if at.indent else 6)
    sheet.pdf.output(str(path))


def _by_chromium(book: Book, path: Path) -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no browser to render with; install one: apt-get install chromium fonts-noto-cjk"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "book.html")
        page.write_text(_as_html(book), encoding="utf-8")
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
        command += [f"--user-data-dir={folder}/profile", f"--print-to-pdf={path}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def _as_html(book: Book) -> str:
    at = book.layout
    chapter = "Heart and Vessels" if at.language == "en" else "心脏与血管"
    number = {
        "number": "counter(page)",
        "dashes": '"- " counter(page) " -"',
        "words": '"Page " counter(page)' if at.language == "en" else '"第" counter(page) "页"',
        "title": f'"{book.title} | " counter(page)',
    }[at.foot]
    heads = {
        "none": "",
        "title": f'@page {{ @top-left {{ content: "{book.title}" }} }}',
        "both": f'@page {{ @top-left {{ content: "{book.title}" }} @top-right {{ content: "{chapter}" }} }}',
        "sides": f'@page :right {{ @top-left {{ content: "{book.title}" }} }} @page :left {{ @top-right {{ content: "{chapter}" }} }}',
    }[at.head]
    family = (
        ("Noto Serif CJK SC" if at.serif else "Noto Sans CJK SC")
        if at.language == "zh"
        else ("DejaVu Serif" if at.serif else "DejaVu Sans")
    )
    style = f"""@page {{ size: 595pt 842pt; margin: 80pt {at.margin}pt; font: 8pt '{family}'; @bottom-center {{ content: {number} }} }}
    {heads}
    body {{ font: {at.size}pt/{at.leading} '{family}'; columns: {at.columns}; column-gap: 24pt; margin: 0;
      text-align: {"justify" if at.justify else "left"}; hyphens: {"auto" if at.hyphenate else "manual"} }}
    p {{ margin: {"0" if at.indent else "6pt 0 0"}; text-indent: {"2em" if at.indent else "0"} }}
    p.item, p.reference {{ text-indent: -14pt; padding-left: 14pt; margin: 0 }}
    h2 {{ font-size: {at.size + 2.5}pt; font-weight: normal; margin: 10pt 0 4pt; text-align: left }}
    p.caption {{ font-size: {at.size - 1.5}pt; text-indent: 0; margin: 3pt 0 8pt }}
    .figure {{ height: 50pt; background: #ccc; margin-top: 6pt }} table {{ width: 100%; font-size: {at.size - 1}pt; margin-bottom: 8pt }}
    td {{ text-align: left; padding: 1pt 0; {"border-bottom: 0.5pt solid" if at.rules else ""} }} tr {{ break-inside: avoid }}"""
    body = "".join(_tag(element) for element in book.elements)
    return f'<!DOCTYPE html><html lang="{at.language}"><meta charset="utf-8"><title>{book.title}</title><style>{style}</style><body>{body}'


def _tag(element: Element) -> str:
    if element.kind == "table":
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) for row in element.rows)
        return f"<table>{rows}</table>"
    if element.kind == "figure":
        return '<div class="figure"></div>'
    tag = "h2" if element.kind == "heading" else "p"
    return f'<{tag} class="{element.kind}">{html.escape(element.text)}</{tag}>'


def scan(
    source: Path, path: Path, *, degraded: bool, seed: int = 0, pages: int | None = None, dpi: int | None = None
) -> Path:
    """The first pages of a PDF as pictures in another one; degraded: turned a little, noisy, blurred, at 150 dpi."""
    import numpy as np
    import pypdfium2
    from fpdf import FPDF
    from PIL import Image, ImageFilter

    draw = random.Random(seed)
    made, document = FPDF(unit="pt", format=PAGE), pypdfium2.PdfDocument(source)
    for number in range(min(len(document), pages or len(document))):
        image = document[number].render(scale=(dpi or (150 if degraded else 200)) / 72).to_pil().convert("L")
        if degraded:
            image = image.rotate(draw.uniform(-1.2, 1.2), fillcolor=255, resample=Image.Resampling.BICUBIC)
            image = image.filter(ImageFilter.GaussianBlur(0.6))
            noise = np.random.default_rng(seed + number).normal(0, 14, (image.height, image.width))
            image = Image.fromarray(np.clip(np.asarray(image, dtype=float) + noise, 0, 255).astype("uint8"))
        made.add_page()
        made.image(image, 0, 0, *PAGE)
    made.output(str(path))
    return path
