"""From documents to passages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.corpora.passages import PassageStream, split_document
from suwen.corpora.records import Document
from suwen.text.split import SplitError


def characters(texts):
    return [len("".join(text.split())) for text in texts]


def test_a_short_document_is_one_passage():
    (passage,) = split_document(Document("d", " 头痛。发热。\n", "感冒"), characters)
    assert passage == ("d", 0, "头痛。发热。", 1, 7, "感冒")
    assert passage.id == "d#0" and passage.content == "感冒\n头痛。发热。"


def test_the_title_counts_and_stays_on_every_passage():
    document = Document("d", "一二三四。五六七八。九十甲乙。", "题目四字")
    passages = split_document(document, characters, size=10, overlap=0)
    assert [(passage.text, passage.title) for passage in passages] == [
        ("一二三四。", "题目四字"),
        ("五六七八。", "题目四字"),
        ("九十甲乙。", "题目四字"),
    ]
    assert [passage.ordinal for passage in passages] == [0, 1, 2]
    untitled = split_document(document._replace(title=""), characters, size=10, overlap=0)
    assert [passage.text for passage in untitled] == ["一二三四。五六七八。", "九十甲乙。"]


def test_a_title_takes_half_at_most():
    (passage,) = split_document(Document("d", "一二三四。", "很长的，题目一直不完"), characters, size=10, overlap=0)
    assert (passage.title, passage.text) == ("很长的，", "一二三四。")


def test_a_document_without_text_has_no_passages():
    assert split_document(Document("d", " \n", "题"), characters) == []


@given(
    st.text(st.sampled_from("头痛。，！ \nab.") | st.characters(exclude_categories=("Cs",)), max_size=200),
    st.text(st.sampled_from("题目，。 a"), max_size=20),
    st.integers(2, 30),
    st.data(),
)
def test_offsets_are_exact_and_sizes_hold(text, title, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    passages = split_document(Document("d", text, title), characters, size, overlap)
    for ordinal, passage in enumerate(passages):
        assert text[passage.start : passage.end] == passage.text
        assert passage.ordinal == ordinal and passage.title == passages[0].title
        assert characters([passage.content])[0] <= size
    covered = {index for passage in passages for index in range(passage.start, passage.end)}
    assert all(index in covered or character.isspace() for index, character in enumerate(text))


@pytest.mark.parametrize(("size", "overlap"), [(1, 0), (10, 10), (10, -1)])
def test_impossible_sizes_are_refused(size, overlap):
    with pytest.raises(SplitError, match="size must be at least 2"):
        split_document(Document("d", "头痛。"), characters, size, overlap)


def test_a_stream_knows_its_length_and_can_be_read_again():
    read = []

    def source():
        read.append(1)
        return iter([Document("d", "一二三四。五六七八。"), Document("e", "九十。")])

    stream = PassageStream(source, characters, size=5, overlap=0)
    assert len(stream) == 3 and len(stream) == 3
    assert list(stream) == list(stream) == [("d#0", "一二三四。"), ("d#1", "五六七八。"), ("e#0", "九十。")]
    assert len(read) == 3
