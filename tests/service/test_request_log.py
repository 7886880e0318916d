"""Log lines and headers: every request leaves one line without its text, every answer carries its id."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from suwen.service.request_log import POLICY, JsonLines, ToStderr


@pytest.fixture
def lines() -> Iterator[list[dict[str, object]]]:
    """What the service logs, as it would be written."""
    found: list[dict[str, object]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = json.loads(JsonLines().format(record))
            # What a server does by itself, another test's too, is of no request.
            if "request_id" in line:
                found.append(line)

    logger, handler = logging.getLogger("suwen.service"), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_a_request_leaves_one_line_without_its_text(served, lines) -> None:
    client, _ = served()
    lines.clear()
    reply = client.post("/search", json={"query": "布洛芬退烧吗", "k": 2})
    (line,) = lines
    assert line["request_id"] == reply.headers["x-request-id"] == reply.json()["request_id"]
    assert (line["method"], line["route"], line["status"], line["hits"]) == ("POST", "/search", 200, 2)
    assert line["ms"] > 0
    assert line["time"].endswith("Z")
    assert "布洛芬" not in json.dumps(line, ensure_ascii=False)


def test_an_id_of_a_document_is_not_in_the_line(served, lines) -> None:
    client, _ = served()
    lines.clear()
    client.get("/documents/patient-17")
    (line,) = lines
    assert (line["route"], line["code"]) == ("/documents/{id:path}", "unknown_document")
    assert "patient" not in json.dumps(line)


def test_queries_are_written_when_asked_for(served, lines) -> None:
    client, _ = served(log_queries=True)
    lines.clear()
    client.post("/search", json={"query": "布洛芬\n退烧吗"})
    assert [line["query"] for line in lines] == ["布洛芬\n退烧吗"]


def test_a_caller_may_name_its_request(client) -> None:
    assert client.get("/healthz", headers={"X-Request-Id": "trace-7.a"}).headers["x-request-id"] == "trace-7.a"
    for odd in ("a b", "x" * 65, "<b>", ""):
        assert client.get("/healthz", headers={"X-Request-Id": odd}).headers["x-request-id"] != odd


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/info", "/", "/openapi.json"])
def test_every_answer_carries_the_security_headers(client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-request-id"]
    assert "access-control-allow-origin" not in headers


def test_a_fault_is_logged_and_not_told(served, lines) -> None:
    client, holder = served()
    holder.freshness = lambda index: 1 / 0
    lines.clear()
    reply = client.get("/info")
    assert reply.status_code == 500
    error = reply.json()["error"]
    assert error["code"] == "internal"
    assert "ZeroDivision" not in reply.text and "Traceback" not in reply.text
    assert any("ZeroDivisionError" in str(line.get("trace")) for line in lines)
    assert [line["request_id"] for line in lines] == [error["request_id"]] * 2


def test_a_request_is_told_as_any_other_line_is() -> None:
    handler, line = ToStderr(), {"request_id": "a1", "route": "/search", "status": 200, "key": None}
    handler.setStream(stream := io.StringIO())
    record = logging.makeLogRecord({"msg": "request", "levelno": logging.INFO, "levelname": "INFO", "line": line})
    handler.handle(record)
    handler.tell("request", line)
    theirs, ours = (list(json.loads(one).items()) for one in stream.getvalue().splitlines())
    assert ours[1:] == theirs[1:]
    assert ours[0][0] == theirs[0][0] == "time"
    assert [len(one[0][1]) for one in (ours, theirs)] == [len("2026-01-31T12:00:00.000Z")] * 2


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    handler = ToStderr()
    handler.setStream(stream := io.StringIO())
    stream.close()
    handler.tell("request", {"status": 200})
