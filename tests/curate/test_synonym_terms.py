"""Terms in queries and the rules of rewritten questions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.corpora.files import CorpusError
from suwen.corpora.records import Query
from suwen.curate import CurateError
from suwen.curate.synonym_terms import Case, Dictionary, complaint, is_question, length, read_synonyms, uses

ENTRIES = [
    ("心肌梗死", "心梗", "MI"),
    ("糖尿病", "消渴症"),
    ("2型糖尿病", "非胰岛素依赖型糖尿病"),
    ("二尖瓣关闭不全", "MI"),
]
CASE = Case("q", "得了心肌梗死以后还能不能跑步", "心肌梗死", "心肌梗死", "心梗", "得了心梗以后还能不能跑步")
GOOD = {
    "same": "患过心梗的人以后还可以跑步吗？",
    "other_with_synonym": "心梗发作之前有哪些先兆表现呢？",
    "other_with_term": "心肌梗死的手术费用大约是多少？",
}


def test_dictionaries_of_every_form(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"name": "心肌梗死", "aliases": ["心梗", "心肌梗死"]}\n', encoding="utf-8")
    (tmp_path / "a.tsv").write_text("name\taliases\n心肌梗死\t心梗|MI\n", encoding="utf-8")
    (tmp_path / "a.csv").write_text("name,alias\n感冒,伤风\n", encoding="utf-8")
    assert read_synonyms(tmp_path / "a.jsonl") == [("心肌梗死", "心梗")]
    assert read_synonyms(tmp_path / "a.tsv") == [("心肌梗死", "心梗", "MI")]
    assert read_synonyms(tmp_path / "a.csv") == [("感冒", "伤风")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "感冒"}\n', "not a synonym"),
        ('{"name": 3, "aliases": ["a"]}\n', "not a synonym"),
        ('{"name": "感冒", "aliases": ["感冒"]}\n', "no alias that differs"),
        ("nonsense\n", "a.jsonl:1"),
    ],
)
def test_bad_dictionaries_name_the_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "a.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises((CurateError, CorpusError), match=problem):
        read_synonyms(tmp_path / "a.jsonl")


def test_the_longest_name_is_found_and_an_ambiguous_one_is_not() -> None:
    dictionary = Dictionary(ENTRIES)
    assert dictionary.ambiguous == {"mi"}
    assert [entry[0] for _, _, entry in dictionary.terms("2型糖尿病和糖尿病")] == ["2型糖尿病", "糖尿病"]
    assert list(dictionary.terms("MI之后怎么办")) == [] and list(dictionary.terms("没有名词")) == []


def test_a_case_swaps_the_term_as_the_query_spells_it() -> None:
    case = Dictionary([("Heart Attack", "myocardial infarction")]).case(Query("q", "after a HEART attack, run?"))
    assert case is not None and case.term == "HEART attack"
    assert case.swapped == "after a myocardial infarction, run?"


def test_names_that_hold_each_other_or_stand_there_already_are_not_swapped() -> None:
    dictionary = Dictionary([("糖尿病", "2型糖尿病"), ("感冒", "伤风")])
    assert dictionary.case(Query("q", "糖尿病怎么办")) is None
    assert dictionary.case(Query("q", "感冒就是伤风吗")) is None


def test_good_questions_pass() -> None:
    assert CASE.bounds == (10, 18)
    assert complaint(GOOD, CASE) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"same": "患过心脏病的人以后还可以跑步吗？"}, "same does not use '心梗'"),
        ({"same": "患过心梗（心肌梗死）以后还跑步吗？"}, "which it must not"),
        ({"other_with_term": "心肌梗死也就是心梗要花多少钱呢？"}, "which it must not"),
        ({"other_with_synonym": "心梗？"}, "has 2 characters, it must have 10 to 18"),
        ({"same": "患过心梗的人" + "以后" * 8 + "可以跑步吗？"}, "must have 10 to 18"),
        ({"other_with_term": "心肌梗死的病人需要卧床静养休息。"}, "is not a question"),
        ({"other_with_synonym": "患过心梗的人，以后还可以跑步吗"}, "are the same"),
    ],
)
def test_each_rule_is_held(change: dict[str, str], problem: str) -> None:
    assert problem in str(complaint(GOOD | change, CASE))


@given(st.text(alphabet="心梗死吗？ab ", max_size=12), st.sampled_from(["心梗", "ab"]))
def test_a_term_put_between_chinese_characters_is_always_used(text: str, term: str) -> None:
    assert uses(f"{text}的{term}的{text}", term)


def test_lengths_do_not_count_the_mark_and_questions_are_known_in_both_languages() -> None:
    assert length("感冒怎么办？？ ") == length("感冒怎么办") == 5
    assert is_question("高血压患者能不能喝酒") and is_question("Can I run") and not is_question("多喝水")
    assert not is_question("Candy is sweet") and is_question("多喝水？")


def test_an_ambiguous_name_stands_for_nothing() -> None:
    # MS is two diseases: a question about one must not become a question about either.
    dictionary = Dictionary([("多发性硬化", "MS"), ("二尖瓣狭窄", "MS", "二尖瓣口狭窄")])
    assert dictionary.case(Query("q", "多发性硬化怎么治")) is None
    cases = [dictionary.case(Query("q", "二尖瓣狭窄怎么治"), seed) for seed in range(20)]
    assert {case.synonym for case in cases if case is not None} == {"二尖瓣口狭窄"} and None not in cases
