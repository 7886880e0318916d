"""Filters as they are typed: what they say as a mapping, and what is no filter."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.index.filters import DEEPEST, FilterError, conditions, read_where


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lang=zh", {"lang": "zh"}),
        ("lang=zh|en", {"lang": ["zh", "en"]}),
        ("lang!=zh|en", {"lang": {"ne": ["zh", "en"]}}),
        ("lang≠zh", {"lang": {"ne": "zh"}}),
        ("year=2020", {"year": "2020"}),
        ("year>=2020 AND year<2024.5", {"year": {"gte": 2020, "lt": 2024.5}}),
        ("year≥2020 AND year≤2024", {"year": {"gte": 2020, "lte": 2024}}),
        (["year>=2020", "year<2024"], {"year": {"gte": 2020, "lt": 2024}}),
        (["lang=zh", "lang=en"], {"$and": [{"lang": "zh"}, {"lang": "en"}]}),
        ("year=2022 AND year>=2020", {"year": {"eq": "2022", "gte": 2020}}),
        ("date>2020-01-01", {"date": {"gt": "2020-01-01"}}),
        ("  科室 = 心 内科 ", {"科室": "心 内科"}),
        ("formula=a=b", {"formula": "a=b"}),
        ("drug=阿司匹林(肠溶)", {"drug": "阿司匹林(肠溶)"}),
        ("(drug=阿司匹林(肠溶))", {"drug": "阿司匹林(肠溶)"}),
        ('title="A|B (C" OR lang=zh', {"$or": [{"title": "A|B (C"}, {"lang": "zh"}]}),
        ('"odd=key"="say \\"AND\\"" AND b=1', {"odd=key": 'say "AND"', "b": "1"}),
        ('a="x|y"|z', {"a": ["x|y", "z"]}),
        ('a="x" y', {"a": '"x" y'}),
        ("a=", None),
        ("lang is missing", {"lang": {"missing": True}}),
        ("NOT lang is missing", {"$not": {"lang": None}}),
        ("NOT (a=1 OR b=2)", {"$not": {"$or": [{"a": "1"}, {"b": "2"}]}}),
        ("a=1 OR b=2 AND c=3", {"$or": [{"a": "1"}, {"b": "2", "c": "3"}]}),
        ("(a=1 OR b=2)AND c=3", {"$and": [{"$or": [{"a": "1"}, {"b": "2"}]}, {"c": "3"}]}),
        ("OR_rate>1", {"OR_rate": {"gt": 1}}),
        ("name=Anderson AND sons", None),
        ("a=this or that", {"a": "this or that"}),
        ("a=x, y", {"a": "x, y"}),
        ('a="x and b=2"', {"a": "x and b=2"}),
        ('a="=x"', {"a": "=x"}),
        ("lang IS MISSING", {"lang": None}),
        ("科室＝心内科｜神经科", {"科室": ["心内科", "神经科"]}),
        ("年份＞＝2020 AND 年份＜2024", {"年份": {"gte": 2020, "lt": 2024}}),
        ("科室！＝心内科", {"科室": {"ne": "心内科"}}),
        ('科室="甲｜乙＝丙"', {"科室": "甲｜乙＝丙"}),
        ("科室=骨科（一）", {"科室": "骨科（一）"}),
        ('year="2020', None),
        ('lang=zh|"en', None),
        ("year>2019<2022", None),
        ("科室=心内科 year=2020", None),
        ("科室=心内科，年份>=2020", None),
        ("科室=心内科、年份＝2020", None),
        ("科室=心内科 且 年份>=2020", None),
        ("科室=心内科,year=2020", None),
    ],
)
def test_text_says_what_a_mapping_says(text: Any, wanted: Any) -> None:
    if wanted is None:
        with pytest.raises(FilterError, match="not understood"):
            read_where(text)
    else:
        assert read_where(text) == read_where(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "year",
        "=2",
        "year=",
        "a=1 AND",
        "AND a=1",
        "a=1 OR OR b=2",
        "(a=1",
        "a=1)",
        "NOT",
        "()",
        "is missing",
        "a=1 b)",
        "year==2020",
        "year=>2020",
        "lang<>zh",
        "lang=zh and year>=2020",
        "lang=zh or year=2020",
        'lang="zh" and year>=2020',
        "lang=zh && year>=2020",
        "lang=zh, year>=2020",
    ],
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(FilterError, match="write field=value"):
        read_where(text)


@pytest.mark.parametrize("text", ["(" * 5000 + "a=1", "NOT " * 5000 + "a=1"])
def test_nesting_has_an_end(text: str) -> None:
    with pytest.raises(FilterError, match=f"deeper than {DEEPEST}"):
        read_where(text)
    nested: dict[str, Any] = {"a": 1}
    for _ in range(DEEPEST):
        nested = {"$not": nested}
    with pytest.raises(FilterError, match=f"deeper than {DEEPEST}"):
        read_where(nested)


def test_a_number_that_nothing_holds_and_bytes_that_are_no_text() -> None:
    assert read_where({"year": [2020, 10**400]}) == read_where({"year": 2020})
    with pytest.raises(FilterError, match="b'2020' is not a value"):
        read_where({"year": b"2020"})


VALUE = st.text(st.characters(codec="utf-8"), max_size=6)
FIELD = VALUE.filter(lambda text: text.strip() != "" and "\x00" not in text)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(field=FIELD, values=st.lists(VALUE, min_size=1, max_size=3), sign=st.sampled_from(["=", "!="]))
def test_anything_can_be_quoted(field: str, values: list[str], sign: str) -> None:
    text = f"{quoted(field)}{sign}{'|'.join(map(quoted, values))}"
    wanted = {field: {"eq" if sign == "=" else "ne": values}}
    assert read_where(f"({text}) AND z=1") == read_where({"$and": [wanted, {"z": "1"}]})


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(text=st.text(st.sampled_from('ab=!<>|"\\() ANDORT1'), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(FilterError):
        assert conditions(read_where(text))
