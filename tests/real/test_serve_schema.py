"""Every operation of the API's own description, asked with what it allows and what it does not: it keeps its word."""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from suwen.encoders.pair import Pair
from suwen.service.app import create_app
from suwen.service.holder import Holder
from suwen.service.serve_settings import ServeSettings

sys.path.insert(0, str(Path(__file__).parent))
from live_server import LiveServer, live_server, make_static_pair, notes

#: Drawn for each operation, beside its examples and the bounds of every field.
EXAMPLES = 20
BOTH = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
# What the description says depends on no index, so the tests can be laid out before there is a server.
DESCRIBED = create_app(Holder(ServeSettings(index=Path("notes")))).openapi()


@schemathesis.serializer("application/x-ndjson")
def as_lines(_: Any, value: Any) -> bytes:
    """Lines are sent as they are."""
    return value if isinstance(value, bytes) else str(value).encode()


@schemathesis.serializer("application/x-tar")
def as_tar(_: Any, value: Any) -> bytes:
    """What is drawn is no snapshot, and must be refused as such."""
    return value if isinstance(value, bytes) else str(value).encode()


def narrowed() -> dict[str, Any]:
    """The description with the names of what is there, which it cannot know: else nearly all asked for is unknown."""
    document = copy.deepcopy(DESCRIBED)
    shapes = document["components"]["schemas"]
    ids = [one.id for one in notes()]
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair.load(make_static_pair(Path(folder) / "pair"))
    shapes["Search"]["properties"] |= {
        "query": {"enum": ["布洛芬", "kidney stones", "肾结石 多饮水", "x" * 8000]},
        "k": {"enum": [1, 10, 1000]},
        "tier": {"enum": [None, *pair.tiers]},
        "where": {"enum": [None, {"year": 2003}, {"year": {"gte": 2010, "lt": 2020}}, {"year": [2001, 2002]}]},
    }
    for shape in ("Search", "Post", "Delete", "CursorAsked"):
        shapes[shape]["properties"]["index"] = {"enum": [None, "notes"]}
    shapes["Posted"]["properties"] |= {"text": {"enum": ["甲", "胃溃疡慎用。" * 200, "\u0000 \ud7ff 😀 <b>"]}}
    shapes["Delete"]["properties"]["ids"]["items"] = {"enum": ids}
    shapes["EmbeddingRequest"]["properties"] |= {
        "model": {"enum": ["suwen", *pair.tiers]},
        "input": {"enum": ["甲", ["甲", "b"]]},
        "dimensions": {"enum": [None, pair.space.dimension]},
    }
    shapes["RerankRequest"]["properties"] |= {"model": {"enum": ["suwen"]}, "query": {"enum": ["布洛芬 a"]}}
    shapes["RerankRequest"]["properties"]["documents"]["items"] = {"enum": ["甲", {"text": "乙", "place": [1, {}]}]}
    shapes["RerankRequest"]["properties"]["documents"]["minItems"] = 1
    for shape, texts in (("RerankV2Request", "documents"), ("TeiRerankRequest", "texts")):
        shapes[shape]["properties"] |= {"model": {"enum": ["suwen"]}, "query": {"enum": ["布洛芬 a"]}}
        shapes[shape]["properties"][texts] |= {"items": {"enum": ["甲", "b"]}, "minItems": 1}
    shapes["TeiEmbedRequest"]["properties"] |= {"inputs": {"enum": ["甲", ["甲", "b"]]}, "dimensions": {"enum": [None]}}
    shapes["CursorAsked"]["properties"] = shapes["Search"]["properties"] | {"k": {"enum": [1, 1000]}}
    for other in ("offset", "per_document", "highlights", "explain"):
        del shapes["CursorAsked"]["properties"][other]
    lines = document["paths"]["/imports"]["post"]["requestBody"]["content"]["application/x-ndjson"]
    lines["schema"] = {
        "enum": ['{"id": "i1", "text": "甲"}\n', '{"id": "i1", "text": "甲"}\n{"id": "i2", "text": "乙"}']
    }
    shapes["LeaseAsked"]["properties"]["space"] = {"enum": [pair.space.id]}
    for path, name, known in (
        ("/documents/{id}", "id", ids),
        ("/indexes/{name}", "name", ["notes", "default"]),
        ("/v1/models/{model}", "model", ["suwen", *pair.tiers]),
    ):
        for operation in document["paths"][path].values():
            for parameter in operation["parameters"]:
                parameter["schema"] = {"enum": known} if parameter["name"] == name else parameter["schema"]
    return document


