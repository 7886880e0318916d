"""The table is applied by ``tokenizers`` itself, and must do what ``str.translate`` does."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import Precompiled

from suwen.text.fold import simplified
from suwen.training.students.charsmap import charsmap

CHARACTERS = st.characters(exclude_categories=["Cs", "Mn", "Me", "Mc", "Cf"], exclude_characters="\0")


@given(st.dictionaries(CHARACTERS, st.text(CHARACTERS, min_size=1, max_size=3), min_size=1), st.data())
def test_it_replaces_what_the_table_says_and_nothing_else(table, data):
    normaliser = Precompiled(charsmap(table))
    for character in data.draw(st.lists(st.sampled_from(sorted(table)) | CHARACTERS, max_size=20)):
        assert normaliser.normalize_str(character) == table.get(character, character)


@pytest.fixture(scope="module")
def scripts() -> Precompiled:
    return Precompiled(charsmap(simplified()))


def test_every_character_there_is(scripts):
    table = simplified()
    for code in range(1, sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000 and scripts.normalize_str(chr(code)) != table.get(chr(code), chr(code)):
            pytest.fail(f"{chr(code)!r} became {scripts.normalize_str(chr(code))!r}")


@given(st.text(st.sampled_from("壓糖尿病兒藥頭痛發燒高血压abc 10⁹。"), max_size=50))
def test_whole_texts(scripts, text):
    assert scripts.normalize_str(text) == text.translate(str.maketrans(simplified()))
