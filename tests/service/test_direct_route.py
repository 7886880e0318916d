"""Direct routes answer as FastAPI's own do, to good requests and to bad ones."""

from __future__ import annotations

import threading
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from suwen.service import direct_route
from suwen.service.direct_route import DirectRoute, read_body
from suwen.service.problems import Problem


class Asked(BaseModel):
    """A body with one of each kind of field."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str
    k: Annotated[int, Field(ge=1)] = 10
    where: dict[str, str | int | list[str | int]] | None = None


class Refused(Exception):
    """What a dependency raises."""


async def with_key(request: Request) -> None:
    """Let through who has a key."""
    if request.headers.get("x-key") != "yes":
        raise Refused


def client_of(route_class: type[APIRoute]) -> TestClient:
    app = FastAPI()
    router = APIRouter(prefix="/v1", dependencies=[Depends(with_key)], route_class=route_class)

    @router.post("/search")
    async def search(asked: Asked, request: Request) -> Response:
        return JSONResponse({**asked.model_dump(), "method": request.method})

    @router.get("/models/{name}")
    async def model(name: str) -> Response:
        return JSONResponse({"name": name})

    async def refused(request: Request, error: Exception) -> Response:
        return JSONResponse({"refused": True}, 401)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return JSONResponse([[one["type"], list(one["loc"])] for one in error.errors()], 422)

    app.include_router(router)
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    return TestClient(app)


@pytest.fixture(scope="module")
def both() -> tuple[TestClient, TestClient]:
    return client_of(DirectRoute), client_of(APIRoute)


@pytest.mark.parametrize(
    "body",
    [
        b'{"query": "\xe8\xa1\x80\xe5\x8e\x8b"}',
        b'{"query": "a", "k": 3, "where": {"year": [2020, "x"], "lang": "zh"}}',
        b'{"query": "\\ud83d\\ude00", "k": 123456789012345678901234567890}',
        b"{}",
        b'{"query": 7}',
        b'{"query": "a", "k": "3"}',
        b'{"query": "a", "k": 0}',
        b'{"query": "a", "k": 2.0}',
        b'{"query": "a", "more": 1}',
        b'{"query": "a", "where": {"year": {"gte": 1}}}',
        b'["query"]',
        b'"query"',
        b"null",
        b"",
    ],
)
def test_it_answers_as_fastapi_does(both: tuple[TestClient, TestClient], body: bytes) -> None:
    headers = {"x-key": "yes", "content-type": "application/json"}
    ours, theirs = (client.post("/v1/search", content=body, headers=headers) for client in both)
    assert ours.status_code == theirs.status_code
    if body[:1] == b"{":
        assert ours.json() == theirs.json()


def test_a_body_of_another_kind_is_refused(both: tuple[TestClient, TestClient]) -> None:
    reply = both[0].post(
        "/v1/search", content=b'{"query": "a"}', headers={"x-key": "yes", "content-type": "text/plain"}
    )
    assert (reply.status_code, reply.json()) == (422, [["model_attributes_type", ["body"]]])


def test_what_is_not_json_is_said_to_be_none() -> None:
    with pytest.raises(Problem, match="is not JSON") as caught:
        read_body(Asked, b"application/json", b'{"query": ')
    assert caught.value.code == "invalid_json"


def test_a_long_body_is_read_beside_the_loop(both: tuple[TestClient, TestClient], monkeypatch) -> None:
    threads: list[int] = []
    plain = direct_route.read_body

    def read(*given: object) -> object:
        threads.append(threading.get_ident())
        return plain(*given)

    monkeypatch.setattr(direct_route, "read_body", read)
    headers = {"x-key": "yes"}
    for length in (10, 100_000):
        body = {"query": "a", "where": {"year": ["x" * length]}}
        assert both[0].post("/v1/search", json=body, headers=headers).status_code == 200
    with both[0] as client:
        loops = client.portal.call(threading.get_ident)
        assert client.post("/v1/search", json={"query": "a"}, headers=headers).status_code == 200
        assert client.post("/v1/search", json=body, headers=headers).status_code == 200
    assert (threads[2] == loops, threads[3] == loops) == (True, False)


@pytest.mark.parametrize("body", [b'{"query": "a"}', b"{}", b"not json"])
def test_dependencies_are_asked_before_the_body_is_read(both: tuple[TestClient, TestClient], body: bytes) -> None:
    reply = both[0].post("/v1/search", content=body, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()) == (401, {"refused": True})


def test_routes_without_a_body_keep_fastapis_way(both: tuple[TestClient, TestClient]) -> None:
    assert both[0].get("/v1/models/a", headers={"x-key": "yes"}).json() == {"name": "a"}
    assert both[0].get("/v1/models/a").status_code == 401


def test_the_description_is_the_same(both: tuple[TestClient, TestClient]) -> None:
    ours, theirs = (client.get("/openapi.json").json() for client in both)
    assert ours == theirs
    assert "Asked" in ours["components"]["schemas"]
