"""The errors of the API: one shape, one table of codes, and which library error is which. Knows no endpoint."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from suwen.encoders.prompts import InstructionRefused
from suwen.encoders.query import EncoderError
from suwen.encoders.space import DamagedPair
from suwen.errors import SuwenError
from suwen.index.engine import DamagedIndex, DiskFull, IndexLocked, IndexProblem
from suwen.index.filters import FilterError, UnknownField
from suwen.retrieve.deep_ranking import RankingChanged
from suwen.retrieve.ingest import IngestError, TooManyPassages
from suwen.retrieve.ranking import EmptyQuery, SearchError

#: Letters of a field's name, and of what is said of it, that an answer repeats: either may be as long as the body.
_LONGEST_NAME, _LONGEST_SAID = 200, 1000


class Code(NamedTuple):
    """What a code means: its HTTP status, and a line for the documentation."""

    status: int
    line: str


#: Every code the API answers with. docs/api.md lists the same.
CODES: dict[str, Code] = {
    "unauthorized": Code(401, "No key was given, or one the server does not know."),
    "forbidden": Code(403, "The key is of a role that may not do this."),
    "forbidden_host": Code(403, "The Host header names a server this is not."),
    "barred_worker": Code(403, "The worker's encoder failed the probe: it gets nothing to encode for a while."),
    "read_only": Code(403, "The server was started read-only: nothing can be posted or deleted."),
    "not_found": Code(404, "There is no such address."),
    "unknown_index": Code(404, "The server has no index of this name, or the request was sent to another one."),
    "unknown_document": Code(404, "No document has this id."),
    "unknown_cursor": Code(404, "The cursor has ended, or was never given: begin again."),
    "unknown_import": Code(404, "No import has this id."),
    "unknown_model": Code(404, "The request names a model that is not served."),
    "method_not_allowed": Code(405, "The address is there, but not for this method."),
    "slow_client": Code(408, "The request's body did not arrive in time."),
    "stale_version": Code(409, "The document was changed meanwhile."),
    "cursor_changed": Code(409, "Hits of this page were changed or deleted since the cursor began: begin again."),
    "index_exists": Code(409, "The name is taken by another index or alias."),
    "index_in_use": Code(409, "The index or alias is needed: the settings name it, or an alias means it."),
    "fixed_indexes": Code(409, "The server has no folder for further indexes."),
    "unknown_lease": Code(409, "The lease has expired or was never given."),
    "too_large": Code(413, "The body is longer, or holds more values, than the server takes."),
    "packed_body": Code(415, "The body is packed (`Content-Encoding`)."),
    "invalid_json": Code(422, "The body is not JSON, or nested too deep."),
    "invalid_request": Code(422, "A field is missing, unknown or of the wrong kind; `param` names it."),
    "empty_query": Code(422, "The query holds no letter or digit."),
    "unknown_tier": Code(422, "The pair has no such tier."),
    "unknown_field": Code(422, "The filter, `sort` or `facets` names a field that no document has: see `param`."),
    "bad_filter": Code(422, "The filter cannot be understood."),
    "bad_search": Code(422, "The search cannot be run as asked."),
    "no_instruction": Code(422, "The pair's query prompt has no place for an instruction."),
    "no_hyde": Code(422, "The server has no model that writes hypothetical documents."),
    "no_reranker": Code(422, "The server has no reranker."),
    "empty_document": Code(422, "A document has no text."),
    "bad_document": Code(422, "A document cannot be stored as it is."),
    "duplicate_id": Code(422, "An id is twice in one batch; nothing was stored."),
    "bad_snapshot": Code(422, "The body is not a whole snapshot of an index; nothing of it was kept."),
    "wrong_vectors": Code(422, "The vectors of a worker are not those of the documents, or not of the space."),
    "too_many": Code(422, "The batch is larger than the server takes."),
    "text_too_long": Code(422, "A text is longer than the server takes."),
    "overloaded": Code(429, "The server has as much work as it takes; try again after `Retry-After` seconds."),
    "internal": Code(500, "A fault of the server; its log has the request id."),
    "loading": Code(503, "The index is being opened; try again after `Retry-After` seconds."),
    "stopping": Code(503, "The server is about to stop; the message says whether anything of the request was stored."),
    "timeout": Code(503, "The request took longer than the server allows."),
    "writer_stuck": Code(503, "A write does not end; searches are answered. The server's log says where it is."),
    "index_locked": Code(503, "Another process writes the index."),
    "damaged_index": Code(503, "A file of the index is damaged; the server's log has the fix."),
    "index_failed": Code(503, "The index could not be read or written; the server's log has the reason."),
    "disk_full": Code(507, "The disk is full: nothing of the request was stored."),
}

#: What any request to the index may be answered with.
COMMON = (
    "unauthorized",
    "forbidden",
    "forbidden_host",
    "not_found",
    "unknown_index",
    "slow_client",
    "too_large",
    "packed_body",
    "invalid_json",
    "invalid_request",
    "overloaded",
    "internal",
    "loading",
    "stopping",
    "timeout",
    "index_locked",
    "damaged_index",
    "index_failed",
)


class Problem(SuwenError):
    """An answer that is an error.

    Args:
        code: One of :data:`CODES`.
        message: What is wrong and how to fix it.
        param: The field of the request it is about.
        headers: More headers of the response.
    """

    def __init__(
        self, code: str, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param
        self.status = CODES[code].status
        self.headers = dict(headers or {})


class ErrorDetail(BaseModel):
    """What went wrong, for a program (``code``) and for a person (``message``)."""

    code: str = Field(examples=["unknown_tier"])
    message: str
    type: str = Field(examples=["invalid_request_error"])
    param: str | None = None
    request_id: str


class ErrorBody(BaseModel):
    """Every error of the API has this shape."""

    error: ErrorDetail


def error_type(status: int) -> str:
    """The class of an error as OpenAI's clients know it."""
    named = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    return named.get(status, "server_error" if status >= 500 else "invalid_request_error")


