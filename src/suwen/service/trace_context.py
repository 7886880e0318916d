"""The trace that a request is part of: W3C's ``traceparent`` taken in, and OpenTelemetry told where it is wanted."""

from __future__ import annotations

import re
import secrets
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.types import Scope

from suwen.service.serve_settings import SettingsProblem

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

#: Version 00 by the letter; of a later version the same fields, whatever follows them.
_PARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace(NamedTuple):
    """Where a request stands in a trace.

    Attributes:
        trace_id: Of the whole trace.
        parent_id: The caller's span.
        span_id: Our own.
    """

    trace_id: str
    parent_id: str
    span_id: str


def trace_of(headers: Any) -> Trace | None:
    """The trace that a request names; None where it names none, or more than one, or not by W3C's rules."""
    named = [value for name, value in headers if name == b"traceparent"]
    found = _PARENT.fullmatch(named[0].strip()) if len(named) == 1 else None
    if found is None or (found[1] == b"00" and found[5]):
        return None
    return Trace(found[2].decode(), found[3].decode(), secrets.token_hex(8))


class Tracing:
    """Tells OpenTelemetry of each request, by the provider that the process was started with.

    Without ``traces`` in the settings it does nothing, and costs nothing.
    """

    def __init__(self, wanted: bool) -> None:
        self._tracer: Tracer | None = _tracer() if wanted else None

    def span(self, scope: Scope) -> AbstractContextManager[Span | None]:
        """A span around one request, with the caller's as its parent."""
        if self._tracer is None:
            return nullcontext()
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        carried = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        wanted = {name: carried[name] for name in ("traceparent", "tracestate") if name in carried}
        return self._tracer.start_as_current_span(scope["method"], context=extract(wanted), kind=SpanKind.SERVER)

    @staticmethod
    def end(span: Span | None, route: str, status: int, scope: Scope) -> None:
        """Say of a request what became of it: its route and status, no address, no text."""
        if span is None:
            return
        from opentelemetry.trace import Status, StatusCode

        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.request.method", scope["method"])
        span.set_attribute("http.route", route)
        span.set_attribute("http.response.status_code", status)
        span.set_attribute("suwen.request_id", scope["suwen.id"])
        for name, value in scope["suwen.noted"].items():
            if isinstance(value, str | int | float) and name != "query":
                span.set_attribute(f"suwen.{name}", value)
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))


def _tracer() -> Tracer:
    try:
        from opentelemetry import trace
    except ImportError:
        raise SettingsProblem(
            "traces needs OpenTelemetry: install it with pip install 'suwen[otel]', or leave traces out of [serve]"
        ) from None
    _provide()
    return trace.get_tracer("suwen")


def _provide() -> None:
    """Send spans where OpenTelemetry's own variables say, unless the process has a provider already."""
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        raise SettingsProblem(
            "traces needs the SDK of OpenTelemetry: install it with pip install 'suwen[otel]'"
        ) from None
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
