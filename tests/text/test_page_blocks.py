"""Pages put together again: what belongs to a paragraph, what each block is, what a book prints on every page."""

from __future__ import annotations

import pytest

from suwen.text.book_sentences import sentences_of
from suwen.text.page_blocks import blocks_of
from suwen.text.page_furniture import PageLines
from suwen.text.page_layout import Line, Word, reading_order
from suwen.text.page_repair import join_lines, repair_scan


def page(number, *lines, is_scan=False):
    made = [
        Line(text, 60, 150 + 14 * place, 500 if full else 300, 160 + 14 * place, 10, 0)
        for place, (text, full) in enumerate(lines)
    ]
    return PageLines(number, 842, made, is_scan)


def test_a_sentence_over_the_page_belongs_to_the_page_it_begins_on():
    pages = [
        page(1, ("The valve was replaced. After the operation the", True)),
        page(2, ("patient walked again. On the second day he", True), ("went home.", False)),
    ]
    assert [(one.page, one.text) for one in sentences_of(blocks_of(pages))] == [
        (1, "The valve was replaced."),
        (1, "After the operation the patient walked again."),
        (2, "On the second day he went home."),
    ]


def test_captions_references_and_headings_are_no_sentences():
    pages = [
        page(1, ("Treatment of angina", False), ("Rest is of no use to most of the people who have angina.", True)),
        page(2, ("Figure 3. The left ventricle in diastole, seen from above.", False)),
        page(3, ("Figure 3 shows that the left ventricle is large.", False)),
        page(4, ("参考文献", False), ("[1] 王立, 等. 心力衰竭的长期预后. 中国循环杂志, 2019, 4: 12-19.", True)),
    ]
    assert [block.kind for block in blocks_of(pages)] == [
        "heading",
        "text",
        "caption",
        "text",
        "heading",
        "reference",
    ]
    assert [one.text for one in sentences_of(blocks_of(pages))] == [
        "Rest is of no use to most of the people who have angina.",
        "Figure 3 shows that the left ventricle is large.",
    ]


def test_items_of_a_list_lose_their_numbers_and_stay_apart():
    pages = [page(1, ("1. Stop the warfarin at once.", False), ("2. Give vitamin K by mouth.", False))]
    assert [one.text for one in sentences_of(blocks_of(pages))] == [
        "Stop the warfarin at once.",
        "Give vitamin K by mouth.",
    ]


def test_a_semicolon_ends_no_chinese_sentence():
    pages = [page(1, ("出现心悸者应当复查；必要时转入监护病房。[3]血钾正常。", True))]
    assert [one.text for one in sentences_of(blocks_of(pages))] == ["出现心悸者应当复查；必要时转入监护病房。"]


def test_a_page_number_in_the_gutter_hides_no_columns():
    left = [
        Word(f"left line number {place} is here", 50, 100 + 14 * place, 280, 110 + 14 * place, 10) for place in range(9)
    ]
    right = [
        Word(f"right line number {place} is", 310, 100 + 14 * place, 540, 110 + 14 * place, 10) for place in range(9)
    ]
    number = Word("17", 296, 800, 308, 810, 10)
    across = [word for pair in zip(left, right, strict=True) for word in pair]
    texts = [line.text for line in reading_order([*across, number])]
    assert texts == [word.text for word in [*left, *right, number]]


def test_hyphens_and_confusions():
    assert join_lines(["anticoagu-", "lation and follow-", "up"]) == "anticoagulation and follow-up"
    assert join_lines(["A meta-", "analysis of twice-", "daily doses"]) == "A meta-analysis of twice-daily doses"
    assert repair_scan("Give 2O mg and l.5 mmol/L") == "Give 20 mg and 1.5 mmol/L"
    assert repair_scan("Ill patients, Olga and Io") == "Ill patients, Olga and Io"


def test_a_line_that_ends_in_a_short_form_goes_on():
    pages = [
        page(
            1, ("Rest is of no use to those who have angina. Dr.", False), ("Wu described it in the year 1998.", False)
        )
    ]
    assert [one.text for one in sentences_of(blocks_of(pages))] == [
        "Rest is of no use to those who have angina.",
        "Dr. Wu described it in the year 1998.",
    ]


@pytest.mark.parametrize("bullet", ["•", "◊", "➢", "\uf0b7", "\uf076"])
def test_items_behind_any_bullet_are_items(bullet):
    pages = [page(1, (f"{bullet} Give oxygen at 4 litres", False), (f"{bullet} Call the cardiologist", False))]
    assert [one.text for one in sentences_of(blocks_of(pages))] == ["Give oxygen at 4 litres", "Call the cardiologist"]


def small(text, top, size=7):
    return Line(text, 60, top, 300, top + size, size, 0)


