"""Books that tests make for themselves, good and bad: small, real files of their kinds."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import matplotlib
from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFont

SANS = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
HAN = "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)
PACKAGE = (
    '<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
    "<dc:title>The Heart</dc:title></metadata><manifest>"
    '<item id="a" href="one.xhtml" media-type="application/xhtml+xml"/>'
    '<item id="b" href="two%20b.xhtml" media-type="application/xhtml+xml"/></manifest>'
    '<spine><itemref idref="b"/><itemref idref="a"/></spine></package>'
)


def pdf(path, pages, *, height=842, **settings):
    """A PDF whose pages are lists of ``(left, top, text)``, in points."""
    made = FPDF(unit="pt", format=(595, height))
    made.set_compression(True)
    made.add_font("S", "", SANS)
    if settings.get("title"):
        made.set_title(settings["title"])
    if settings.get("password"):
        made.set_encryption(owner_password=settings["password"], user_password=settings["password"])
    for lines in pages:
        made.add_page()
        made.set_font("S", size=10)
        for left, top, text in lines:
            made.text(left, top, text)
    made.output(str(path))
    return path


def picture(lines, *, size=(620, 400), turn=0, font=SANS, points=22):
    """A picture of lines of text, as a scanner would make one."""
    image = Image.new("RGB", size, "white")
    pen, letters = ImageDraw.Draw(image), ImageFont.truetype(font, points)
    for number, line in enumerate(lines):
        pen.text((40, 40 + number * points * 1.6), line, fill="black", font=letters)
    return image.rotate(turn, expand=True, fillcolor="white")


def scanned_pdf(path, pictures):
    """A PDF that has a picture on each page and no text."""
    made = FPDF(unit="pt")
    for image in pictures:
        made.add_page(format=(image.width / 2, image.height / 2))
        made.image(image, 0, 0, image.width / 2, image.height / 2)
    made.output(str(path))
    return path


def stamped_pdf(path, image, stamp, *, hidden=(), size=5):
    """A PDF with a picture over its whole page, a line on its lower edge, and a hidden text layer."""
    made = FPDF(unit="pt")
    made.add_font("S", "", SANS)
    width, height = image.width / 2, image.height / 2
    made.add_page(format=(width, height))
    made.image(image, 0, 0, width, height)
    made.set_font("S", size=size)
    made.text(10, height - 4, stamp)
    with made.local_context(text_mode="INVISIBLE"):
        for number, line in enumerate(hidden):
            made.text(20, 20 + 16 * number, line)
    made.output(str(path))
    return path


def zipped(path, parts):
    """A zip file with these parts."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    path.write_bytes(packed.getvalue())
    return path


def epub(path, chapters, **more):
    """An EPUB of two chapters, of which the second comes first."""
    one, two = (f"<html><head><title>{title}</title></head><body>{body}</body></html>" for title, body in chapters)
    parts = {"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": PACKAGE}
    return zipped(path, parts | {"OEBPS/one.xhtml": one, "OEBPS/two b.xhtml": two} | more)


def word(path, body, **more):
    """A Word file with this body."""
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    document = f'<?xml version="1.0"?><w:document {space}><w:body>{body}</w:body></w:document>'
    return zipped(path, {"word/document.xml": document} | more)


def raw_pdf(path, streams, box="0 0 595 842"):
    """A PDF whose pages have these packed content streams, written by hand."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(streams)))
    items = [b"<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(streams)}>>".encode()]
    items.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    for number, stream in enumerate(streams):
        about = (
            f"<</Type/Page/Parent 2 0 R/MediaBox[{box}]/Resources<</Font<</F 3 0 R>>>>/Contents {5 + 2 * number} 0 R>>"
        )
        length = f"<</Length {len(stream)}/Filter/FlateDecode>>stream\n".encode()
        items += [about.encode(), length + stream + b"\nendstream"]
    return _put_together(path, items)


def form_pdf(path, texts, fields, rotate=0, stream=b"", catalogue=""):
    """A PDF of one page with texts at ``(left, bottom)``, and a form of these fields, written by hand.

    A field is its box and the rest of its dictionary.
    """
    shown = (
        stream or " ".join(f"BT /F 11 Tf {left} {bottom} Td ({text}) Tj ET" for left, bottom, text in texts).encode()
    )
    names = " ".join(f"{6 + number} 0 R" for number in range(len(fields)))
    items = [
        f"<</Type/Catalog/Pages 2 0 R{catalogue}"
        f"/AcroForm<</Fields[{names}]/DA(/F 11 Tf 0 g)/DR<</Font<</F 3 0 R>>>>/XFA()>>>>".replace(
            "/XFA()", "/XFA[(template)6 0 R]" if catalogue else ""
        ).encode(),
        b"<</Type/Pages/Kids[4 0 R]/Count 1>>",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Rotate {rotate}/Resources<</Font<</F 3 0 R>>>>"
        f"/Contents 5 0 R/Annots[{names}]>>".encode(),
        f"<</Length {len(shown)}>>stream\n".encode() + shown + b"\nendstream",
    ]
    for number, (box, about) in enumerate(fields):
        items.append(f"<</Type/Annot/Subtype/Widget/Rect[{box}]/T(field{number})/P 4 0 R{about}>>".encode())
    return _put_together(path, items)


def _put_together(path, items):
    """A file of these numbered objects, the catalogue first."""
    data, places = b"%PDF-1.5\n", []
    for number, item in enumerate(items, 1):
        places.append(len(data))
        data += f"{number} 0 obj".encode() + item + b"endobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    data += f"xref\n0 {len(items) + 1}\n0000000000 65535 f \n{table}".encode()
    path.write_bytes(
        data + f"trailer<</Size {len(items) + 1}/Root 1 0 R>>startxref\n{data.rindex(b'xref')}\n%%EOF".encode()
    )
    return path
