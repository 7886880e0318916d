"""Highlights: offsets that are exact, terms inside their sentences, and meaning where no word matches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.encoders.pair import Pair
from suwen.encoders.query import Encoder
from suwen.retrieve.highlight import Highlight, Marker, matching_terms

TEXT = "尿酸结石多见于酸性尿液。碱化尿液可溶解尿酸结石！An inhaler opens the airways. 复查HbA1c和血脂。"


def highlight(query: str, text: str, encoder: Encoder | None = None) -> tuple[Highlight, ...]:
    return Marker(query, None if encoder is None else lambda: encoder).marks(text)


def marked(query: str, text: str) -> list[list[str]]:
    return [[text[start:end] for start, end in one.terms] for one in highlight(query, text)]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("酸性结石", ["结石", "酸性"]),
        ("INHALER", ["inhaler"]),
        ("ＨｂＡ１ｃ多少正常", ["HbA1c"]),
        ("血脂", ["血脂"]),
        ("airway", ["airway"]),
        ("碱化", ["碱化"]),
        ("鹼化", ["碱化"]),
    ],
)
def test_the_words_of_a_query_are_marked(query: str, wanted: list[str]) -> None:
    assert wanted in marked(query, TEXT)


def test_a_latin_word_stands_at_the_start_of_a_word() -> None:
    assert marked("ph", "Morphine is strong. The pH is low.") == [["pH"]]
    assert highlight("ph", "Morphine is strong.") == ()


def test_a_short_latin_word_is_a_whole_word_and_joining_words_are_not_marked() -> None:
    assert marked("aspirin in AF", "After a stroke, aspirin in men and women.") == [["aspirin"]]
    assert marked("AF的用药", "AF患者用药要慎重。") == [["AF", "用药"]]
    assert matching_terms("what is it") == ["what", "is", "it"]


def test_the_best_sentences_come_in_reading_order_and_noise_is_left_out() -> None:
    text = "多饮水。尿酸结石要碱化尿液。结石常复发。碱化尿液可溶解尿酸结石。"
    found = highlight("碱化尿液溶解尿酸结石", text)
    assert [one.text for one in found] == ["尿酸结石要碱化尿液。", "碱化尿液可溶解尿酸结石。"]
    assert [one.text for one in highlight("饮水", text)] == ["多饮水。"]


def test_meaning_alone_needs_an_encoder(pair: Pair) -> None:
    text = "骨折后应固定患肢。睡前不宜饮咖啡。"
    assert highlight("sleep", text) == ()
    (found,) = highlight("肢患", text, pair.encoder())
    assert (found.text, found.terms) == ("骨折后应固定患肢。", ())
    assert text[found.start : found.end] == found.text


def test_single_characters_only_where_there_is_nothing_else() -> None:
    assert matching_terms("药") == ["药"]
    assert "药" not in matching_terms("吃药")
    assert marked("药", "此药慎用。多喝水。") == [["药"]]


def test_no_text_has_no_highlight(pair: Pair) -> None:
    assert highlight("药", "", pair.encoder()) == ()
    assert highlight("药", " \n ", pair.encoder()) == ()


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.text(st.sampled_from("高血压糖尿病 aBc1.。！\nＡ\U0001f600()[*é鹼"), max_size=40),
    st.text(st.sampled_from("高血压糖尿病 aBc1.。Ａ()[*"), max_size=12),
)
def test_offsets_are_exact(text: str, query: str) -> None:
    for one in highlight(query, text):
        assert text[one.start : one.end] == one.text
        for start, end in one.terms:
            assert one.start <= start < end <= one.end
        assert list(one.terms) == sorted(one.terms)
        assert one.terms, "without an encoder only words can match"


def test_a_title_has_the_words_of_the_query_marked_whole() -> None:
    marker = Marker("酸性尿液与AF")
    title = "After AF：酸性尿液 与尿酸"
    assert [title[start:end] for start, end in marker.terms(title)] == ["AF", "酸性尿液"]
    assert marker.terms("无关") == () == marker.terms("")


def test_a_single_sentence_is_the_nearest_without_asking_an_encoder(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = pair.encoder()
    asked: list[object] = []
    monkeypatch.setattr(encoder, "encode_documents", asked.append)
    (found,) = highlight("肢患", "骨折后应固定。", encoder)
    assert found.text == "骨折后应固定。" and not asked
