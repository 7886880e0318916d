"""The application as a whole: errors in one shape, statuses that are documented, origins, and starting up."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from suwen.retrieve.retriever import Index
from suwen.service.problems import CODES


def error_of(reply) -> dict[str, object]:
    error = reply.json()["error"]
    assert set(error) == {"code", "message", "type", "param", "request_id"}
    assert error["request_id"] == reply.headers["x-request-id"]
    assert CODES[error["code"]].status == reply.status_code
    return error


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "param"),
    [
        ("GET", "/nowhere", None, "not_found", None),
        ("GET", "/documents/", None, "unknown_document", "id"),
        ("PUT", "/search", {}, "method_not_allowed", None),
        ("DELETE", "/documents", None, "method_not_allowed", None),
        ("POST", "/search", {}, "invalid_request", "query"),
        ("POST", "/search", {"query": 3}, "invalid_request", "query"),
        ("POST", "/search", {"query": "a", "k": "10"}, "invalid_request", "k"),
        ("POST", "/search", {"query": "a", "k": 0}, "invalid_request", "k"),
        ("POST", "/search", {"query": "a", "mode": "both"}, "invalid_request", "mode"),
        ("POST", "/search", {"query": "a", "limit": 3}, "invalid_request", "limit"),
        ("POST", "/search", [], "invalid_request", None),
        ("POST", "/search", None, "invalid_request", None),
        ("GET", "/documents?limit=x", None, "invalid_request", "limit"),
        (
            "POST",
            "/documents",
            {"documents": [{"id": "a", "text": "b"}, {"id": "c"}]},
            "invalid_request",
            "documents.1.text",
        ),
    ],
)
def test_errors_have_one_shape(client, method: str, path: str, body: object, code: str, param: str | None) -> None:
    error = error_of(client.request(method, path, json=body))
    assert (error["code"], error["param"]) == (code, param)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_must_say_that_it_is_json(client, kind: str) -> None:
    # A page of another site can send these without asking; JSON it cannot.
    reply = client.post(
        "/documents", content=b'{"documents": [{"id": "a", "text": "b"}]}', headers={"Content-Type": kind}
    )
    assert error_of(reply)["code"] == "invalid_request"
    assert "Content-Type: application/json" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "body", [b"{", b'{"query": NaN}', b'{"query": "\\ud800"}', b"\xff\xfe", b"[" * 100 + b"]" * 100]
)
def test_what_is_not_json(client, body: bytes) -> None:
    reply = client.post("/search", content=body, headers={"Content-Type": "application/json"})
    assert error_of(reply)["code"] == "invalid_json"


def test_a_number_of_any_length_is_no_fault(client) -> None:
    body = b'{"query": "a", "k": ' + b"9" * 10_000 + b"}"
    reply = client.post("/search", content=body, headers={"Content-Type": "application/json"})
    assert error_of(reply)["code"] in ("invalid_request", "invalid_json")


def test_every_operation_documents_its_statuses_with_examples(client) -> None:
    described = client.get("/openapi.json").json()
    assert {"/search", "/documents", "/documents/{id}", "/healthz", "/metrics"} <= set(described["paths"])
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert {"200", "500"} <= set(operation["responses"]), (method, path)
            for status, answer in operation["responses"].items():
                assert answer["description"], (method, path, status)
                if status != "200":
                    examples = answer["content"]["application/json"]["examples"]
                    assert all(CODES[code].status == int(status) for code in examples), (method, path, status)
    for method, path in (("post", "/search"), ("post", "/documents"), ("get", "/documents/{id}"), ("get", "/info")):
        assert "example" in described["paths"][path][method]["responses"]["200"]["content"]["application/json"]
    for name in ("Search", "Post", "Delete", "EmbeddingRequest"):
        assert described["components"]["schemas"][name]["examples"], name


def test_only_named_origins_may_ask_from_a_browser(served) -> None:
    client, _ = served(cors_origins=("https://ward.example",))
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    good = client.options("/search", headers={"Origin": "https://ward.example", **asks})
    assert good.status_code == 200
    assert good.headers["access-control-allow-origin"] == "https://ward.example"
    assert good.headers["x-request-id"]
    bad = client.options("/search", headers={"Origin": "https://evil.example", **asks})
    assert "access-control-allow-origin" not in bad.headers
    refused = client.post(
        "/search", content=b"{", headers={"Origin": "https://ward.example", "Content-Type": "application/json"}
    )
    assert refused.status_code == 422
    assert refused.headers["access-control-allow-origin"] == "https://ward.example"


def test_while_the_index_is_loading(served, monkeypatch: pytest.MonkeyPatch) -> None:
    go, open_ = threading.Event(), Index.open
    monkeypatch.setattr(Index, "open", lambda *a, **b: (go.wait(300), open_(*a, **b))[1])
    client, _ = served(wait=False)
    try:
        assert client.get("/healthz").status_code == 200
        for reply in (
            client.get("/readyz"),
            client.get("/info"),
            client.post("/search", json={"query": "布洛芬"}),
            client.post("/documents", json={"documents": [{"id": "a", "text": "b"}]}),
        ):
            assert error_of(reply)["code"] == "loading"
            assert reply.headers["retry-after"] == "1"
        assert 'suwen_ready{index="notes"} 0.0' in client.get("/metrics").text
    finally:
        go.set()


def test_a_damaged_index_is_told_and_its_place_is_not(served, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "truth.db").write_bytes(b"no database at all" * 1000)
    client, holder = served(tmp_path / "broken", wait=False)
    while holder.failure is None:
        time.sleep(0.01)
    for reply in (client.get("/readyz"), client.post("/search", json={"query": "布洛芬"})):
        assert error_of(reply)["code"] == "damaged_index"
        assert str(tmp_path) not in reply.text
    assert client.get("/healthz").status_code == 200
