from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from suwen.text.fold import fold
from suwen.training.students.student_tokenizer import DEFAULT_SIZE, SPECIAL, TokenizerError, train_tokenizer

TEXTS = [
    "高血压患者能吃阿司匹林吗",
    "高血压患者应低盐饮食",
    "糖尿病患者的血糖控制",
    "糖尿病患者能吃西瓜吗",
    "ＨｂＡ１ｃ是糖化血红蛋白",
    "blood pressure and blood sugar",
    "high blood pressure needs treatment",
    "the treatment of high blood sugar",
] * 3


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return train_tokenizer(TEXTS, size=300)


def tokens(tokenizer, text: str) -> list[str]:
    return tokenizer.encode(text, add_special_tokens=False).tokens


def test_special_tokens_have_the_first_ids(words):
    assert [words.token_to_id(token) for token in SPECIAL] == list(range(len(SPECIAL)))
    assert words.encode("[Q]血糖").tokens[:2] == ["[CLS]", "[Q]"]
    assert words.encode("[D]血糖").ids[:2] == [2, 6]


def test_frequent_chinese_words_are_tokens_and_whole_clauses_are_not(words):
    assert tokens(words, "糖尿病患者") in (["糖尿病", "患者"], ["糖尿病患者"])
    han = [token for token in words.get_vocab() if "一" <= token[0] <= "鿿"]
    assert max(map(len, han)) <= 4 and any(len(token) > 1 for token in han)


def test_latin_words_are_marked_where_they_begin_even_beside_chinese(words):
    assert tokens(words, "blood pressure") == ["▁blood", "▁pressure"]
    assert tokens(words, "高血压blood患者") == [*tokens(words, "高血压"), "▁blood", "患者"]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("ＨＢＡ１Ｃ", "hba1c"),
        ("BLOOD", "blood"),
        ("blóod", "blood"),
        ("血\u3000糖", "血 糖"),
        ("⾎糖", "血糖"),
        ("高血壓", "高血压"),
    ],
)
def test_width_case_accents_and_traditional_characters_are_folded(words, text, same):
    assert tokens(words, text) == tokens(words, same)
    assert "[UNK]" not in tokens(words, text)


def test_a_power_is_not_a_digit_more():
    tokenizer = train_tokenizer(["白细胞 10⁹/L 109 ^ 1 0 9"] * 3, size=100)
    assert tokens(tokenizer, "10⁹") != tokens(tokenizer, "109")
    assert tokens(tokenizer, "10⁹")[-2:] == ["^", "9"]


@given(st.text(alphabet="高血压壓糖尿病療疗ＨｂＡ１ｃBLOOD blood", max_size=30))
def test_the_folding_is_the_one_texts_are_matched_by(words, text):
    assert tokens(words, text) == tokens(words, fold(text))


@given(st.text(max_size=200), st.integers(3, 12))
def test_any_text_keeps_both_ends_when_it_is_cut(words, text, length):
    words.enable_truncation(max_length=length)
    ids = words.encode(text.encode("utf-8", "replace").decode()).ids
    words.no_truncation()
    assert len(ids) <= length and (ids[0], ids[-1]) == (2, 3)


def test_the_same_texts_give_the_same_file(words):
    assert train_tokenizer(tuple(TEXTS), size=300).to_str() == words.to_str()
    again = Tokenizer.from_str(words.to_str())
    assert again.encode("高血压 blood 10⁹").ids == words.encode("高血压 blood 10⁹").ids


def test_characters_that_are_as_rare_are_not_kept_by_chance():
    """Room for 64 characters, and 300 that come once."""
    many = ["".join(map(chr, range(0x4E00, 0x4E00 + 300))), "糖尿病" * 50]
    first, *others = (set(train_tokenizer(many, size=120).get_vocab()) for _ in range(4))
    assert all(other == first for other in others) and {"糖", "尿", "病", chr(0x4E00)} <= first


def test_the_size_is_a_bound(words):
    assert words.get_vocab_size() <= 300 < DEFAULT_SIZE
    small = train_tokenizer(TEXTS, size=90)
    assert small.get_vocab_size() == 90
    assert sorted(small.get_vocab().values()) == list(range(90))


def test_rare_characters_make_way_and_become_unknown():
    many = ["".join(map(chr, range(0x4E00, 0x4E00 + 300))), "糖" * 50]
    tokenizer = train_tokenizer(many, size=120)
    assert tokens(tokenizer, "糖") == ["糖"]
    assert "[UNK]" in tokens(tokenizer, many[0])


def test_half_an_emoji_does_not_stop_training():
    assert train_tokenizer(["血糖\ud83d", "血糖"] * 3, size=50).get_vocab_size() > len(SPECIAL)


@pytest.mark.parametrize("texts", [[], ["", " \n"]])
def test_texts_without_characters_are_refused(texts):
    with pytest.raises(TokenizerError, match="no characters"):
        train_tokenizer(texts)
