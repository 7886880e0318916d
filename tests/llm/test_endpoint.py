"""Trouble on the wire: what is tried again, what is not, and what is said."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server import Fault, Server, burst
from virtual_clock import VirtualClock

from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig
from suwen.llm.endpoint import EndpointProblem
from suwen.llm.pace import retry_after
from suwen.llm.prompts import Message
from suwen.llm.requests import Reply, Request

Configured = Callable[..., LLMConfig]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def ask(text: object = "x", **fields: Any) -> Request:
    return Request("m", (Message("user", str(text)),), **fields)


def one(config: LLMConfig, folder: Path, request: Request | None = None) -> Reply:
    with LLM.open(config, folder / "r.db") as llm:
        return asyncio.run(llm.ask(request or ask()))


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", 429),
        Fault("status", 429, retry_after="0"),
        Fault("status", 500),
        Fault("status", 503),
        Fault("status", 408),
        Fault("cut"),
        Fault("cut-mid"),
        Fault("not-json"),
        Fault("empty"),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.retry_after}",
)
def test_trouble_that_passes_is_tried_again(tmp_path: Path, configured: Configured, fault: Fault) -> None:
    with Server(trouble=burst(fault, 2)) as server:
        reply = one(configured(server.url), tmp_path)
        assert (reply.text, reply.error, reply.attempts) == ("x", None, 3)
        assert server.total == 3
    with LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        (row,) = llm.ledger()
        assert (row.calls, row.replies) == (3, 1)


def test_a_slow_reply_is_given_up_and_asked_for_again(tmp_path: Path, configured: Configured) -> None:
    with Server(trouble=burst(Fault("slow", seconds=7), 1)) as server:
        reply = one(configured(server.url, timeout=4.0), tmp_path)
        assert (reply.text, reply.attempts) == ("x", 2)


@pytest.mark.parametrize("header", ["2", "Thu, 01 Jan 1970 00:01:42 GMT"])
def test_retry_after_is_honoured_in_both_forms(
    tmp_path: Path, configured: Configured, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    monkeypatch.setattr("suwen.llm.endpoint.retry_after", lambda value: retry_after(value, now=100.0))
    trouble = burst(Fault("status", 429, retry_after=header), 1)
    with Server(trouble=trouble, clock=lambda: clock.now) as server:
        one(configured(server.url), tmp_path)
        first, second = (arrived for arrived, _, _ in server.log)
        assert second - first >= 2.0


def test_a_429_holds_the_whole_endpoint_back(tmp_path: Path, configured: Configured, clock: VirtualClock) -> None:
    trouble = burst(Fault("status", 429, retry_after="1"), 4)
    with Server(trouble=trouble, clock=lambda: clock.now) as server:
        with LLM.open(configured(server.url), tmp_path / "r.db") as llm:
            summary = llm.run([ask(number) for number in range(12)], lambda *_: None)
        assert (summary.done, summary.failed) == (12, 0)
        turned = [arrived for arrived, _, status in server.log if status == 429]
        served = [arrived for arrived, _, status in server.log if status == 200]
        # Not one call was let through while the endpoint had asked for quiet.
        assert min(served) - min(turned) >= 1.0
        assert server.total == 16


def test_attempts_are_capped_and_the_rest_goes_on(tmp_path: Path, configured: Configured) -> None:
    with Server(trouble=lambda _, body: Fault("status", 500) if body["messages"][-1]["content"] == "3" else None) as s:
        got: dict[str, Reply] = {}
        with LLM.open(configured(s.url, attempts=3), tmp_path / "r.db") as llm:
            handle = lambda request, reply: got.__setitem__(request.key, reply)  # noqa: E731
            summary = llm.run([ask(number, key=str(number)) for number in range(8)], handle)
            assert (summary.done, summary.failed, summary.stopped) == (8, 1, None)
            assert got["3"].finish == "error" and "answered 500" in str(got["3"].error)
            assert "3 tries" in str(got["3"].error) and got["3"].attempts == 3
            # A failure is no reply: it is asked for again.
            s.trouble = None
            assert llm.run([ask(3, key="3")], handle).failed == 0
        assert got["3"].text == "3"


def test_an_endpoint_that_stops_answering_ends_the_run(tmp_path: Path, configured: Configured) -> None:
    with Server(trouble=lambda number, _: Fault("cut") if number >= 20 else None) as server:
        config = configured(server.url, attempts=2)
        with LLM.open(config, tmp_path / "r.db") as llm:
            kept: list[Request] = []
            with pytest.raises(EndpointProblem, match=r"in a row.*check the endpoint"):
                llm.run([ask(number) for number in range(500)], lambda request, _: kept.append(request))
            assert server.total < 80
            assert llm.plan([ask(number) for number in range(500)]).cached == 20


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault("status", 401), "rejected the key.*set key_env"),
        (Fault("status", 403), "rejected the key"),
        (Fault("status", 404), "knows no model 'scripted'.*usually ends in /v1"),
        (Fault("status", 402), "top it up"),
        (Fault("status", 429, code="insufficient_quota"), "top it up"),
        (Fault("status", 429, retry_after="7200"), "asks to wait 7200 s.*longest_wait"),
    ],
    ids=lambda value: f"{value.status}-{value.code}{value.retry_after}" if isinstance(value, Fault) else "",
)
def test_what_fails_for_every_request_is_not_tried_again(
    tmp_path: Path, configured: Configured, fault: Fault, told: str
) -> None:
    with Server(trouble=lambda *_: fault) as server:
        with pytest.raises(EndpointProblem, match=told):
            one(configured(server.url), tmp_path)
        assert server.total == 1


def test_a_request_that_is_turned_away_fails_alone(tmp_path: Path, configured: Configured) -> None:
    fault = Fault("status", 400, body="maximum context length is 4096 tokens")
    with Server(trouble=lambda number, _: fault if number == 0 else None) as server:
        reply = one(configured(server.url), tmp_path)
        assert reply.finish == "error" and "cut the texts" in str(reply.error) and server.total == 1
        assert one(configured(server.url), tmp_path).good


@pytest.mark.parametrize(
    ("formats", "calls"), [(("json_schema", "json_object"), 1), (("json_object",), 2), ((), 3)], ids=str
)
def test_auto_takes_the_first_form_the_endpoint_knows(
    tmp_path: Path, configured: Configured, formats: tuple[str, ...], calls: int
) -> None:
    with Server(lambda _: '{"a": 1}', formats=formats) as server:
        with LLM.open(configured(server.url, concurrency=1, attempts=1), tmp_path / "r.db") as llm:
            got: list[Any] = []
            llm.run([ask(number, schema=SCHEMA) for number in range(5)], lambda _, reply: got.append(reply.data))
        assert got == [{"a": 1}] * 5
        # What was learnt from the first request is not asked again.
        assert server.total == calls + 4
        assert ("JSON Schema" in server.log[-1][1]["messages"][0]["content"]) is (calls > 1)


def test_a_fixed_form_is_not_left(tmp_path: Path, configured: Configured) -> None:
    with Server(lambda _: '{"a": 1}', formats=()) as server:
        reply = one(configured(server.url, json_mode="schema"), tmp_path, ask(schema=SCHEMA))
        assert reply.finish == "error" and "response_format" in str(reply.error) and server.total == 1
        assert one(configured(server.url, json_mode="prompt"), tmp_path, ask(schema=SCHEMA)).data == {"a": 1}


def test_the_key_is_sent_and_a_bad_one_is_found_by_the_check(
    tmp_path: Path, configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(key="secret") as server:
        config = configured(server.url, key_env="SUWEN_TEST_KEY")
        monkeypatch.setenv("SUWEN_TEST_KEY", "secret")
        assert one(config, tmp_path).text == "x"
        with LLM.open(config, tmp_path / "r.db") as llm:
            assert llm.check() == []
            monkeypatch.setenv("SUWEN_TEST_KEY", "wrong")
            with pytest.raises(EndpointProblem, match="check SUWEN_TEST_KEY"):
                llm.check()


def test_the_check_says_that_an_endpoint_is_down_before_any_work(tmp_path: Path, configured: Configured) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with LLM.open(configured(url), tmp_path / "r.db") as llm:
            with pytest.raises(EndpointProblem, match=r"'here' is down: .*is the server up"):
                llm.check(["m"])
            assert llm.ledger() == []


def test_the_check_remarks_on_models_that_are_not_listed(tmp_path: Path, configured: Configured) -> None:
    with Server(models=("scripted-2", "other")) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        (remark,) = llm.check()
        assert "'scripted'" in remark and "nearest it lists is 'scripted-2'" in remark
        server.models = None
        assert llm.check() == []
        assert server.total == 0


def test_the_pace_of_an_endpoint_is_kept(tmp_path: Path, configured: Configured, clock: VirtualClock) -> None:
    with Server() as server:
        with LLM.open(configured(server.url, requests_per_minute=480), tmp_path / "r.db") as llm:
            llm.run([ask(number) for number in range(8)], lambda *_: None)
        # An eighth of a second between two calls, and nothing else waits on this clock.
        assert server.total == 8 and clock.now == 7 * 0.125


def test_endpoints_have_limits_of_their_own(tmp_path: Path) -> None:
    with Server(delay=0.02) as one_server, Server(delay=0.02) as other:
        config = LLMConfig.model_validate(
            {
                "endpoints": {
                    "one": {"base_url": one_server.url, "concurrency": 1},
                    "other": {"base_url": other.url, "concurrency": 3},
                },
                "models": {name: {"endpoint": name, "model": "scripted"} for name in ("one", "other")},
            }
        )
        requests = [Request(name, (Message("user", str(number)),)) for number in range(12) for name in ("one", "other")]
        with LLM.open(config, tmp_path / "r.db") as llm:
            assert llm.run(requests, lambda *_: None).done == 24
            assert [row.calls for row in llm.ledger()] == [12, 12]
        assert one_server.most_at_once == 1 and 1 < other.most_at_once <= 3
