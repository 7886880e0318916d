"""Which field is which, and what is said when none is."""

import math
from datetime import date

import pytest

from suwen.corpora.files import BadRecord
from suwen.corpora.record_fields import Fields, tidy_metadata, to_document, to_qrel, to_query
from suwen.corpora.records import Document, Qrel, Query


@pytest.mark.parametrize("id_field", ["_id", "id", "doc_id", "docid", "pid", "ID"])
@pytest.mark.parametrize("text_field", ["text", "content", "document", "body", "passage", "contents", "Text"])
@pytest.mark.parametrize("title_field", ["title", "name"])
def test_fields_are_guessed(id_field, text_field, title_field):
    record = {id_field: 7, text_field: " 头痛\x00 ", title_field: "题"}
    assert to_document(record, "f:1") == Document("7", "头痛", "题", {})


def test_questions_are_titles_of_their_answers():
    assert to_document({"问题": "头痛怎么办", "答案": "休息", "编号": 1}, "f:1") == Document(
        "1", "休息", "头痛怎么办", {}
    )
    assert to_document({"标题": "头痛", "摘要": "综述", "编号": 1}, "f:1") == Document("1", "综述", "头痛", {})
    assert to_document({"正文": "全文", "摘要": "综述", "编号": 1}, "f:1") == Document(
        "1", "全文", "", {"摘要": "综述"}
    )


def test_named_fields_win_over_guesses():
    record = {"id": "1", "text": "a", "title": "t", "key": "k", "said": "b", "head": "h"}
    document = to_document(record, "f:1", Fields("key", "said", "head"))
    assert document == Document("k", "b", "h", {"id": "1", "text": "a", "title": "t"})


def test_what_is_left_becomes_metadata():
    record = {
        "id": 1.0,
        "text": ["甲", "乙"],
        "year": 2020,
        "tags": ["a", 1, True],
        "nothing": None,
        "nested": {"a": 1},
        "mixed": [{"a": 1}],
        "day": date(2020, 1, 2),
        "odd": math.nan,
        "metadata": {"source": "书\ufeff", "deep": {"a": 1}, "metadata": {"page": 3}},
    }
    expected = {"year": 2020, "tags": ["a", 1, True], "day": "2020-01-02", "source": "书", "page": 3}
    assert to_document(record, "f:1") == Document("1", "甲\n乙", "", expected)
    assert tidy_metadata({}) == {}


def test_an_id_is_made_of_the_content_and_is_stable():
    first, again = (
        to_document({"text": text, "title": "题"}, place).id for text, place in ((" 头痛", "f:1"), ("头痛", "g:9"))
    )
    assert first == again and len(first) == 16
    assert to_document({"text": "头痛"}, "f:1").id != first
    assert to_document({"id": "  ", "text": "头痛", "title": "题"}, "f:1").id == first


def test_a_title_without_a_text_is_the_text():
    assert to_document({"id": "1", "title": "高血压", "text": ""}, "f:1") == Document("1", "高血压", "", {})


@pytest.mark.parametrize(
    ("record", "fields", "said"),
    [
        ({"a": 1, "b": 2}, Fields(), "f:3: no field called text, .* the fields here are: a, b; set --text-field"),
        ({"text": "x"}, Fields(text="abstract"), "f:3: no field 'abstract'; the fields here are: text"),
        ({"text": "x"}, Fields(id="key"), "no field 'key'.*--id-field"),
        ({"text": " \n"}, Fields(), "f:3: the field 'text' is empty"),
        ({"text": None}, Fields(), "is empty"),
        ({"text": {"a": 1}}, Fields(), "holds a dict, not text"),
        ({"id": ["a", 1], "text": "x"}, Fields(), "the field 'id' holds a list"),
        ({}, Fields(), "the fields here are: none"),
    ],
)
def test_bad_documents(record, fields, said):
    with pytest.raises(BadRecord, match=said):
        to_document(record, "f:3", fields)


def test_queries():
    assert to_query({"_id": 3, "text": "头痛吗", "metadata": {}}, "f:1") == Query("3", "头痛吗")
    assert to_query({"qid": "q", "query": "x"}, "f:1") == Query("q", "x")
    with pytest.raises(BadRecord, match="here the text is empty"):
        to_query({"id": "1", "text": ""}, "f:1")
    with pytest.raises(BadRecord, match="here the id is empty"):
        to_query({"id": None, "text": "x"}, "f:1")
    with pytest.raises(BadRecord, match="no field called _id"):
        to_query({"text": "x"}, "f:1")


@pytest.mark.parametrize(
    "record",
    [
        {"query-id": "q", "corpus-id": "d", "score": "2"},
        {"q_id": "q", "p_id": "d", "score": 2},
        {"qid": "q", "pid": "d", "score": 2.0},
        {"query": "q", "document": "d", "score": 2},
    ],
)
def test_judgements(record):
    assert to_qrel(record, "f:1") == Qrel("q", "d", 2)


@pytest.mark.parametrize("grade", ["high", 0.5, None, math.nan, math.inf])
def test_a_grade_must_be_a_whole_number(grade):
    with pytest.raises(BadRecord, match="a whole number as score"):
        to_qrel({"qid": "q", "pid": "d", "score": grade}, "f:1")