def error_body(problem: Problem, request_id: str) -> dict[str, Any]:
    """A problem as the API tells it."""
    about = {"code": problem.code, "message": problem.message, "type": error_type(problem.status)}
    return {"error": {**about, "param": problem.param, "request_id": request_id}}


def error_response(problem: Problem, request_id: str) -> Response:
    """The whole answer for a problem."""
    # A message may quote what the caller sent, half characters included, which JSON cannot carry.
    body = error_body(problem, request_id)
    try:
        content = orjson.dumps(body)
    except TypeError:
        body["error"]["message"] = problem.message.encode(errors="replace").decode()
        body["error"]["param"] = None
        content = orjson.dumps(body)
    return Response(content, problem.status, problem.headers, "application/json")


def as_problem(error: SuwenError) -> Problem:
    """What the API says for an error of the library."""
    if isinstance(error, Problem):
        return error
    if disk_is_full(error):
        return Problem(
            "disk_full", "the server's disk is full: nothing was stored. Free space on it and send this again"
        )
    for kind, code, param in _KINDS:
        if isinstance(error, kind):
            return Problem(code, str(error), param=error.where if isinstance(error, UnknownField) else param)
    for kind, code, message in _INNER:
        if isinstance(error, kind):
            return Problem(code, message)
    return Problem("invalid_request", str(error))


def invalid_request(error: Mapping[str, Any]) -> Problem:
    """The first thing that is wrong with a request, and where."""
    # The name of an unknown field stands beside the place, not in it: nobody has looked at the others.
    unknown = [error["ctx"]["field"]] if error["type"] == "unknown_field" else []
    where, *path = [str(part) for part in (*error["loc"], *unknown)]
    param = ".".join(path)[:_LONGEST_NAME] or None
    if error["type"] == "json_invalid":
        return Problem("invalid_json", "the body is not JSON: check quotes, commas and encoding")
    if error["type"] == "model_attributes_type" and not path:
        return Problem(
            "invalid_request",
            "the body is not a JSON object: send one, with the header 'Content-Type: application/json'",
        )
    said = str(error["msg"]).removeprefix("Value error, ")[:_LONGEST_SAID]
    if error["type"] == "missing":
        said = "it is missing" if path else "the body is missing: send a JSON object"
    return Problem("invalid_request", f"{where} {param}: {said}" if param else f"{where}: {said}", param=param)


#: Errors of the request: passed on as they are.
_KINDS: tuple[tuple[type[SuwenError], str, str | None], ...] = (
    (UnknownField, "unknown_field", "where"),
    (FilterError, "bad_filter", "where"),
    (EmptyQuery, "empty_query", "query"),
    (SearchError, "bad_search", None),
    (RankingChanged, "cursor_changed", None),
    (InstructionRefused, "no_instruction", "instruction"),
    (TooManyPassages, "too_many", "documents"),
    (IngestError, "bad_document", "documents"),
)
#: Errors of the server: they name files, which is for its log and not for its callers.
_INNER: tuple[tuple[type[SuwenError], str, str], ...] = (
    (IndexLocked, "index_locked", "another process writes the index: stop it, or serve read-only"),
    (DamagedIndex, "damaged_index", "the index is damaged: the server's log names the file and the fix"),
    (DamagedPair, "damaged_index", "the pair is damaged: the server's log names the file and the fix"),
    (EncoderError, "index_failed", "the query encoder failed: the server's log has the reason"),
    (IndexProblem, "index_failed", "the index could not be read or written: the server's log has the reason"),
)


def disk_is_full(error: BaseException | None) -> bool:
    """Whether an error comes down to a full disk, whichever library said so."""
    while error is not None:
        if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
            return True
        error = error.__cause__
    return False


def documented(*codes: str, common: Iterable[str] = COMMON) -> dict[int | str, dict[str, Any]]:
    """The ``responses=`` of a route: every status it may give beside success, with an example for each code.

    Args:
        codes: The route's own codes.
        common: Those of every route.
    """
    by_status: dict[int | str, dict[str, Any]] = {}
    for code in sorted({*codes, *common}, key=lambda code: (CODES[code].status, code)):
        status, line = CODES[code]
        example = error_body(Problem(code, line), "5d1c0f3e9a7b2468")
        entry = by_status.setdefault(
            status, {"model": ErrorBody, "description": "", "content": {"application/json": {"examples": {}}}}
        )
        entry["content"]["application/json"]["examples"][code] = {"summary": line, "value": example}
        entry["description"] = " ".join(filter(None, [entry["description"], f"`{code}`: {line}"]))
        if status in (429, 503):
            seconds = {"description": "Seconds to wait before trying again.", "schema": {"type": "integer"}}
            entry["headers"] = {"Retry-After": seconds}
    return by_status
