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
from suwen.index.filters import FilterError

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
        ({"v": 7}, {"int", "list", "text"}),
        ({"v": 7.0}, {"int", "list", "text"}),
        ({"v": "7"}, {"int", "text", "list"}),
        ({"v": 7.5}, {"float"}),
        ({"v": "7.5"}, {"float"}),
        ({"v": [7, "7"]}, {"int", "text", "list"}),
        ({"v": True}, {"yes", "list"}),
        ({"v": False}, {"no"}),
        ({"v": "true"}, {"yes", "list"}),
        *(({"v": spelled}, {"int", "list"}) for spelled in ("7e0", "+7", "007", " 7.", "70E-1")),
        ({"v": "７"}, {"int", "text", "list"}),
        *(({"odd\"key'--": spelled}, {"word"}) for spelled in ("１", "1.00", "true", "1e0")),
        ({"v": "abc"}, set()),
        ({"v": "1e999"}, set()),
        ({"v": {"gte": "７"}}, {"int", "float", "list", "text"}),
        ({"v": {"gte": 7}}, {"int", "float", "list", "text"}),
        ({"v": {"gt": 7}}, {"float"}),
        ({"v": {"gt": 0, "lt": 7}}, {"yes", "list"}),
        ({"v": {"gte": "7"}}, {"int", "float", "list", "text"}),
        ({"v": {"gte": "7 "}}, {"word", "list"}),
        ({"v": {"lte": "7"}}, {"int", "text", "list", "yes", "no"}),
        ({"v": {"eq": 7, "lt": 2}}, {"list"}),
        ({"v": {"gte": 2, "lt": 7}}, set()),
        ({"v": {"ne": 7}}, {"float", "word", "yes", "no", "nested", "none"}),
        ({"v": {"ne": [7, "a", True]}}, {"float", "word", "no", "nested", "none"}),
        ({"v": {"ne": 7, "missing": False}}, {"float", "word", "yes", "no"}),
        ({"v": {"missing": True}}, {"nested", "none"}),
        ({"v": None}, {"nested", "none"}),
        ({"v": {"ne": None}}, set(METADATA) - {"nested", "none"}),
        ({"$or": [{"v": 7.5}, {"w": "y"}]}, {"float", "list", "none"}),
        ({"$and": [{"w": "x"}, {"w": "y"}]}, {"list"}),
        ({"$and": [{"v": {"gte": 2}}, {"v": {"lt": 7}}]}, set()),
        ({"$not": {"w": ["x", "y"]}}, set(METADATA) - {"int", "list", "none"}),
        ({"w": "x", "$not": {"v": "a"}}, {"int"}),
        ({"$not": {"$or": [{"v": {"gt": 0}}, {"w": None}]}}, {"none"}),
        ({"v": "seven'; DROP TABLE passages; --"}, {"word"}),
        ({"odd\"key'--": 1}, {"word"}),
        ({"w": "x", "v": 7}, {"int", "list"}),
        ({"w": ["x", "y"]}, {"int", "list", "none"}),
        ({"v": []}, set()),
        ({"v": {"gt": "zzz"}}, set()),
        ({"v": 10**30}, set()),
        ({"v": {"lt": 10**30, "gt": -(10**30)}}, {"int", "float", "yes", "no", "list", "text"}),
        ({"v": float("nan")}, set()),
        ({"v": "\ud800"}, set()),
        ({}, set(METADATA)),
        (None, set(METADATA)),
    ],
)
def test_what_a_filter_admits(engine: Engine, where: Any, wanted: set[str]) -> None:
    assert matching(engine, where) == wanted


