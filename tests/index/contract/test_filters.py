"""Filters: what the command line may say, what SQL it becomes, and what it may never do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engines import Kind, Making
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import admits, encoded, unit

from suwen.index.engine import Engine
from suwen.index.filters import FilterError, conditions, parse_where

RNG = np.random.default_rng(3)
METADATA: dict[str, dict[str, Any]] = {
    "int": {"v": 7, "w": "x"},
    "float": {"v": 7.5},
    "text": {"v": "7"},
    "word": {"v": "seven'; DROP TABLE passages; --", "odd\"key'--": 1},
    "yes": {"v": True},
    "no": {"v": False},
    "list": {"v": [1, "a", 7], "w": ["x", "y"]},
    "nested": {"v": []},
    "none": {"w": "y"},
}


@pytest.fixture
def engine(make: Making) -> Engine:
    engine = make(documents=0)
    engine.add([encoded(id_, ["文字"], unit(RNG, 1, 16), metadata) for id_, metadata in METADATA.items()])
    return engine


def matching(engine: Engine, where: Any) -> set[str]:
    with engine.snapshot() as view:
        found = set()
        for ranking in (view.dense(np.ones(16, np.float32), 99, where), view.lexical("文字", 99, where)):
            found.add(frozenset(item.passage.document_id for item in view.fetch(ranking.rows.tolist())))
    assert len(found) == 1, "both ways of searching must admit the same documents"
    return set(found.pop())


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"v": 7}, {"int", "list"}),
        ({"v": 7.0}, {"int", "list"}),
        ({"v": "7"}, {"text"}),
        ({"v": [7, "7"]}, {"int", "text", "list"}),
        ({"v": True}, {"yes", "list"}),
        ({"v": False}, {"no"}),
        ({"v": {"gte": 7}}, {"int", "float", "list"}),
        ({"v": {"gt": 7}}, {"float"}),
        ({"v": {"gt": 0, "lt": 7}}, {"yes", "list"}),
        ({"v": {"gte": "7"}}, {"text", "word", "list"}),
        ({"v": {"lte": "7"}}, {"text"}),
        ({"v": "seven'; DROP TABLE passages; --"}, {"word"}),
        ({"odd\"key'--": 1}, {"word"}),
        ({"w": "x", "v": 7}, {"int", "list"}),
        ({"w": ["x", "y"]}, {"int", "list", "none"}),
        ({"v": []}, set()),
        ({"v": {"gt": "zzz"}}, set()),
        ({"v": 10**30}, set()),
        ({"v": {"lt": 10**30, "gt": -(10**30)}}, {"int", "float", "yes", "no", "list"}),
        ({"v": float("nan")}, set()),
        ({"v": "\ud800"}, set()),
        ({}, set(METADATA)),
        (None, set(METADATA)),
    ],
)
def test_what_a_filter_admits(engine: Engine, where: Any, wanted: set[str]) -> None:
    assert matching(engine, where) == wanted


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"V": 7}, "no document has the field 'V': the fields are"),
        ({"v' OR '1'='1": 7}, "no document has the field"),
        ({"v) OR 1=1 --": [1]}, "no document has the field"),
        ({"\x00": 1}, "no document has the field"),
        ({"v": {"like": 7}}, "a range takes gt, gte, lt, lte; got like"),
        ({"v": {}}, "got none"),
        ({"v": None}, "filter on 'v'"),
        ({"v": [None]}, "neither|not text"),
        ({"v": [[1]]}, "not text"),
        ({"v": {"gt": None}}, "neither a number nor text"),
        ({"v": {"gt": [1]}}, "neither a number nor text"),
        ([("v", 7)], "mapping"),
        ("v=7", "mapping"),
    ],
)
def test_filters_that_are_refused(engine: Engine, where: Any, message: str) -> None:
    for search in ("dense", "lexical"):
        query = np.ones(16, np.float32) if search == "dense" else "文字"
        with engine.snapshot() as view, pytest.raises(FilterError, match=message):
            getattr(view, search)(query, 3, where)
    assert engine.stats().documents == len(METADATA)


def test_an_index_without_metadata_says_so(make: Making) -> None:
    engine = make(documents=0)
    engine.add([encoded("bare", ["文字"], unit(RNG, 1, 16))])
    with pytest.raises(FilterError, match="no metadata at all"):
        matching(engine, {"v": 1})


def test_a_field_goes_with_its_last_document(engine: Engine) -> None:
    assert matching(engine, {"w": "y"}) == {"list", "none"}
    engine.delete(["none", "list"])
    assert matching(engine, {"w": "y"}) == set()
    engine.delete(["int"])
    with pytest.raises(FilterError, match="'w'"):
        matching(engine, {"w": "y"})


def test_any_of_a_great_many(engine: Engine) -> None:
    assert matching(engine, {"v": [*range(100, 300_000), 7]}) == {"int", "list"}


def test_filters_from_eight_threads_at_once(engine: Engine) -> None:
    """More different filters than are remembered, so that remembering and forgetting meet."""
    import threading

    problems: list[BaseException] = []

    def ask(start: int) -> None:
        try:
            for number in range(start, start + 60):
                assert matching(engine, {"v": {"gte": 7, "lt": 7.01 + number * 1e-6}}) == {"int", "list"}
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=ask, args=(100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


SCALARS = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.booleans(), st.sampled_from(["", "1", "a", "b"])
)
BOUNDS = st.dictionaries(
    st.sampled_from(["gt", "gte", "lt", "lte"]), st.one_of(st.integers(-3, 3), st.sampled_from(["1", "a"])), min_size=1
)
WHERE = st.dictionaries(
    st.sampled_from(["a", "b"]), st.one_of(SCALARS, st.lists(SCALARS, max_size=3), BOUNDS), min_size=1
)


@pytest.fixture(scope="module")
def varied(kind: Kind) -> Any:
    engine = kind.create(16)
    values: list[Any] = [-2, 0, 1, 1.0, 0.5, True, False, "", "1", "a", "b", [1, "a"], [True, 2], ["b", "b"]]
    metadata = [{"a": a, "b": b} for a in values for b in values[::3]] + [{"a": 1}, {"b": "a"}, {}]
    engine.add([encoded(f"d{n}", ["文字"], unit(RNG, 1, 16), meta) for n, meta in enumerate(metadata)])
    yield engine, metadata
    engine.close()


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(where=WHERE)
def test_every_filter_admits_what_python_would(varied: Any, where: dict[str, Any]) -> None:
    engine, metadata = varied
    wanted = {f"d{number}" for number, one in enumerate(metadata) if admits(conditions(where), one)}
    with engine.snapshot() as view:
        rows = view.dense(np.ones(16, np.float32), 1000, where).rows
        assert {item.passage.document_id for item in view.fetch(rows.tolist())} == wanted


@pytest.mark.parametrize(
    ("clauses", "wanted"),
    [
        (["lang=zh"], {"lang": ["zh"]}),
        (["lang=zh|en", "lang=fr"], {"lang": ["zh", "en", "fr"]}),
        (["year=2020"], {"year": [2020, "2020"]}),
        (["year>=2020", "year<2024.5"], {"year": {"gte": 2020, "lt": 2024.5}}),
        (["checked=true"], {"checked": [True, "true"]}),
        (["  科室 = 心 内科 "], {"科室": ["心 内科"]}),
        (["formula=a=b"], {"formula": ["a=b"]}),
        (["date>2020-01-01"], {"date": {"gt": "2020-01-01"}}),
    ],
)
def test_command_line_filters(clauses: list[str], wanted: dict[str, Any]) -> None:
    assert parse_where(clauses) == wanted


@pytest.mark.parametrize("clauses", [["year"], ["=2"], ["year="], [""], ["year!=2"], ["a=1", "a>2"], ["a>2", "a=1"]])
def test_command_line_filters_that_are_refused(clauses: list[str]) -> None:
    with pytest.raises(FilterError, match=r"write field=value|use one of them"):
        parse_where(clauses)
