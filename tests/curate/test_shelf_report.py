"""What a shelf holds: repeated and nearly repeated sentences, sources, and whom it speaks of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suwen.corpora.files import CorpusError
from suwen.curate.shelf_report import shelf_report
from suwen.curate.shelf_sentences import ShelfSentence, read_shelf
from suwen.curate.splitting import split_queries

sys.path.insert(0, str(Path(__file__).parents[1]))

from books_on_the_spot import pdf, word

ONE = "Metoprolol is started at 25 mg daily in women with heart failure."
NEAR = "Metoprolol is started at 25 mg daily in women with severe heart failure."


def said(book, *texts):
    return [ShelfSentence(book, page, page - 1, text) for page, text in enumerate(texts, 1)]


def test_repetitions_are_told_apart():
    shelf = [
        *said("a.pdf", ONE, ONE.upper(), "心力衰竭的儿童应当限制钠盐摄入。", "The aorta leaves the left ventricle."),
        *said("b.pdf", ONE, NEAR, "The aorta leaves the left ventricle, and the elderly know it."),
    ]
    made = shelf_report(shelf, len)
    assert (made.sentences, made.unique) == (7, 5)
    assert made.repeated == {"within": 1, "across": 1}
    assert made.near == {"within": 0, "across": 1} and made.groups == 1
    assert made.examples == [{"texts": [ONE, NEAR], "places": ["a.pdf, page 1", "b.pdf, page 2"]}]
    assert made.books == {"a.pdf": 3, "b.pdf": 2}
    assert made.people == {"female": 2, "male": 0, "children": 1, "older people": 1, "adults": 0}
    assert made.tokens == sum(len(one.text) for one in shelf) - 2 * len(ONE)


def test_one_sided_shelves_are_told():
    shelf = [
        *said("large.pdf", *(f"The man of case {name} went home." for name in ("Abe", "Bob", "Carl", "Dan"))),
        *said("small.pdf", "No one else was seen on that day."),
    ]
    remarks = shelf_report(shelf, len, near=1.0).remarks
    assert remarks[0].startswith("large.pdf alone has 80% of the sentences")
    assert remarks[1] == "male people are named in 4 sentences, female ones in 0"
    assert [one.split(":")[0] for one in remarks[2:]] == [
        "no sentence names children",
        "no sentence names older people",
    ]


def test_balanced_shelves_have_no_remarks():
    shelf = [
        *said("a.pdf", "Women and men were seen alike.", "Children were seen, too."),
        *said("b.pdf", "Older adults went home last.", "The ward was closed then."),
    ]
    assert shelf_report(shelf, len).remarks == []


def test_words_inside_words_name_nobody():
    made = shelf_report(said("a.pdf", "The management of mental humanity is mandatory."), len)
    assert set(made.people.values()) == {0}


def test_near_duplicates_share_a_side_of_every_split():
    texts = {
        str(number): f"Case {number} of ward {number * 7919} was seen by doctor {number * 104729}."
        for number in range(40)
    }
    texts |= {"one": ONE, "near": NEAR}
    for seed in range(5):
        split = split_queries(texts, 0.5, seed=seed)
        assert ("one" in split.test) == ("near" in split.test)


def test_a_shelf_of_files_with_a_bad_one(tmp_path):
    pdf(tmp_path / "a.pdf", [[(60, 100, ONE)], [(60, 100, "The second page speaks of the aortic valve.")]])
    (tmp_path / "b.html").write_text(f"<h1>Angina</h1><p>{ONE}</p>", "utf-8")
    (tmp_path / "c.pdf").write_bytes(b"%PDF-1.7 cut")
    told = []
    found = list(read_shelf(tmp_path, lambda path, page, why: told.append((path.name, page, why))))
    assert [(one.book, one.page) for one in found] == [("a.pdf", 1), ("a.pdf", 2), ("b.html", 0)]
    assert shelf_report(found, len).repeated == {"within": 0, "across": 1}
    assert [(name, page) for name, page, _ in told] == [("c.pdf", 0)]
    assert told[0][2].startswith("not a whole PDF")  # who tells it names the file


def test_a_bad_line_of_a_table_is_told_with_its_place(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"_id": "1", "text": "' + ONE + '"}\n{"_id"\n', "utf-8")
    told = []
    found = list(read_shelf(tmp_path, lambda path, page, why: told.append((path.name, page, why))))
    assert len(found) == 1 and [place for *place, _ in told] == [["a.jsonl", 0]]
    assert told[0][2].startswith("2: ")


CAPTION, CITED, AFTER = (
    "Figure 2. The plaque of an artery is shown.",
    "Smith J. Statins in the old.",
    "The book ends well here.",
)
MARKED = {
    "a.html": f"<h1>H</h1><p>{ONE}</p><figure><figcaption>The plaque of an artery is shown.</figcaption></figure>"
    f"<p>{CAPTION}<h2>References</h2><ol><li>{CITED}</ol><h2>Appendix</h2><p>{AFTER}",
    "b.html": f'<p>{ONE}</p><p class="fig-caption">The plaque of an artery is shown.<section role="doc-bibliography">'
    f"<div>{CITED}</div><p>{CITED}</p></section><p>{AFTER}</p>",
    "c.md": f"# H\n\n{ONE}\n\n{CAPTION}\n\n## References ##\n\n1. {CITED}\n\n## Appendix\n\n{AFTER}\n",
    "d.txt": f"{ONE}\nReferences\n1. {CITED}\n2. {CITED}\nChapter 2 On ends\n{AFTER}\n",
    "e.cnxml": f"<document><title>H</title><content><para>{ONE}</para><figure><caption>Figure 1 shows the heart."
    f"</caption></figure><section><title>参考文献</title><para>{CITED}</para></section><section><title>Appendix</title>"
    f"<para>{AFTER}</para></section></content></document>",
}


@pytest.mark.parametrize("name", MARKED)
def test_captions_and_works_that_are_cited_are_no_sentences(tmp_path, name):
    (tmp_path / name).write_text(MARKED[name], "utf-8")
    assert [one.text for one in read_shelf(tmp_path, print)] == [ONE, AFTER]


def test_a_word_file_says_by_its_styles_what_is_no_sentence(tmp_path):
    def said(text, style=""):
        named = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
        return f"<w:p>{named}<w:r><w:t>{text}</w:t></w:r></w:p>"

    body = said("H", "1") + said(ONE) + said("The plaque of an artery is shown.", "a3") + said("References", "1")
    body += said(f"1. {CITED}") + said("Appendix", "1") + said(AFTER) + said(CITED, "Bibliography")
    styles = (
        '<w:styles xmlns:w="urn:w"><w:style w:styleId="1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:styleId="a3"><w:name w:val="caption"/></w:style></w:styles>'
    )
    word(tmp_path / "a.docx", body, **{"word/styles.xml": styles})
    assert [one.text for one in read_shelf(tmp_path, print)] == [ONE, AFTER]


def test_nothing_to_count_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match="no books here"):
        list(read_shelf(tmp_path, print))
    with pytest.raises(CorpusError, match="no sentence"):
        shelf_report([], len)