@pytest.mark.parametrize(
    "where", [{"v": 7}, {"v": {"ne": 7}}, {"w": {"missing": True}}, {"$or": [{"v": 7}, {"w": "y"}]}, {"v": {"gte": 7}}]
)
def test_what_a_filter_admitted_before_a_write_is_right_after_it(engine: Engine, where: Any) -> None:
    """What an older moment admitted may be kept: a document that came, went or changed since must show."""
    held = {id_: dict(found) for id_, found in METADATA.items()}

    def write(changed: dict[str, dict[str, Any]], gone: tuple[str, ...] = ()) -> None:
        engine.add([encoded(id_, ["文字"], unit(RNG, 1, 16), metadata) for id_, metadata in changed.items()])
        engine.delete(list(gone))
        for id_ in gone:
            held.pop(id_)
        held.update(changed)

    def wanted() -> set[str]:
        return {id_ for id_, metadata in held.items() if admits(where, metadata)}

    assert matching(engine, where) == wanted()
    write({"new": {"v": 7}, "newer": {"w": "y"}})
    assert matching(engine, where) == wanted()
    write({"int": {"v": 8}, "none": {"v": 7, "w": "x"}}, ("new", "text"))
    assert matching(engine, where) == wanted()
    write({"last": {"v": [3, 7]}}, ("newer",))
    assert matching(engine, where) == wanted()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"V": 7}, "no document has the field 'V': the fields are"),
        ({"v' OR '1'='1": 7}, "no document has the field"),
        ({"v) OR 1=1 --": [1]}, "no document has the field"),
        ({"\x00": 1}, "no document has the field"),
        ({"v": {"like": 7}}, "the operators are eq, ne, gt, gte, lt, lte, missing; got like"),
        ({"v": {}}, "got none"),
        ({"v": {"missing": 1}}, "true or false"),
        ({"v": [None]}, "neither|not text"),
        ({"w": {"gte": 7}}, "the bound 7 is a number, and the values of the field are not, such as 'x'"),
        ({"w": {"gte": "7"}}, r"the bound 7(\.0)? is a number"),
        ({"odd\"key'--": {"lt": "a"}}, "the bound 'a' is text, and the values of the field are numbers"),
        ({"odd\"key'--": {"lt": "1e3"}}, "the bound '1e3' is text, .*: write 1000 like them"),
        (
            {"odd\"key'--": "2020,2021"},
            r"'2020,2021' is no number, and the field holds numbers alone, such as 1(\.0)?: ",
        ),
        ({"odd\"key'--": {"ne": ["1", "2020年"]}}, "'2020年' is no number"),
        ({"$or": []}, "at least one filter"),
        ({"$and": {"v": 7}}, "takes a list"),
        ({"$not": [{"v": 7}]}, "takes filters"),
        ({"$or": [{"v": 7}, {"V": 7}]}, "no document has the field 'V'"),
        ({"$or": [{"v": number} for number in range(300)]}, "300 conditions, at most 256"),
        ({"v": [[1]]}, "not text"),
        ({"v": {"gt": None}}, "neither a number nor text"),
        ({"v": {"gt": [1]}}, "neither a number nor text"),
        ([("v", 7)], "mapping"),
        (7, "mapping"),
    ],
)
def test_filters_that_are_refused(engine: Engine, where: Any, message: str) -> None:
    for search in ("dense", "lexical"):
        query = np.ones(16, np.float32) if search == "dense" else "文字"
        with engine.snapshot() as view, pytest.raises(FilterError, match=message):
            getattr(view, search)(query, 3, where)
    assert engine.stats().documents == len(METADATA)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"year": {"gt": "abc"}}, "the bound 'abc' is text, .* such as '2020': write a number like them"),
        ({"year": {"gt": "1e3"}}, "the bound '1e3' is text, .*: write 1000 like them"),
        ({"year": "2.02e3"}, "kept as text, such as '2020', and none is spelled '2.02e3': write 2020"),
        ({"year": {"ne": ["2020", "+2021"]}}, r"none is spelled '\+2021': write 2021"),
        ({"year": "true"}, "none is spelled 'true': write 1"),
        ({"both": "2e1"}, "none is spelled '2e1': write 20"),
        ({"both": {"lt": "a"}}, "the bound 'a' is text"),
    ],
)
def test_numbers_kept_as_text_are_numbers(make: Making, where: Any, message: str) -> None:
    """What a CSV has: nothing is compared with them letter by letter, and no other spelling finds nothing unsaid."""
    engine = make(documents=0)
    held: dict[str, dict[str, Any]] = {"a": {"year": "2020", "both": 20}, "b": {"year": "2021", "both": ["7", 3]}}
    engine.add([encoded(id_, ["文字"], unit(RNG, 1, 16), metadata) for id_, metadata in held.items()])
    with pytest.raises(FilterError, match=message):
        matching(engine, where)
    assert matching(engine, {"year": "abc"}) == set(), "a text it may well hold one day"
    assert matching(engine, {"year": {"gt": "2020"}}) == {"b"} and matching(engine, {"year": True}) == set()
    # One text that spells none, and they are compared as texts are.
    engine.add([encoded("c", ["文字"], unit(RNG, 1, 16), {"year": "2020年", "both": "-"})])
    matching(engine, where)


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
    assert matching(engine, {"v": [*range(100, 300_000), 7]}) == {"int", "list", "text"}


def test_filters_from_eight_threads_at_once(engine: Engine) -> None:
    """More different filters than are remembered, so that remembering and forgetting meet."""
    import threading

    problems: list[BaseException] = []

    def ask(start: int) -> None:
        try:
            for number in range(start, start + 60):
                assert matching(engine, {"v": {"gte": 7, "lt": 7.01 + number * 1e-6}}) == {"int", "list", "text"}
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=ask, args=(100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


SCALARS = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.booleans(), st.sampled_from(["", "1", "1.0", "01", "a", "true"])
)
LISTED = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))
FIELD = st.one_of(
    LISTED,
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            **{bound: st.sampled_from([-3, 0, 1.5, "1", "a"]) for bound in ("gt", "gte", "lt", "lte")},
            "eq": LISTED,
            "ne": LISTED,
            "missing": st.booleans(),
        },
    ).filter(bool),
)
WHERE = st.recursive(
    st.dictionaries(st.sampled_from(["a", "b"]), FIELD, min_size=1),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"$and": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"$or": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"$not": inner}, optional={"a": LISTED}),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def varied(kind: Kind) -> Any:
    engine = kind.create(16)
    values: list[Any] = [
        -2,
        0,
        1,
        0.5,
        True,
        False,
        "",
        "1",
        "-2.0",
        "01",
        "true",
        "a",
        "b",
        None,
        [1, "a"],
        [-3, 3],
        [],
    ]
    metadata = [{"a": a, "b": b} for a in values for b in values[::3]] + [{"a": 1}, {"b": "a"}, {}]
    engine.add([encoded(f"d{n}", ["文字"], unit(RNG, 1, 16), meta) for n, meta in enumerate(metadata)])
    yield engine, metadata
    engine.close()


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(where=WHERE)
def test_every_filter_admits_what_python_would(varied: Any, where: dict[str, Any]) -> None:
    engine, metadata = varied
    wanted = {f"d{number}" for number, one in enumerate(metadata) if admits(where, one)}
    with engine.snapshot() as view:
        rows = view.dense(np.ones(16, np.float32), 1000, where).rows
        assert {item.passage.document_id for item in view.fetch(rows.tolist())} == wanted
