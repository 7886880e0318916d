from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from suwen.encoders.tokens import Tokens, well_formed


@pytest.mark.parametrize(
    ("text", "expected"), [("头晕", "头晕"), ("a\ud83d\ude00b", "a😀b"), ("a\ud83db", "a\ufffdb"), ("\ude00", "\ufffd")]
)
def test_halves_of_an_emoji_are_joined_or_replaced(text, expected):
    assert well_formed(text) == expected


@given(st.text(st.characters(exclude_categories=[])))
def test_the_result_can_always_be_encoded(text):
    assert well_formed(text).encode().decode() == well_formed(text)


@given(
    st.lists(st.sampled_from(["高", "血压 ", "patients ", "x" * 150, " " * 40, "。"]), max_size=60).map("".join),
    st.integers(4, 40),
)
def test_a_long_text_is_cut_as_if_it_had_been_tokenised_whole(bert_folder, text, length):
    file = bert_folder / "tokenizer.json"
    whole = Tokenizer.from_file(str(file))
    whole.no_padding()
    whole.enable_truncation(length)
    assert Tokens(file, length).ids(text * 8) == whole.encode(text * 8).ids


@given(st.text())
def test_a_good_text_is_left_alone(text):
    assert well_formed(text) is text
