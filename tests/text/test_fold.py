"""Folding keeps every offset and is done after one pass."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import suwen.text.fold
from suwen.text.fold import fold, simplified


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("HbA1c", "hba1c"),
        ("ＨｂＡ１ｃ：７．５％（偏高）", "hba1c:7.5%(偏高)"),
        ("甲　乙", "甲 乙"),
        ("糖尿病檢查與頭髮後發", "糖尿病检查与头发后发"),
        ("乾燥症", "干燥症"),  # OpenCC's first choice
        ("著作 瞭解 藉由", "著作 瞭解 藉由"),  # OpenCC leaves these to its phrases
        ("檸檬薴烯", "柠檬苎烯"),
        ("柠檬苧烯", "柠檬苎烯"),
        ("10µg 10μg", "10μg 10μg"),
        ("⼼⼒衰竭", "心力衰竭"),  # Kangxi radicals, as PDF files give them
        ("10⁹/L", "10⁹/l"),
        ("İstanbul ß", "İstanbul ß"),  # whose lower case would be two characters
        ("", ""),
    ],
)
def test_folds(text, folded):
    assert fold(text) == folded


def test_a_simplified_character_stays_and_is_what_folding_gives():
    table = simplified()
    assert table["壓"] == "压" and table["薴"] == table["苧"] == "苎"
    assert not set(table) & set(table.values())
    assert all(fold(old) == fold(new) == new for old, new in table.items())


def test_every_character_of_unicode_folds_to_one_that_stays():
    everything = [chr(code) for code in range(0x110000)]
    folded = [fold(character) for character in everything]
    assert all(len(after) == 1 and fold(after) == after for after in folded)
    assert sum(before != after for before, after in zip(everything, folded, strict=True)) > 5_000


def test_a_text_with_few_characters_to_fold_folds_as_one_with_many():
    for start in range(0, 0x110000, 1 << 12):
        many = "".join(map(chr, range(start, start + (1 << 12))))
        few = "".join(fold("中" + "".join(many[place : place + 8]))[1:] for place in range(0, len(many), 8))
        assert few == fold("中" + many)[1:]


@given(st.text())
def test_length_is_kept_and_folding_is_idempotent(text):
    assert len(fold(text)) == len(text)
    assert fold(fold(text)) == fold(text)


@given(st.text(), st.text())
def test_each_character_folds_on_its_own(left, right):
    assert fold(left + right) == fold(left) + fold(right)


def test_the_table_is_two_lines_of_one_length_without_repeats():
    path = Path(suwen.text.fold.__file__).with_name("traditional.txt")
    traditional, simplified = path.read_text(encoding="utf-8").splitlines()
    assert len(traditional) == len(simplified) == len(set(traditional)) == 4105