def load(document: dict[str, Any], modes: list[GenerationMode]) -> schemathesis.schemas.BaseSchema:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.generation.update(modes=modes, max_examples=EXAMPLES, deterministic=True)
    return schema


described, there = load(DESCRIBED, BOTH), load(narrowed(), [GenerationMode.POSITIVE])
bounded = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server() as server:
        yield server
        assert server.failures == []


def ask(case: schemathesis.Case, server: LiveServer) -> int:
    """Ask, and hold the answer against the description; its status."""
    # An index of other documents takes other filters, ids and spaces: what the description allows may still be refused.
    leave_out = [checks.positive_data_acceptance]
    if case.operation.path.startswith(("/v1/", "/v2/", "/embed", "/rerank")):
        # Other services' clients are met half way: fields they add, and numbers in quotes, are let through.
        leave_out.append(checks.negative_data_rejection)
    if case.operation.path in ("/imports", "/indexes/{name}/restore"):
        # What they bring is looked at when it has come.
        leave_out.append(checks.negative_data_rejection)
    if case.operation.path == "/documents/delete":
        # Also an address of a document, which may be looked at and deleted.
        leave_out.append(checks.allow_header_conformance)
    response = case.call(base_url=server.address, timeout=60)
    if response.status_code == 413:
        # Schemathesis does not take it for a refusal.
        leave_out.append(checks.negative_data_rejection)
    case.validate_response(response, excluded_checks=leave_out)
    assert response.status_code < 500, response.text
    return response.status_code


def test_the_server_describes_itself_like_this(server: LiveServer) -> None:
    assert server.ask("GET", "/openapi.json").json() == DESCRIBED


@described.parametrize()
@bounded
def test_an_operation_answers_as_described(case: schemathesis.Case, server: LiveServer) -> None:
    ask(case, server)


def statuses(operation: schemathesis.schemas.APIOperation, server: LiveServer) -> set[int]:
    """Ask what is drawn for an operation; the statuses it was answered with."""
    seen: set[int] = set()

    @bounded
    @given(case=operation.as_strategy())
    def ask_one(case: schemathesis.Case) -> None:
        seen.add(ask(case, server))

    ask_one()
    return seen


def test_what_is_there_is_answered_as_described_and_well(server: LiveServer) -> None:
    operations = [found.ok() for found in there.get_all_operations()]
    seen = {operation.label: statuses(operation, server) for operation in operations}
    assert {label.split("/")[1] for label in seen} >= {"search", "documents", "v1", "worker", "info", "metrics"}
    # Vectors for a document and a lease to give back cannot be drawn: the tests of those modules have good answers.
    # Nor the id of an import or a cursor. The server keeps no books, and has no folder: its indexes stay as they are.
    ill = {"POST /worker/results", "POST /worker/release", "GET /imports/{id}", "DELETE /imports/{id}"}
    ill |= {"GET /cursors/{id}", "DELETE /cursors/{id}", "POST /indexes/{name}/restore", "PUT /aliases/{alias}"}
    ill |= {"PUT /indexes/{name}", "DELETE /indexes/{name}", "DELETE /aliases/{alias}", "GET /originals/{id}"}
    assert {label for label, found in seen.items() if 200 not in found} == ill, seen
