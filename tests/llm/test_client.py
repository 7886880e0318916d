"""The client against a real server: caching, repair, order, budgets, plans, stopping."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from server import Body, Fault, Says, Server, echo

from suwen.llm.client import LLM
from suwen.llm.config import ConfigProblem, LLMConfig, LLMError
from suwen.llm.ledger import Budget, BudgetProblem, Plan, Progress
from suwen.llm.prompts import Message
from suwen.llm.reply_cache import Cache, Stored
from suwen.llm.requests import Reply, Request

SOURCE = Path(__file__).parents[2] / "src"
GRADE = {
    "type": "object",
    "properties": {"id": {"enum": ["p1", "p2"]}, "grade": {"enum": ["S", "D"]}},
    "required": ["id", "grade"],
    "additionalProperties": False,
}
GOOD = '{"id": "p1", "grade": "S"}'


def ask(text: Any, **fields: Any) -> Request:
    return Request("m", (Message("user", str(text)),), **fields)


def run(llm: LLM, requests: list[Request]) -> dict[str, Reply]:
    got: dict[str, Reply] = {}
    llm.run(requests, lambda request, reply: got.__setitem__(request.messages[-1].content, reply))
    return got


def turns(*replies: str | Says):
    """Gives the replies one after the other, the last for ever."""
    left = list(replies)
    lock = threading.Lock()

    def play(_: Body) -> str | Says:
        with lock:
            return left.pop(0) if len(left) > 1 else left[0]

    return play


def test_a_reply_is_bought_once(tmp_path: Path, configured) -> None:
    with Server() as server:
        config = configured(server.url, {"price_in": 1e6, "price_out": 2e6})
        with LLM.open(config, tmp_path / "r.db") as llm:
            first = asyncio.run(llm.ask(ask("布洛芬可以退烧")))
            assert first == Reply("布洛芬可以退烧", None, "m", 1, 1, 3.0, False, "stop", None, 1)
            again = asyncio.run(llm.ask(ask("布洛芬可以退烧", key="other")))
            assert (again.text, again.cached, again.attempts, again.cost) == (first.text, True, 0, 3.0)
            assert llm.spent.cost == 3.0 and llm.spent.calls == 1
        with LLM.open(config, tmp_path / "r.db") as llm:
            assert asyncio.run(llm.ask(ask("布洛芬可以退烧"))).cached
            assert llm.spent.calls == 0
            (row,) = llm.ledger()
            assert (row.model, row.calls, row.replies, row.cost) == ("m", 1, 1, 3.0)
        assert server.total == 1


def test_another_sample_is_another_call(tmp_path: Path, configured) -> None:
    with Server() as server, LLM.open(configured(server.url, {"seed": 1}), tmp_path / "r.db") as llm:
        run(llm, [ask("a"), ask("a", sample=1), ask("a", sample=1)])
        assert server.total == 2 and len(server.calls) == 2


def test_the_same_question_many_times_at_once_is_one_call(tmp_path: Path, configured) -> None:
    with Server(delay=0.05) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        got: list[Reply] = []
        llm.run([ask("a")] * 12, lambda _, reply: got.append(reply))
        assert server.total == 1
        assert [reply.text for reply in got] == ["a"] * 12


def test_many_requests_keep_within_the_slots_and_all_come_back(tmp_path: Path, configured) -> None:
    requests = [ask(number, key=f"k{number}") for number in range(60)]
    with Server(delay=0.01) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        got: dict[str, str] = {}
        summary = llm.run(requests, lambda request, reply: got.__setitem__(request.key, reply.text))
        assert got == {f"k{number}": str(number) for number in range(60)}
        assert server.most_at_once <= 4
        assert (summary.done, summary.cached, summary.failed, summary.stopped) == (60, 0, 0, None)
        assert summary.spent.calls == server.total == 60


def test_requests_may_be_a_stream_without_end(tmp_path: Path, configured) -> None:
    taken = 0

    def stream():
        nonlocal taken
        while True:
            taken += 1
            yield ask(taken)

    async def scene(llm: LLM) -> int:
        got = 0
        async for _ in llm.ask_many(stream()):
            got += 1
            if got == 10:
                break
        await llm.aclose()
        return got

    with Server() as server:
        assert asyncio.run(scene(LLM.open(configured(server.url), tmp_path / "r.db"))) == 10
    # What is in flight and what waits to be fetched is bounded, however long the stream.
    assert taken <= 10 + 3 * 8


def test_a_good_reply_is_checked_and_parsed(tmp_path: Path, configured) -> None:
    with Server(lambda _: f"```json\n{GOOD}\n```") as server:
        with LLM.open(configured(server.url), tmp_path / "r.db") as llm:
            reply = asyncio.run(llm.ask(ask("x", schema=GRADE)))
        assert reply.data == {"id": "p1", "grade": "S"} and reply.good
        assert server.log[0][1]["response_format"]["json_schema"]["schema"] == GRADE


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("I think p1 is good", "it holds no JSON"),
        (GOOD[:-5], "not valid JSON"),
        ('{"id": "p9", "grade": "S"}', '"p9" is not one of "p1", "p2"'),
        ('{"id": "p1"}', '"grade" is missing'),
        ("", "it holds no JSON"),
    ],
)
def test_a_bad_reply_is_sent_back_once_with_what_is_wrong(tmp_path: Path, configured, bad: str, told: str) -> None:
    with Server(turns(bad, GOOD)) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        reply = asyncio.run(llm.ask(ask("x", schema=GRADE)))
        assert reply.data == json.loads(GOOD) and (reply.finish, reply.attempts) == ("stop", 2)
        second = server.log[1][1]["messages"]
        assert second[1] == {"role": "assistant", "content": bad} and told in second[2]["content"]
        assert llm.spent.tokens == reply.tokens_in + reply.tokens_out
        again = asyncio.run(llm.ask(ask("x", schema=GRADE)))
        assert again.cached and again.data == reply.data and again.tokens_in == reply.tokens_in
        assert server.total == 2


def test_there_is_one_repair_and_the_failure_is_kept_too(tmp_path: Path, configured) -> None:
    with Server(lambda _: "no") as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        for cached in (False, True):
            reply = asyncio.run(llm.ask(ask("x", schema=GRADE)))
            assert (reply.data, reply.finish, reply.cached) == (None, "error", cached)
            assert reply.error == "it holds no JSON"
        assert server.total == 2


def test_a_check_of_the_caller_is_repaired_like_the_schema(tmp_path: Path, configured) -> None:
    def whole(data: Any) -> str | None:
        return None if len(data) == 2 else f"{len(data)} grades, 2 passages: grade each once"

    schema = {"type": "array", "items": {"enum": ["S", "D"]}}
    with Server(turns('["S"]', '["S", "D"]')) as server:
        with LLM.open(configured(server.url), tmp_path / "r.db") as llm:
            reply = asyncio.run(llm.ask(ask("x", schema=schema, check=whole)))
        assert reply.data == ["S", "D"]
        assert "1 grades, 2 passages" in server.log[1][1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("says", "finish", "told"),
    [
        (Says("", refusal="I cannot help with that"), "refusal", "refused: I cannot help"),
        (Says("", finish="content_filter"), "refusal", "refused"),
        (Says(GOOD[:9], finish="length"), "length", "max_tokens"),
    ],
)
def test_a_refusal_and_a_cut_reply_are_not_repaired(tmp_path: Path, configured, says: Says, finish, told: str) -> None:
    with Server(lambda _: says) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        reply = asyncio.run(llm.ask(ask("x", schema=GRADE)))
        assert (reply.finish, reply.data) == (finish, None) and told in str(reply.error)
        assert server.total == 1


def test_a_plan_counts_calls_tokens_and_cost_and_spends_nothing(tmp_path: Path, configured) -> None:
    with Server() as server:
        config = configured(server.url, {"price_in": 1.0, "price_out": 2.0, "max_tokens": 100, "context": 500})
        with LLM.open(config, tmp_path / "r.db") as llm:
            run(llm, [ask("a")])
            before = server.total
            plan = llm.plan([ask("a"), ask("热" * 100), ask("热" * 100), ask("热" * 450, key="long")])
            one = plan.models["m"]
            assert (one.calls, one.cached, one.too_long) == (2, 2, ["long"])
            assert 550 <= one.tokens_in <= 600 and one.tokens_out == 200
            assert plan.cost == pytest.approx((one.tokens_in + 400) / 1e6) and plan.tokens == one.tokens_in + 200
            with pytest.raises(ConfigProblem, match="did you mean 'm'"):
                llm.plan([Request("mm", ())])
        assert server.total == before


@pytest.mark.parametrize("limits", [{"calls": 7}, {"tokens": 2000}, {"cost": 2000.0}])
def test_a_budget_stops_before_it_is_exceeded_and_what_came_is_kept(tmp_path: Path, configured, limits) -> None:
    requests = [ask(f"{number:04}" * 50) for number in range(100)]
    with Server() as server:
        config = configured(server.url, {"price_in": 1e6, "price_out": 1e6, "max_tokens": 60})
        with LLM.open(config, tmp_path / "r.db", budget=Budget(**limits)) as llm:
            summary = llm.run(requests, lambda *_: None)
            assert summary.stopped is not None and "the budget is spent" in summary.stopped
            spent = llm.spent
            assert spent.calls <= limits.get("calls", 100) and spent.tokens <= limits.get("tokens", 2000)
            assert 0 < summary.done == spent.calls == server.total < 100
            # It goes nearly to the limit: not one more call like these would fit.
            assert spent.calls == 7 if "calls" in limits else spent.tokens > 2000 - 300
        with LLM.open(config, tmp_path / "r.db") as llm:
            assert llm.run(requests, lambda *_: None).cached == summary.done
        assert server.total == 100


def test_failed_calls_count_against_a_budget_of_calls(tmp_path: Path, configured) -> None:
    with Server(trouble=lambda *_: Fault("status", 500)) as server:
        with LLM.open(configured(server.url, attempts=50), tmp_path / "r.db", budget=Budget(calls=9)) as llm:
            summary = llm.run([ask(number) for number in range(20)], lambda *_: None)
        assert summary.stopped is not None and server.total == 9


def test_a_budget_of_nothing_is_an_error_before_any_call() -> None:
    with pytest.raises(BudgetProblem, match="allows no call"):
        Budget(calls=0)


def test_unknown_models_and_missing_keys_are_errors_before_any_call(tmp_path: Path, configured, monkeypatch) -> None:
    monkeypatch.delenv("SUWEN_TEST_KEY", raising=False)
    with Server() as server:
        good, keyed = configured(server.url), configured(server.url, key_env="SUWEN_TEST_KEY")
        with LLM.open(good, tmp_path / "r.db") as llm, pytest.raises(ConfigProblem, match="no model is called"):
            llm.run([ask("a"), Request("other", ())], lambda *_: None)
        with LLM.open(keyed, tmp_path / "r.db") as llm:
            with pytest.raises(ConfigProblem, match="SUWEN_TEST_KEY"):
                llm.run([ask("a")], lambda *_: None)
            with pytest.raises(ConfigProblem, match="SUWEN_TEST_KEY"):
                llm.check()
        assert server.total == 0


def test_progress_is_told_after_every_reply(tmp_path: Path, configured) -> None:
    told: list[Progress] = []
    with Server(turns("no", "no", "fine")) as server:
        config = configured(server.url, concurrency=1)
        with LLM.open(config, tmp_path / "r.db", progress=told.append) as llm:
            llm.run([ask("a", schema=GRADE), ask("b"), ask("b")], lambda *_: None)
    assert [(one.done, one.total) for one in told] == [(1, 3), (2, 3), (3, 3)]
    assert (told[-1].cached, told[-1].failed, told[-1].eta) == (1, 1, 0.0)


def test_what_the_caller_raises_comes_out_and_nothing_hangs(tmp_path: Path, configured) -> None:
    def handle(*_: object) -> None:
        raise RuntimeError("the caller's own")

    def stream():
        yield ask("a")
        raise RuntimeError("the stream's own")

    with Server() as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        with pytest.raises(RuntimeError, match="the caller's own"):
            llm.run([ask(number) for number in range(30)], handle)
        with pytest.raises(RuntimeError, match="the stream's own"):
            llm.run(stream(), lambda *_: None)
        assert len(run(llm, [ask(number) for number in range(30)])) == 30


def test_run_inside_an_event_loop_says_what_to_do(tmp_path: Path) -> None:
    async def scene() -> None:
        with LLM.open(LLMConfig(), tmp_path / "r.db") as llm:
            llm.run([], lambda *_: None)

    with pytest.raises(LLMError, match="await ask"):
        asyncio.run(scene())


INTERRUPTED = """
import json, sys
from suwen.llm.client import LLM
from suwen.llm.prompts import Message
from suwen.llm.requests import Request
from suwen.llm.config import LLMConfig
config = LLMConfig.model_validate(json.loads(sys.argv[1]))
handled = []
def handle(request, reply):
    handled.append(request.key)
    print(request.key, flush=True)