def test_a_head_of_a_book_of_one_page_goes_and_a_caption_stays():
    (body,) = [page(1, *[(f"The valve number {name} is shown here in full.", True) for name in "abcdefgh"])]
    heads = [small("Manual of the Heart", 40), Line("Heart and Vessels", 350, 40, 500, 47, 7, 1)]
    kept = [block.text for block in blocks_of([body._replace(lines=[*heads, *body.lines])])]
    assert not any("Manual" in text or "Vessels" in text for text in kept) and len(kept) >= 1
    for stays in ("Figure 3. The valve.", "This is said at the top."):
        texts = [block.text for block in blocks_of([body._replace(lines=[small(stays, 40), *body.lines])])]
        assert stays in texts
    near = body._replace(lines=[small("A heading in small print", 141), *body.lines])
    assert any("heading in small print" in block.text for block in blocks_of([near]))


def test_a_long_foot_is_one_whatever_ends_it():
    rights = "Edition 2, 2020. All rights reserved; no part of this may be reproduced without permission."
    pages = []
    for number, name in enumerate(("Aorta", "Mitral", "Veins"), 1):
        body = page(number, *10 * [(f"Of all the valves the {name} is examined.", True)])
        foot = Line(f"{rights} {name}", 60, 800, 500, 808, 8, 0)
        pages.append(body._replace(lines=[*body.lines, foot]))
    assert not any("rights" in block.text for block in blocks_of(pages))


def test_a_numbered_chinese_heading_without_its_space_is_no_sentence():
    pages = [
        page(1, ("6.5主动脉根部的检查", False), ("主动脉根部的结构以超声心动图显示最为清楚。", True), is_scan=True)
    ]
    assert [block.kind for block in blocks_of(pages)] == ["heading", "text"]


def test_marks_of_the_wrong_width():
    assert repair_scan("禁用呋塞米等药物!261例中有77例好转.") == "禁用呋塞米等药物！261例中有77例好转。"
    assert repair_scan("每日清晨应当记录血压(mmHg)[3]!") == "每日清晨应当记录血压（mmHg）[3]！"
    assert repair_scan("是否容易复发[12]?467例中有20例复发。") == "是否容易复发[12]？467例中有20例复发。"
    assert repair_scan("剂量为2.5 mg,每日1次。") == "剂量为2.5 mg，每日1次。"


def with_note(number, lines, note, *, size=7.5, top=740):
    """A page with a note in small print at its foot, of one line or more."""
    foot = [Line(text, 60, top + 10 * at, 480, top + 8 + 10 * at, size, 0) for at, text in enumerate(note)]
    return page(number, *lines)._replace(lines=[*page(number, *lines).lines, *foot])


@pytest.mark.parametrize(
    "note",
    [
        ["1 Measured lying down, as the guideline of 2019 has it."],
        ["* Of those who were seen in the first year and", "came back in the second."],
        ["† In three centres of the north, without those of the"],
        ["注：仅指住院的患者。"],
    ],
)
def test_a_note_at_the_foot_takes_nothing_of_the_next_page(note):
    begun = [("The valve was replaced by the team in time.", True)] * 3 + [("After the operation the", True)]
    pages = [
        with_note(1, begun, note),
        page(2, ("patient walked again and went home on the second day.", True), ("He was well.", False)),
    ]
    blocks = list(blocks_of(pages))
    assert [block.text for block in blocks if block.kind == "text"] == [
        "The valve was replaced by the team in time. " * 3
        + "After the operation the patient walked again and went home on the second day.",
        "He was well.",
    ]
    (foot,) = (block.text for block in blocks if block.kind == "note")
    assert foot == " ".join(note)
    assert [one.text in foot for one in sentences_of(blocks_of(pages))].count(True) == 1


def test_small_print_that_is_no_note_stays_text():
    pages = [with_note(1, [("The dose was raised.", False)] * 9, ["1 Measured lying down."], top=200)]
    assert {block.kind for block in blocks_of(pages)} == {"text"}, "above other text"
    pages = [with_note(1, [("The dose was raised.", False)] * 3, ["Measured lying down, as before."])]
    assert {block.kind for block in blocks_of(pages)} == {"text"}, "without a mark"
    pages = [with_note(1, [("The dose was raised.", False)] * 3, ["1 Measured lying down, as before."], size=10)]
    assert "note" not in {block.kind for block in blocks_of(pages)}, "not small"


def test_cited_works_in_small_print_are_no_notes():
    lines = [("The dose was raised in spring.", True)] * 9
    works = with_note(1, lines, ["1 Wang L, Li W. The heart at rest. Heart 2019, 4, 12."], top=760)
    pages = [works._replace(lines=[*works.lines[:9], Line("References", 60, 700, 110, 708, 7.5, 0), works.lines[9]])]
    assert [block.kind for block in blocks_of(pages)][-2:] == ["heading", "reference"]
