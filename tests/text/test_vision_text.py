"""What vision models write about a page, read as lines: marks, debug lines, tables, Markdown."""

from __future__ import annotations

from suwen.text.book_sentences import sentences_of
from suwen.text.page_blocks import blocks_of
from suwen.text.page_furniture import PageLines
from suwen.text.vision_text import lines_of

#: As DeepSeek-OCR's published code prints it, debug lines and all.
REPLY = """=====================
BASE:  torch.Size([1, 256, 1280])
PATCHES:  torch.Size([6, 100, 1280])
=====================
<|ref|>header<|/ref|><|det|>[[90, 20, 400, 35]]<|/det|>
Manual of Cardiology

<|ref|>sub_title<|/ref|><|det|>[[90, 70, 420, 95]]<|/det|>
## Treatment of angina

<|ref|>text<|/ref|><|det|>[[90, 110, 880, 190]]<|/det|>
**Metoprolol** is started at 25 mg daily &amp; doubled every two weeks. It is stopped below a pulse of 50.

<|ref|>image<|/ref|><|det|>[[90, 200, 880, 400]]<|/det|>

<|ref|>image_caption<|/ref|><|det|>[[90, 405, 600, 420]]<|/det|>
<center>Figure 3. The left ventricle seen from above.</center>

<|ref|>table<|/ref|><|det|>[[90, 430, 880, 600]]<|/det|>
<table><tr><td>Drug</td><td>Dose</td></tr><tr><td>Ramipril</td><td>5 mg</td></tr></table>

<|ref|>page_number<|/ref|><|det|>[[490, 960, 510, 975]]<|/det|>
17
==================================================
image size:  (1240, 1754)
valid image tokens:  921
output texts tokens (valid):  412
compression ratio:  0.45
==================================================
"""


def blocks(*replies):
    pages = [PageLines(number, *lines_of(reply), True) for number, reply in enumerate(replies, 1)]
    return list(blocks_of(pages))


def test_marks_and_debug_lines_go_and_kinds_stay():
    assert [(block.kind, block.text) for block in blocks(REPLY)] == [
        ("heading", "Treatment of angina"),
        (
            "text",
            "Metoprolol is started at 25 mg daily & doubled every two weeks. It is stopped below a pulse of 50.",
        ),
        ("caption", "Figure 3. The left ventricle seen from above."),
        ("table", "Drug | Dose\nRamipril | 5 mg"),
    ]


def test_sentences_are_the_paragraphs_alone():
    assert [one.text for one in sentences_of(iter(blocks(REPLY)))] == [
        "Metoprolol is started at 25 mg daily & doubled every two weeks.",
        "It is stopped below a pulse of 50.",
    ]


def test_text_between_the_marks_of_places_is_kept():
    place = "<|det|>[[1, 2, 3, 4]]<|/det|>"
    said = f"<|ref|>血钾超过5.5 mmol/L时停药。<|/ref|>{place}<|ref|>每周复查。<|/ref|>{place}"
    assert [line.text for line in lines_of(said)[1]] == ["血钾超过5.5 mmol/L时停药。", "每周复查。"]


def test_a_heading_that_stands_on_all_pages_is_furniture_in_plain_markdown():
    firsts = ["Valves open and close in turn.", "Blood comes back by the veins.", "Walls of muscle push it out."]
    rest = "\n\n".join(f"Paragraph {number} goes on about this." for number in range(12))
    found = blocks(
        *(f"Manual of Cardiology\n\n{first}\n\n{rest}\n\n{number}" for number, first in enumerate(firsts, 7))
    )
    assert [block.text for block in found if not block.text.startswith("Paragraph")] == firsts


def test_a_markdown_table_and_a_list():
    assert [
        (block.kind, block.text) for block in blocks("| a | b |\n|---|---|\n| c | d |\n\n1. Stop it.\n2. Wait.")
    ] == [
        ("table", "a | b\nc | d"),
        ("text", "1. Stop it."),
        ("text", "2. Wait."),
    ]


def test_nothing_is_no_line():
    assert lines_of("")[1] == [] and lines_of("<|ref|>image<|/ref|><|det|>[[0, 0, 999, 999]]<|/det|>")[1] == []