with LLM.open(config, sys.argv[2]) as llm:
    requests = [Request("m", (Message("user", str(n)),), key=str(n)) for n in range(200)]
    summary = llm.run(requests, handle)
print(json.dumps([summary.done, summary.spent.calls, summary.stopped, len(handled)]))
"""


def test_an_interrupt_completes_what_is_in_flight_and_no_more(tmp_path: Path, configured) -> None:
    with Server(delay=0.05) as server:
        config = configured(server.url)
        command = [sys.executable, "-c", INTERRUPTED, config.model_dump_json(), str(tmp_path / "r.db")]
        environment = os.environ | {"PYTHONPATH": str(SOURCE)}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            child.stdout.readline()
            child.send_signal(signal.SIGINT)
            done, calls, stopped, handled = json.loads(child.stdout.read().splitlines()[-1])
        assert child.returncode == 0 and "run again" in stopped
        assert done == handled == calls == server.total < 200
        with LLM.open(config, tmp_path / "r.db") as llm:
            assert llm.run([ask(number) for number in range(200)], lambda *_: None).cached == done
        assert server.total == 200 and server.repeated == 0


def test_a_second_interrupt_does_not_wait(tmp_path: Path, configured) -> None:
    released = threading.Event()

    def slow(body: Body) -> str:
        if body["messages"][-1]["content"] != "0":
            released.wait()
        return echo(body)

    with Server(slow) as server:
        command = [sys.executable, "-c", INTERRUPTED, configured(server.url).model_dump_json(), str(tmp_path / "r.db")]
        environment = os.environ | {"PYTHONPATH": str(SOURCE)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=environment, text=True, **pipes) as child:
            assert child.stdout is not None and child.stderr is not None
            child.stdout.readline()
            while child.poll() is None:
                # Again and again: two signals that come before the first is looked at are one.
                child.send_signal(signal.SIGINT)
                time.sleep(0.2)
            assert "KeyboardInterrupt" in child.stderr.read()
            released.set()
        assert child.returncode not in (0, None)


def test_what_is_not_durable_yet_is_never_more_than_the_slots(
    tmp_path: Path, configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, kept, waiting = Cache.put, [], []

    def slow(self: Cache, *values: Any) -> Stored:
        # The first one waits until every other slot has made its call, however busy the machine is; the others long
        # enough for a slot given back too early to start a call.
        turns = 30_000 if not kept else 2
        while turns and (kept or server.total < 4):
            time.sleep(0.01)
            turns -= 1
        waiting.append(server.total - len(kept))
        done = put(self, *values)
        kept.append(done)
        return done

    monkeypatch.setattr(Cache, "put", slow)
    with Server() as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        llm.run([ask(number) for number in range(40)], lambda *_: None)
    assert max(waiting) == 4


def test_a_reply_is_in_the_file_before_it_is_handed_out(tmp_path: Path, configured) -> None:
    with Server() as server:
        config = configured(server.url)
        with LLM.open(config, tmp_path / "r.db") as llm, LLM.open(config, tmp_path / "r.db") as other:
            seen: list[Plan] = []
            requests = [ask(number) for number in range(20)]
            summary = llm.run(requests, lambda request, _: seen.append(other.plan([request])))
            assert summary.done == 20 and all(plan.cached == 1 for plan in seen)


def test_an_event_loop_that_ends_takes_its_connections_with_it(tmp_path: Path, configured, caplog) -> None:
    # What an earlier test left behind may complain as it is cleared away.
    gc.collect()
    caplog.clear()
    with Server() as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        for number in range(3):
            assert asyncio.run(llm.ask(ask(number))).good
            gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_two_clients_share_a_cache(tmp_path: Path, configured) -> None:
    with Server(turns(*(str(number) for number in range(200)))) as server:
        config = configured(server.url)
        one, two = LLM.open(config, tmp_path / "r.db"), LLM.open(config, tmp_path / "r.db")
        got: list[dict[str, Reply]] = [{}, {}]
        requests = [ask(f"q{number}") for number in range(40)]
        threads = [
            threading.Thread(target=lambda at=at, llm=llm: got[at].update(run(llm, requests)))
            for at, llm in enumerate((one, two))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Whoever asked second uses the first one's reply, even if its own call was on the way.
        assert {key: reply.text for key, reply in got[0].items()} == {key: reply.text for key, reply in got[1].items()}
        assert len(server.calls) == 40 <= server.total <= 80
        one.close()
        two.close()
