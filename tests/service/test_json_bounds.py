"""What a body holds is counted on its bytes, in parts of any size, as a parser would count it."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.service.json_bounds import Bounds, Count, clearly_within, parsed
from suwen.service.problems import Problem

ENDLESS = Bounds(2**40, 2**40, 2**40)


def size_of(value: object) -> tuple[int, int]:
    """Values and depth of something parsed: containers count, and what is in them but for the first of each."""
    if not isinstance(value, dict | list):
        return 1, 0
    inner = [size_of(one) for one in (value.values() if isinstance(value, dict) else value)]
    separated = max(0, len(inner) - 1)
    return 2 + separated + sum(count - 1 for count, _ in inner), 1 + max((depth for _, depth in inner), default=0)


trees = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}",\\a好\n😀'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[]{},"\\a'), inner, max_size=4),
    max_leaves=30,
)


def counted(body: bytes, bounds: Bounds = ENDLESS, cut: int = 2**20) -> Count:
    count = Count(bounds)
    for start in range(0, len(body), cut):
        count.take(body[start : start + cut])
    return count


@given(trees, st.booleans(), st.integers(1, 9))
def test_values_and_depth_are_those_of_the_parsed_value(value: object, ascii_only: bool, cut: int) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    elements, depth = size_of(value)
    assert counted(body, cut=cut).elements == elements
    counted(body, ENDLESS._replace(depth=depth), cut)
    if depth:
        with pytest.raises(Problem, match="nested deeper"):
            counted(body, ENDLESS._replace(depth=depth - 1), cut)


@given(trees)
def test_a_body_that_is_not_counted_would_have_passed(value: object) -> None:
    body, bounds = json.dumps(value).encode(), Bounds(2**20, 60, 5)
    if clearly_within(body, bounds):
        counted(body, bounds)


@given(trees, st.booleans())
def test_a_counted_body_is_read_as_it_is(value: object, ascii_only: bool) -> None:
    assert parsed(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize("body", [b"{", b"nan", b'{"a": NaN}', b'"\\ud800"', b"\xff", b"{} {}", b"[[[[1]", b"Infinity"])
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(Problem, match="is not JSON"):
        parsed(body)


@pytest.mark.parametrize("depth", [64, 65, 900, 5000, 1_000_000])
def test_deep_bodies(depth: int) -> None:
    body, bounds = b"[" * depth + b"]" * depth, ENDLESS._replace(depth=64)
    if depth <= 64:
        counted(body, bounds)
        return
    with pytest.raises(Problem) as caught:
        counted(body, bounds)
    assert caught.value.code == "invalid_json"


def test_many_shallow_brackets_are_fine() -> None:
    assert counted(b"[" + b"[]," * 100_000 + b"[]]", ENDLESS._replace(depth=2)).elements == 200_003


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" + b"1," * 20_000 + b"1]", "too_large"),
        (b'"' + b"\\u4e00" * 300_001 + b'"', "too_large"),
        (b'"' + b"\\\\" * 300_001 + b'"', "too_large"),
        (b'"' + b"a" * 9_000_000 + "😀".encode() + b'"', "too_large"),
        (b'"' + b"a" * 9_000_000 + b'\\ud83d\\ude00"', "too_large"),
    ],
)
def test_what_costs_more_than_its_length_shows(body: bytes, code: str) -> None:
    with pytest.raises(Problem) as caught:
        counted(body, Bounds(16 * 2**20, 20_000, 64), cut=65_536)
    assert caught.value.code == code


@pytest.mark.parametrize("text", [b"a" * 16_000_000, "药".encode() * 5_000_000, b"a " * 7_000_000])
def test_long_texts_as_they_are_usually_written_are_fine(text: bytes) -> None:
    assert counted(b'["' + text + b'"]').elements == 2


def test_a_body_is_refused_with_the_part_that_is_too_much_and_costs_no_memory() -> None:
    part = b"[]," * 20_000
    count = Count(Bounds(2**40, 20_000, 64))
    tracemalloc.start()
    try:
        with pytest.raises(Problem):
            count.take(part)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Of the whole part one stretch was counted, and no value of it was ever made.
    assert count.elements <= 2 * 64 * 1024
    assert peak < 8 * 2**20
