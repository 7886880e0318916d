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

from books_on_the_spot import pdf

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
    assert [(name, page) for name, page, _ in told] == [("c.pdf", 0)] and "not a whole PDF" in told[0][2]


def test_nothing_to_count_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match="no books here"):
        list(read_shelf(tmp_path, print))
    with pytest.raises(CorpusError, match="no sentence"):
        shelf_report([], len)
