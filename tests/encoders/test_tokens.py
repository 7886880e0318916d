from __future__ import annotations

from unittest.mock import Mock, patch

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


@pytest.mark.parametrize("padding", [None, 12])
def test_files_that_differ_in_length_and_padding_alone_share_a_vocabulary(bert_folder, tmp_path, padding):
    whole = Tokenizer.from_file(str(bert_folder / "tokenizer.json"))
    whole.add_special_tokens(["[Q]", "[D]"])
    texts, files = ["[Q]高血压 patients [SEP] x", "血压 " * 30, ""], [tmp_path / "short.json", tmp_path / "long.json"]
    for file, length in zip(files, (6, 20), strict=True):
        whole.enable_truncation(length)
        if padding:
            whole.enable_padding(length=padding)
        whole.save(str(file))
    read = []

    def counted(data):
        read.append(data)
        return Tokenizer.from_buffer(data)

    with patch("suwen.encoders.tokens.Tokenizer", Mock(side_effect=Tokenizer, from_buffer=counted)):
        short, long = (Tokens(file, length) for file, length in zip(files, (6, 20), strict=True))
        counts = [tokens.count(texts) for tokens in (short, long)]
    assert len(read) == 1
    whole.no_padding()
    for tokens, length in ((short, 6), (long, 20)):
        whole.enable_truncation(length)
        assert [tokens.ids(text) for text in texts] == [whole.encode(text).ids for text in texts]
    whole.no_truncation()
    assert counts == [[len(whole.encode(text, add_special_tokens=False).ids) for text in texts]] * 2


def test_another_vocabulary_is_not_shared(bert_folder, tmp_path):
    text = (bert_folder / "tokenizer.json").read_text(encoding="utf-8")
    (tmp_path / "other.json").write_text(text.replace('"[UNK]"', '"[ODD]"'), encoding="utf-8")
    one, other = (Tokens(file, 8) for file in (bert_folder / "tokenizer.json", tmp_path / "other.json"))
    assert one._tokenizer.token_to_id("[ODD]") is None
    assert other._tokenizer.token_to_id("[UNK]") is None


@given(st.text())
def test_a_good_text_is_left_alone(text):
    assert well_formed(text) is text
