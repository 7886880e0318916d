"""Numbers: what was told comes out in Prometheus' form, for one server alone."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from suwen.service.service_metrics import Metrics


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_was_told_comes_out() -> None:
    metrics, other = Metrics(), Metrics()
    metrics.answered("POST", "/search", 200, 0.002)
    metrics.failed("overloaded")
    metrics.searched("hybrid", "l6", {"encode": 7.0, "search": 3.0})
    metrics.searched("lexical", None, {"encode": 0.0, "search": 1.0})
    index = {"documents": 2, "passages": 5, "deleted": 1, "bytes_truth": 10, "bytes_derived": 20}
    metrics.measured(
        "notes", index | {"encoders": {"l6": 1, "document": 4}}, {"fresh_passages": 1, "oldest_seconds": 3.5}
    )
    found = samples(metrics.exposed().decode())
    labels = (("method", "POST"), ("route", "/search"), ("status", "200"))
    assert found["suwen_requests_total", labels] == 1
    assert found["suwen_errors_total", (("code", "overloaded"),)] == 1
    assert found["suwen_encode_seconds_sum", (("tier", "l6"),)] == 0.007
    assert found["suwen_search_seconds_sum", (("mode", "hybrid"),)] == 0.003
    assert found["suwen_search_seconds_count", (("mode", "lexical"),)] == 1
    assert found["suwen_index_passages", (("index", "notes"),)] == 5
    assert found["suwen_index_bytes", (("index", "notes"), ("part", "derived"))] == 20
    assert found["suwen_freshness_lag_seconds", (("index", "notes"),)] == 3.5
    assert ("suwen_requests_total", labels) not in samples(other.exposed().decode())


def test_an_encoder_that_is_gone_is_not_shown() -> None:
    metrics = Metrics()
    index = {"documents": 1, "passages": 1, "deleted": 0, "bytes_truth": 1, "bytes_derived": 1}
    metrics.measured("notes", index | {"encoders": {"static": 1}}, {})
    metrics.measured("notes", index | {"encoders": {"document": 1}}, {})
    found = samples(metrics.exposed().decode())
    assert ("suwen_index_passages_by_encoder", (("encoder", "document"), ("index", "notes"))) in found
    assert ("suwen_index_passages_by_encoder", (("encoder", "static"), ("index", "notes"))) not in found


def test_a_service_measures_itself(client) -> None:
    client.post("/search", json={"query": "布洛芬"})
    client.post("/search", json={"query": "!"})
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    found = samples(reply.text)
    assert found["suwen_encode_seconds_count", (("tier", "static"),)] == 1
    assert found["suwen_search_seconds_count", (("mode", "hybrid"),)] == 1
    assert found["suwen_queue_seconds_count", (("kind", "search"),)] == 2
    assert found["suwen_errors_total", (("code", "empty_query"),)] == 1
    assert found["suwen_index_documents", (("index", "notes"),)] == 6
    assert found["suwen_ready", (("index", "notes"),)] == 1
    assert found["suwen_freshness_lag_seconds", (("index", "notes"),)] == 0
