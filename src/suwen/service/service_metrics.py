"""What the service counts and times, in Prometheus' form. Measures nothing by itself: others tell it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE

from suwen import __version__

__all__ = ["CONTENT_TYPE", "Metrics"]

#: Seconds; a static tier takes a tenth of a millisecond, a cold index seconds.
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """The numbers of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        # Memory, CPU, open files and the start of the process, and its Python.
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        Info("suwen_build", "What is running.", registry=registry).info(_build())

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=_BUCKETS)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self._requests = counter("suwen_requests", "Requests answered.", "method", "route", "status")
        self._request = histogram("suwen_request_seconds", "Time from a request's head to its answer.", "route")
        self._errors = counter("suwen_errors", "Errors answered, by their code.", "code")
        self._encode = histogram("suwen_encode_seconds", "Time to encode a query.", "tier")
        self._search = histogram("suwen_search_seconds", "Time to search with an encoded query.", "mode")
        self._waited = histogram("suwen_queue_seconds", "Time accepted work waited for a thread.", "kind")
        self.queue = gauge("suwen_queue_length", "Accepted requests, in work or waiting.", "kind")
        self.ready = gauge("suwen_ready", "1 once the index is open.", "index")
        # Each finds its numbers by a key of its own once: looking for them by labels costs as much as counting does.
        self._answered = cache(lambda *of: (self._requests.labels(*of), self._request.labels(of[1])))
        self._encode_of, self._search_of, self._waited_of = map(
            cache, (self._encode.labels, self._search.labels, self._waited.labels)
        )
        self._index = {
            "documents": gauge("suwen_index_documents", "Documents in the index.", "index"),
            "passages": gauge("suwen_index_passages", "Passages in the index.", "index"),
            "deleted": gauge("suwen_index_deleted_passages", "Deleted passages not yet folded away.", "index"),
        }
        self._bytes = gauge("suwen_index_bytes", "Size of the index on disk.", "index", "part")
        self._encoders = gauge("suwen_index_passages_by_encoder", "Passages by who encoded them.", "index", "encoder")
        self._encoded_by: dict[str, set[str]] = {}
        self._fresh = {
            "fresh_passages": gauge("suwen_fresh_passages", "Passages that wait for the document encoder.", "index"),
            "waiting_documents": gauge(
                "suwen_fresh_documents", "Documents that wait for the document encoder.", "index"
            ),
            "oldest_seconds": gauge("suwen_freshness_lag_seconds", "How long the oldest of them has waited.", "index"),
            "leased": gauge("suwen_leased_documents", "Documents that a worker has now.", "index"),
        }

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        requests, took = self._answered(method, route, str(status))
        requests.inc()
        took.observe(seconds)

    def failed(self, code: str) -> None:
        """Count an error by its code."""
        self._errors.labels(code).inc()

    def waited(self, kind: str, seconds: float) -> None:
        """Note how long accepted work waited for a thread."""
        self._waited_of(kind).observe(seconds)

    def searched(self, mode: str, tier: str | None, timings: Mapping[str, float]) -> None:
        """Note the two halves of a search, given in milliseconds."""
        if tier is not None:
            self.encoded(tier, timings["encode"] / 1000)
        self._search_of(mode).observe(timings["search"] / 1000)

    def encoded(self, tier: str, seconds: float) -> None:
        """Note the time an encoder took."""
        self._encode_of(tier).observe(seconds)

    def measured(self, name: str, index: Mapping[str, Any], freshness: Mapping[str, Any]) -> None:
        """Take over the state of an index, as ``/info`` tells it."""
        for kind, gauge in self._index.items():
            gauge.labels(name).set(index[kind])
        for part in ("truth", "derived"):
            self._bytes.labels(name, part).set(index[f"bytes_{part}"])
        for encoder in self._encoded_by.get(name, set()) - set(index["encoders"]):
            self._encoders.remove(name, encoder)
        self._encoded_by[name] = set(index["encoders"])
        for encoder, count in index["encoders"].items():
            self._encoders.labels(name, encoder).set(count)
        for kind, gauge in self._fresh.items():
            gauge.labels(name).set(freshness.get(kind) or 0)

    def forget(self, name: str) -> None:
        """Show an index no more that is no longer served."""
        for gauge in (self.ready, *self._index.values(), *self._fresh.values()):
            with suppress(KeyError):
                gauge.remove(name)
        for part in ("truth", "derived"):
            with suppress(KeyError):
                self._bytes.remove(name, part)
        for encoder in self._encoded_by.pop(name, set()):
            self._encoders.remove(name, encoder)

    def exposed(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)


def _build() -> dict[str, str]:
    """The versions that decide how the service behaves."""
    found = {"version": __version__}
    for name in ("faiss-cpu", "onnxruntime", "tantivy", "uvicorn"):
        with suppress(PackageNotFoundError):
            found[name.partition("-")[0]] = version(name)
    return found
