"""Cleaning removes what cannot be seen, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.text.clean import clean


@pytest.mark.parametrize(
    ("dirty", "tidy"),
    [
        ("血\x00压\x07\x1b\x7f", "血压"),
        ("\ufeff头痛", "头痛"),
        ("头\u200b痛\u200d\u2060\xad", "头痛"),
        ("头\ud800痛\udfff", "头痛"),
        ("a\r\nb\rc\u2028d\x0ce\x85f", "a\nb\nc\nd\ne\nf"),
        ("a\n\n\n\n\nb", "a\n\nb"),
        ("a \n \n\t\n b", "a\n\n b"),
        ("a   b\xa0\u3000c", "a b c"),
        ("a\tb \t c", "a\tb\tc"),
        ("  甲。\n", "甲。"),
        (" \n\t ", ""),
        ("每日2次，饭后。", "每日2次，饭后。"),
    ],
)
def test_cleans(dirty, tidy):
    assert clean(dirty) == tidy


@given(st.text(st.characters(exclude_categories=()) | st.sampled_from("\n\r\t \x00\ufeff\ud800 　")))
def test_clean_text_can_be_written_and_stays_as_it_is(text):
    cleaned = clean(text)
    cleaned.encode("utf-8")
    assert clean(cleaned) == cleaned
    assert "\n\n\n" not in cleaned and "  " not in cleaned and cleaned == cleaned.strip()


@given(st.text(st.characters(categories=("L", "N", "P"))))
def test_letters_digits_and_punctuation_stay(text):
    assert clean(text) == text


def test_megabytes_of_spaces_are_no_trouble():
    assert clean("a" + " \t" * 1_000_000 + "b") == "a\tb"
