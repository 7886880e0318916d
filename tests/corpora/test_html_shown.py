"""What an HTML page crosses out or does not show is not read, and nothing is lost beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from suwen.corpora.marked_up import html_blocks, read_parts

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import PACKAGE, epub


def said(page):
    return "\n\n".join(text for _, text in html_blocks(page)[1])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Give <del>50</del><ins>5</ins> mg.", "Give 5 mg."),
        ("Give <s>50 mg</s> <strike>40 mg</strike> 5 mg.", "Give 5 mg."),
        ('Give <span style="color:red; text-decoration: underline line-through">50</span> 5 mg.', "Give 5 mg."),
        ("<b>A <s>b</b> c</s> d", "A d"),
        ("<s><p>Old.</p><p>Older.</p></s><p>New.</p>", "New."),
        ("<div><del>Old.</div><p>New.</p>", "New."),
        ("<p>Old <s>dose<p>New dose", "Old\n\nNew dose"),
        ("<p hidden>No.<p>Yes.", "Yes."),
        ("<ul><li hidden>No<ul><li>no</ul><li>Yes</ul>", "Yes"),
        ("<table><tr><td hidden>No<td>Yes<tr style='display:none'><td>No<tr><td>Too</table>", "Yes\n\nToo"),
        ('<div style="display: none">No <div>no</div> no</div>Yes', "Yes"),
        ("<div hidden><table><tr><td>No</div> no</table> no</div>Yes", "Yes"),
        ('<p hidden="until-found">Yes</p>', "Yes"),
        ("<template><p>No</p></template>Yes", "Yes"),
        (
            '<a href="#b"><i>beta</i> <i>blockers</i></a> and <span aria-hidden="true">the</span> rest',
            "beta blockers and the rest",
        ),
        ('<b aria-hidden="true"><i>beta</i> <i>blockers</i></b>', "beta blockers"),
        ("<nav><ul><li>No<nav>no</nav></ul> no</nav>Yes", "Yes"),
        ('<body style="display:none"><p>Yes', "Yes"),
        ("<head><title>T</title><p>Yes", "Yes"),
    ],
)
def test_what_is_crossed_out_or_not_shown_is_not_read(written, read):
    assert said(written) == read


def test_what_a_button_or_a_tab_opens_is_read():
    page = (
        '<button aria-controls="doses more">Doses</button><div id="doses" style="display:none">5 mg</div>'
        '<section id="more" hidden>Twice.</section><div role="tabpanel" hidden>Side effects</div><div hidden>No</div>'
    )
    assert said(page).split() == ["Doses", "5", "mg", "Twice.", "Side", "effects"]


def test_what_a_summary_says_does_not_run_into_what_it_opens():
    assert said("<details><summary>Dose</summary>Give 5 mg.</details>Then wait.") == "Dose\n\nGive 5 mg.\n\nThen wait."


def test_signs_that_adorn_go_and_those_that_say_something_stay():
    page = (
        '<h2>Dose<a class="headerlink" href="#dose" title="Link">¶</a></h2><p><span aria-hidden="true">★</span>'
        'CRP <span aria-hidden="true">↑</span> <i aria-hidden="true">9.</i> <a href="#s">«Siehe <em>5</em>»</a></p>'
    )
    assert html_blocks(page)[1] == [("heading", "Dose"), ("text", "CRP ↑ 9. «Siehe 5»")]


def test_a_formula_is_read_once_and_where_only_its_picture_is_shown():
    power = "<math><msup><mn>10</mn><mn>9</mn></msup></math>"
    katex = (
        f'<span class="katex"><span class="katex-mathml">{power}</span><span class="katex-html" aria-hidden="true">'
        '<span class="mord">1</span><span class="mord">0<span class="msupsub">9</span></span></span></span>'
    )
    wiki = f'<span class="mwe-math-mathml-inline" style="display: none;">{power}</span><img alt="10^9">'
    assert said(f"<p>Of {katex}/L or {wiki}/L, not <del>{power}</del>.</p>") == "Of 10^9/L or 10^9/L, not ."


def test_titles_are_those_that_are_shown():
    page = "<body><svg><title>Icon</title></svg><h1 hidden>No</h1><h1><del>Old</del> New</h1><p>Text"
    assert html_blocks(page)[0] == "New"


def test_what_another_library_crosses_out():
    page = (
        MarkdownIt("commonmark")
        .enable(["strikethrough", "table"])
        .render("Give ~~**50 mg**~~ *5 mg*.\n\n| drug | dose |\n|---|---|\n| ~~a~~ b | ~~7~~ |\n")
    )
    assert said(page) == "Give 5 mg.\n\ndrug | dose\n\nb |"


def test_style_sheets_may_cross_out_and_set_higher(tmp_path):
    rules = (
        "/* .x */ .calibre3, span.gone { text-decoration: line-through } .up{vertical-align:super} .a .b{display:none}"
    )
    body = '<p class="b">Give <i class="calibre3">50</i><span class="gone">40</span> 10<i class="up">3</i> IU.</p>'
    assert said(f"<style>{rules}</style>{body}") == "Give 10^3 IU."
    package = PACKAGE.replace("</manifest>", '<item id="c" href="s.css" media-type="text/css"/></manifest>')
    sheets = {"OEBPS/book.opf": package, "OEBPS/s.css": rules}
    parts = list(read_parts(epub(tmp_path / "a.epub", [("A", body), ("B", body)], **sheets), "epub"))
    assert [part.blocks for part in parts] == 2 * [[("text", "Give 10^3 IU.")]]
    without = {"OEBPS/book.opf": package}
    assert len(list(read_parts(epub(tmp_path / "b.epub", [("A", body), ("B", body)], **without), "epub"))) == 2


def test_many_tags_that_never_end_cost_no_page():
    assert said("<div hidden>" + 20_000 * "<b><p>" + "</div>Yes" + 20_000 * "</i></p>") == "Yes"
