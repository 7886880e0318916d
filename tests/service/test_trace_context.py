"""OpenTelemetry is told of each request, by its own interface; a provider that keeps spans stands for an exporter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from suwen.service import trace_context
from suwen.service.serve_settings import SettingsProblem
from suwen.service.trace_context import Tracing

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept(NonRecordingSpan):
    """A span that can be looked at."""

    def __init__(self, name: str, parent: SpanContext) -> None:
        super().__init__(SpanContext(parent.trace_id, 7, False, TraceFlags(1)))
        self.name, self.parent, self.attributes = name, parent, {}
        self.failed = False

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def update_name(self, name: str) -> None:
        self.name = name

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.failed = True


class Provider(trace.TracerProvider, trace.Tracer):
    """Keeps every span."""

    def __init__(self) -> None:
        self.spans: list[Kept] = []

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return self

    def start_span(self, name: str, context: Any = None, *_: Any, **__: Any) -> trace.Span:
        raise NotImplementedError

    @contextmanager
    def start_as_current_span(self, name: str, context: Any = None, *_: Any, **__: Any) -> Iterator[trace.Span]:
        span = Kept(name, trace.get_current_span(context).get_span_context())
        self.spans.append(span)
        yield span


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Provider:
    provider = Provider()
    # Not as the provider of the process: the tests' own client tells it of requests too.
    monkeypatch.setattr(trace_context, "_tracer", lambda: provider)
    return provider


def test_a_request_is_a_span_of_its_callers_trace(served, provider: Provider) -> None:
    client, _ = served(traces=True)
    provider.spans.clear()
    client.post("/search", json={"query": "布洛芬"}, headers={"traceparent": PARENT})
    client.get("/documents/none")
    first, second = provider.spans
    assert f"{first.parent.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{first.parent.span_id:016x}" == "b7ad6b7169203331"
    assert (first.name, first.attributes["http.response.status_code"]) == ("POST /search", 200)
    assert first.attributes["suwen.hits"] == 6
    assert "布洛芬" not in str(first.attributes)
    assert not second.parent.is_valid
    assert (second.attributes["http.route"], second.attributes["suwen.code"]) == (
        "/documents/{id:path}",
        "unknown_document",
    )
    assert not second.failed, "what a caller does wrong is no fault of the server"


def test_nothing_is_told_unless_it_is_wanted(served, provider: Provider) -> None:
    client, _ = served()
    client.get("/healthz")
    assert provider.spans == []


def test_without_the_extra_the_fix_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(SettingsProblem, match=r"suwen\[otel\]"):
        Tracing(wanted=True)
