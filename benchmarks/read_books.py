"""CPU time and memory of reading a text-layer PDF, beside pypdfium2's own time for its text with rectangles.

Before encoding: child process, layout, cleaning and all. ``--pages 500`` is the bar's size: at most twice pypdfium2's
time, and the memory of 500 pages about that of 50.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

OWN = """
import sys, pypdfium2
document = pypdfium2.PdfDocument(sys.argv[1])
for number in range(len(document)):
    page = document[number]
    text = page.get_textpage()
    for place in range(text.count_rects()):
        text.get_text_bounded(*text.get_rect(place))
    text.close(); page.close()
"""
OURS = """
import sys
from pathlib import Path
from suwen.corpora.books import read_book
path = Path(sys.argv[1])
assert sum(1 for _ in read_book(path, path.parent, "pdf")) > 0
"""


def spent(program: str, path: Path) -> tuple[float, float]:
    """CPU seconds and MiB at most of a program and its children, run alone."""
    code = f"{program}\nimport resource, json\n" + (
        "both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
        "seconds = sum(one.ru_utime + one.ru_stime for one in both)\n"
        "print(json.dumps([seconds, max(one.ru_maxrss for one in both) / 1024]))"
    )
    said = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True).stdout
    seconds, memory = json.loads(said.splitlines()[-1])
    return seconds, memory


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from shelf_pages import draw_book
    from shelf_renderers import render

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import pypdfium2

    with tempfile.TemporaryDirectory() as folder:
        # Chapters one behind the other, from both renderers, as pages of one file.
        whole = pypdfium2.PdfDocument.new()
        for renderer, language in (("chromium", "en"), ("fpdf", "en"), ("chromium", "zh"), ("fpdf", "zh")):
            part = render(draw_book(1, language, renderer, 400), Path(folder, f"{renderer}{language}.pdf"))
            whole.import_pages(pypdfium2.PdfDocument(part))
        sizes = {}
        for pages in (asked.pages // 10, asked.pages):
            book = pypdfium2.PdfDocument.new()
            while len(book) < pages:
                book.import_pages(whole, list(range(min(len(whole), pages - len(book)))))
            book.save(Path(folder, f"{pages}.pdf"))
            sizes[pages] = Path(folder, f"{pages}.pdf")
        for _ in range(asked.runs):
            own, ours = spent(OWN, sizes[asked.pages]), spent(OURS, sizes[asked.pages])
            small = spent(OURS, sizes[asked.pages // 10])
            print(
                f"{asked.pages} pages,  {ours[0]:.2f} s, pypdfium2 {own[0]:.2f} s, {ours[0] / own[0]:.2f} times; "
                f"memory {ours[1]:.0f} MiB, of {asked.pages // 10} pages {small[1]:.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
