"""The errors of the API: one shape, documented codes, and no internals in what callers are told."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from suwen.errors import SuwenError
from suwen.index.engine import DamagedIndex, DiskFull, IndexLocked, IndexProblem
from suwen.index.filters import FilterError, UnknownField
from suwen.retrieve.ingest import IngestError
from suwen.retrieve.ranking import EmptyQuery, SearchError
from suwen.service.problems import CODES, Problem, as_problem, documented, error_body, error_response

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_the_documentation_lists_every_code_with_its_status() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Errors")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.+?) \|$", section, re.MULTILINE)
    assert {code: (int(status), line) for code, status, line in rows} == CODES


def test_the_shape() -> None:
    problem = Problem("unknown_tier", "no tier 'x': choose one", param="tier")
    assert error_body(problem, "id") == {
        "error": {
            "code": "unknown_tier",
            "message": "no tier 'x': choose one",
            "type": "invalid_request_error",
            "param": "tier",
            "request_id": "id",
        }
    }
    assert problem.status == 422


def test_half_a_character_in_a_message_does_not_break_the_answer() -> None:
    assert error_response(Problem("internal", "\ud83d"), "id").status_code == 500


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownField("no field"), "unknown_field"),
        (FilterError("not understood"), "bad_filter"),
        (EmptyQuery("nothing"), "empty_query"),
        (SearchError("k is 0"), "bad_search"),
        (IngestError("no text"), "bad_document"),
        (SuwenError("odd"), "invalid_request"),
    ],
)
def test_errors_of_the_request_are_told_as_they_are(error: SuwenError, code: str) -> None:
    problem = as_problem(error)
    assert (problem.code, problem.message) == (code, str(error))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IndexLocked("/secret/place is written by 7"), "index_locked"),
        (DamagedIndex("/secret/place is cut off"), "damaged_index"),
        (IndexProblem("/secret/place cannot be written"), "index_failed"),
    ],
)
def test_errors_of_the_server_name_no_files(error: SuwenError, code: str) -> None:
    problem = as_problem(error)
    assert problem.code == code
    assert "secret" not in problem.message
    assert problem.status == 503


@pytest.mark.parametrize(
    "cause",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        DiskFull("could not write"),
    ],
)
def test_a_full_disk_is_known_whoever_says_so(cause: Exception) -> None:
    error = IndexProblem("could not go on")
    error.__cause__ = cause
    assert as_problem(error).code == "disk_full"
    assert as_problem(error).status == 507


def test_documented_statuses_have_an_example_of_every_code() -> None:
    described = documented("unknown_tier", "unknown_document")
    assert {429, 422, 404, 500, 503} <= set(described)
    examples = described[404]["content"]["application/json"]["examples"]
    assert {"not_found", "unknown_index", "unknown_document"} == set(examples)
    for status, entry in described.items():
        for code, example in entry["content"]["application/json"]["examples"].items():
            assert CODES[code].status == status
            assert example["value"]["error"]["code"] == code
    assert "Retry-After" in described[429]["headers"]
