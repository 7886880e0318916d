"""PubMed's abstracts: which records are articles, and what is said of those that are none."""

import json

import pytest

from suwen.corpora.files import BadRecord, CorpusError
from suwen.corpora.pubmed import read_abstracts
from suwen.corpora.records import Document


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_records_without_an_id_or_a_text_are_told_and_passed_over(tmp_path):
    bad: list[BadRecord] = []
    rows = [
        {"pmid": 1.0, "abstract": "a ", "title": "T"},
        {"pmid": "", "text": "b"},
        {"pmid": 3},
        {"id": 4, "text": None},
    ]
    found = list(read_abstracts(lines(tmp_path / "a.jsonl", *rows), on_bad=bad.append))
    assert found == [Document("1", "a", "T"), Document("4", "", "")]
    assert [str(one).split(": ")[1].split(";")[0] for one in bad] == [
        "the field 'pmid' is empty, and an article needs its id",
        "no field called abstract, abstractText, content or text",
    ]


def test_articles_of_xml_need_an_id(tmp_path):
    titled = "<Article><ArticleTitle>T</ArticleTitle></Article>"
    article = f"<PubmedArticle><MedlineCitation>{{}}{titled}</MedlineCitation></PubmedArticle>"
    file = tmp_path / "p.xml"
    file.write_text(f"<Set>{article.format('<PMID>5</PMID>')}{article.format('')}</Set>", encoding="utf-8")
    assert list(read_abstracts(file)) == [Document("5", "", "T")]
    file.write_text(f"<Set>{article.format('')}</Set>", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"no PubMed abstracts here \(.*PubmedArticle 1: the article has no PMID\)"):
        list(read_abstracts(file))


def test_a_text_file_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("An abstract.")
    with pytest.raises(CorpusError, match="a text has no records"):
        list(read_abstracts(tmp_path / "x.txt"))
