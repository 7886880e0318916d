"""Progress where nobody watches a bar: a line now and then, and none for work that is soon done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from suwen.cli import output
from suwen.cli.output import counting, measuring
from suwen.cli.training import shown_steps


@pytest.mark.parametrize(
    ("progress", "values", "line"),
    [
        (lambda: counting("indexing"), (12_000, 34_000), "indexing: 12,000 documents, 34,000 passages encoded"),
        (lambda: measuring("encoding"), (1_000, 2_500), "encoding: 1,000 of 2,500"),
        (lambda: measuring("encoding"), (1_000, 0), "encoding: 1,000"),
        (shown_steps, ("align-l6", 100, 5_000, {"loss": 0.25}), "align-l6: 100 of 5,000 loss 0.2500"),
        (lambda: measuring("loading"), (3, 9, "bm25: cmedir"), "bm25: cmedir: 3 of 9"),
    ],
)
def test_a_log_gets_a_line_when_it_was_silent_for_long(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    progress: Callable[[], AbstractContextManager[Callable[..., Any]]],
    values: tuple[Any, ...],
    line: str,
) -> None:
    with progress() as told:
        told(*values)
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(output, "QUIET_SECONDS", 0.0)
    with progress() as told:
        told(*values)
    assert capfd.readouterr().err.splitlines() == [line]


def test_what_is_left_fits_a_terminal_of_80_columns() -> None:
    text = output.pace("encoding again", 98_304, 98_400, 989_951, 1_300.0)
    assert text == "encoding again: 98,304 of 989,951, 76 passages a second, about 3.3 hours left"
    assert len(text) <= 78  # a spinner and a space stand before it
    assert output.pace("indexing", 3, 4, 10, 0.5) == "indexing: 3 of 10, 4 passages"


def test_documents_passed_over_unchanged_foretell_no_time() -> None:
    text = output.pace("indexing", 8_259, 500, 14_488, 10.0, unchanged=8_000)
    assert text == "indexing: 8,259 of 14,488, 50 passages a second, about 4 minutes left"


def test_a_resumed_run_counts_from_its_own_first_passage(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[float, int]] = []

    def pace(what: str, documents: int, passages: int, total: int, seconds: float, unchanged: int = 0) -> str:
        told.append((seconds, unchanged))
        return what

    kept, output.pace = output.pace, pace
    try:
        with output.counting("indexing", 10) as report:
            report(3, 0)
            report(7, 0)
            report(8, 4)
    finally:
        output.pace = kept
    assert [unchanged for _, unchanged in told] == [3, 7, 7]


def test_what_is_shown_is_shown_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    output.show({}, "st:pick: 3 tasks, [bold] :pill:", json=False)
    output.say(":pill:")
    assert capfd.readouterr() == ("st:pick: 3 tasks, [bold] :pill:\n", ":pill:\n")
