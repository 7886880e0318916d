"""Judging against a real server that plays scripted judges, well and badly."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from court import asked, by_mark, config, judges, make_pool
from server import Fault, Says, Server, burst

from suwen.jury.judge_batches import JudgingSettings
from suwen.jury.judging import Judged, Jury
from suwen.jury.pooling import PoolProblem
from suwen.jury.texts import Texts
from suwen.jury.verdicts import GRADES, Judge, JuryProblem, Vote
from suwen.jury.votes import Votes, VotesProblem
from suwen.llm.client import LLM
from suwen.llm.config import ConfigProblem, LLMError
from suwen.llm.ledger import Budget
from suwen.llm.token_estimate import estimate_messages

MODELS = ("one", "two", "three")
PAIRS = {f"q{n}": [f"p{n}-{m}" for m in range(12)] for n in range(4)}
TEXTS = {id_: f"第{id_}段，等级 {GRADES[(int(id_[1]) + int(id_[3:])) % 5]}" for ids in PAIRS.values() for id_ in ids}
JURY = [Judge("one", "one"), Judge("two", "two"), Judge("two:en", "two", "en")]


class Court:
    """A pool, a server and a client, opened together."""

    def __init__(
        self,
        folder: Path,
        server: Server,
        jury=JURY,
        pairs=PAIRS,
        texts=TEXTS,
        settings=None,
        budget=None,
        retry=False,
        **model,
    ):
        self.work = make_pool(folder, pairs, texts) if not (folder / "pool.jsonl").exists() else None
        self.stack = ExitStack()
        self.texts = self.stack.enter_context(Texts(folder / "texts.db"))
        self.votes = self.stack.enter_context(Votes(folder / "votes.db"))
        self.llm = self.stack.enter_context(LLM.open(config(server.url, **model), folder / "replies.db", budget=budget))
        self.jury = Jury(
            jury,
            folder / "pool.jsonl",
            self.texts,
            self.votes,
            self.llm,
            settings or JudgingSettings(batch=5),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def judge(self) -> Judged:
        return self.jury.judge()

    def all(self) -> list[Vote]:
        return list(self.votes)


def test_every_pair_gets_one_vote_of_every_judge(tmp_path):
    with Server(judges(by_mark), models=MODELS) as server, Court(tmp_path, server) as court:
        done = court.judge()
        votes = court.all()
        assert done.complete and done.votes == len(votes) == 4 * 12 * 3
        assert {(v.query_id, v.passage_id, v.judge) for v in votes} == {
            (q, p, j.name) for q, ps in PAIRS.items() for p in ps for j in JURY
        }
        assert all(v.grade == TEXTS[v.passage_id][-1] and v.reason == f"因为{v.grade}" for v in votes)
        # 12 passages in batches of 5: three requests for each query and judge.
        assert server.total == 4 * 3 * 3 == done.spent.calls
        assert {v.prompt for v in votes} == {"grade/zh/2", "grade/en/2"} and {v.batch for v in votes} == {5, 2}


def test_a_vote_can_be_traced_to_its_reply(tmp_path):
    with Server(judges(by_mark), models=MODELS) as server, Court(tmp_path, server) as court:
        court.judge()
        for vote in court.all():
            stored = court.llm._cache.get(vote.reply_key)
            assert json.loads(stored.text)[f"P{vote.position}"]["grade"] == vote.grade


def test_the_order_is_shuffled_by_query_and_judge_and_the_same_in_every_run(tmp_path):
    orders = []
    for name in ("a", "b"):
        with Server(judges(by_mark), models=MODELS) as server, Court(tmp_path / name, server) as court:
            court.judge()
            places = {(v.query_id, v.passage_id, v.judge): (v.position, v.batch) for v in court.all()}
            orders.append(places)
            shown = [list(asked(body)[1].values()) for _, body, _ in server.log]
    assert orders[0] == orders[1]
    assert {tuple(texts) for texts in shown} != {tuple(sorted(texts)) for texts in shown}
    first = {judge: [p for p in PAIRS["q0"] if orders[0]["q0", p, judge][0] == 1] for judge in ("one", "two")}
    assert first["one"] != first["two"]


def test_running_again_asks_for_nothing_and_new_pairs_are_asked_alone(tmp_path):
    with Server(judges(by_mark), models=MODELS) as server:
        with Court(tmp_path, server) as court:
            court.judge()
            before = server.total
            assert court.judge().votes == 0 and server.total == before
        more = {query: [*ids, f"new-{query}"] for query, ids in PAIRS.items()}
        make_pool(tmp_path / "more", more, TEXTS | {f"new-{query}": "新段落 B" for query in PAIRS})
        for file in ("pool.jsonl", "texts.db"):
            (tmp_path / "more" / file).replace(tmp_path / file)
        with Court(tmp_path, server) as court:
            assert court.judge().votes == 4 * 3
            assert server.total == before + 4 * 3
            assert all(len(asked(body)[1]) == 1 for _, body, _ in server.log[before:])


def test_wrong_and_missing_ids_are_asked_again_once_and_then_are_abstentions(tmp_path):
    def play(body):
        _, passages = asked(body)
        said = json.loads(judges(by_mark)(body))
        for label, text in passages.items():
            if "p0-3" in text or "p0-4" in text:
                said.pop(label)
            # This one is answered when it is asked for by itself.
            if "p0-4" in text and len(passages) <= 2:
                said[label] = {"reason": "", "grade": "A"}
        said["P99"] = {"reason": "", "grade": "S"}
        return json.dumps(said)

    jury = [Judge("one", "one")]
    with Server(play, models=MODELS) as server, Court(tmp_path, server, jury, {"q0": PAIRS["q0"]}) as court:
        done = court.judge()
        votes = {v.passage_id: v for v in court.all()}
    assert done.complete and done.asked_again == 2 and len(votes) == 12
    assert votes["p0-3"].grade is None and votes["p0-3"].abstained == "malformed"
    assert votes["p0-4"].grade == "A"
    assert all(votes[p].grade == TEXTS[p][-1] for p in PAIRS["q0"][5:])


def test_a_refusal_and_an_invalid_grade_are_abstentions_of_their_kind(tmp_path):
    def play(body):
        query, _ = asked(body)
        if query == "query q1":
            return Says("", refusal="I cannot judge this")
        return judges(lambda model, q, passage: "Z" if "p0-7" in passage else by_mark(model, q, passage))(body)

    jury = [Judge("one", "one")]
    with (
        Server(play, models=MODELS) as server,
        Court(tmp_path, server, jury, {q: PAIRS[q] for q in ("q0", "q1")}) as court,
    ):
        done = court.judge()
        votes = court.all()
    kinds = Counter(v.abstained for v in votes if v.query_id == "q1")
    assert kinds == {"refused": 12} and "I cannot judge this" in votes[-1].reason
    (invalid,) = [v for v in votes if v.abstained == "malformed"]
    assert invalid.passage_id == "p0-7" and done.abstentions == 13


def test_a_reply_cut_in_the_middle_keeps_the_grades_it_has(tmp_path):
    def play(body):
        text = judges(by_mark)(body)
        return Says(text[: text.index('"P3"') + 9], finish="length") if len(asked(body)[1]) == 5 else text

    with Server(play, models=MODELS) as server, Court(tmp_path, server, JURY[:1], {"q0": PAIRS["q0"][:5]}) as court:
        done = court.judge()
        assert done.asked_again == 3 and server.total == 2
        assert {v.passage_id: v.grade for v in court.all()} == {p: TEXTS[p][-1] for p in PAIRS["q0"][:5]}
        assert len({v.reply_key for v in court.all()}) == 2


@pytest.mark.parametrize(
    "trouble",
    [
        burst(Fault("status", 429, retry_after="0"), 6),
        burst(Fault("status", 500), 5),
        lambda number, _: Fault("cut") if number % 5 == 1 else None,
        lambda number, _: Fault("cut-mid") if number % 5 == 2 else None,
        lambda number, _: Fault("slow", seconds=0.05) if number % 3 == 0 else None,
        lambda number, _: Fault("not-json") if number % 6 == 0 else None,
        lambda number, _: Fault("truncated") if number % 7 == 0 else None,
    ],
    ids=["429", "500", "cut", "cut-mid", "slow", "not-json", "truncated"],
)
def test_faults_of_the_server_change_no_vote(tmp_path, trouble):
    with Server(judges(by_mark), trouble, models=MODELS) as server, Court(tmp_path, server) as court:
        done = court.judge()
        assert done.complete and done.abstentions == 0
        assert [v.grade for v in court.all()] == [TEXTS[v.passage_id][-1] for v in court.all()]


def test_a_request_that_never_gets_a_reply_is_no_vote_and_is_asked_for_the_next_time(tmp_path):
    broken = [True]

    def trouble(number, body):
        # Each in words of its own: three refusals alike would end the run.
        said = f"no {'x' * number}"
        return Fault("status", 400, body=said) if broken[0] and "query q2" in json.dumps(body) else None

    with Server(judges(by_mark), trouble, models=MODELS) as server, Court(tmp_path, server) as court:
        done = court.judge()
        assert not done.complete and done.failed == 9 and done.problem
        assert {v.query_id for v in court.all()} == {"q0", "q1", "q3"}
        broken[0] = False
        assert court.judge().complete
        assert len(court.all()) == 4 * 12 * 3


def test_a_sample_is_judged_again_in_the_opposite_order(tmp_path):
    settings = JudgingSettings(batch=6, again=0.5)
    with Server(judges(by_mark), models=MODELS) as server, Court(tmp_path, server, settings=settings) as court:
        court.judge()
        votes = court.all()
    second = [v for v in votes if v.round == 1]
    assert len({v.query_id for v in second}) == 2 and len(second) == 2 * 12 * 3
    first = {(v.query_id, v.passage_id, v.judge): v for v in votes if v.round == 0}
    assert all(first[v.query_id, v.passage_id, v.judge].position == 7 - v.position for v in second)


def test_a_passage_longer_than_the_context_is_cut_and_marked_and_short_ones_are_not(tmp_path):
    texts = TEXTS | {"p0-0": "很长的段落。" * 900 + " A", "p0-1": "另一个很长的段落。" * 900 + " B"}

    def play(body):
        return judges(lambda model, query, passage: "B" if "〔下文从略〕" in passage or "[rest" in passage else "A")(
            body
        )

    jury = [JURY[0], JURY[2]]
    with (
        Server(play, models=MODELS) as server,
        Court(tmp_path, server, jury, {"q0": PAIRS["q0"]}, texts, context=4096) as court,
    ):
        court.judge()
        votes = court.all()
        sent = [estimate_messages(m["content"] for m in body["messages"]) for _, body, _ in server.log]
    assert {v.passage_id for v in votes if v.cut} == {"p0-0", "p0-1"} == {v.passage_id for v in votes if v.grade == "B"}
    assert max(sent) > 2000, "what short passages leave over goes to the long ones"
    assert max(sent) <= 4096 - 1024


def test_a_batch_that_cannot_fit_is_told_before_anything_is_spent(tmp_path):
    texts = TEXTS | {"p3-0": "很长的段落。" * 900}
    with Server(judges(by_mark), models=MODELS) as server:
        with (
            pytest.raises(LLMError, match="ask about fewer at once"),
            Court(tmp_path, server, texts=texts, context=1800) as court,
        ):
            court.judge()
        with pytest.raises(JuryProblem, match="max_tokens"):
            Court(tmp_path, server, settings=JudgingSettings(batch=60), max_tokens=500)
        assert server.total == 0


def test_what_is_missing_is_told_before_anything_is_spent(tmp_path):
    with Server(judges(by_mark), models=MODELS) as server:
        with pytest.raises(ConfigProblem, match="did you mean 'three'"):
            Court(tmp_path, server, [Judge("tree", "thre")])
        with pytest.raises(JuryProblem, match="at least one judge"):
            Court(tmp_path, server, [])
        with pytest.raises(JuryProblem, match="one name"):
            Court(tmp_path, server, [Judge("a", "one"), Judge("a", "two")])
        (tmp_path / "empty").mkdir()
        make_pool(tmp_path / "empty", {})
        with Court(tmp_path / "empty", server) as court, pytest.raises(PoolProblem, match="suwen jury pool"):
            court.judge()
        assert server.total == 0


def test_a_judge_keeps_its_model_and_prompt_under_one_name(tmp_path):
    with Server(judges(by_mark), models=MODELS) as server:
        with Court(tmp_path, server, [Judge("strict", "one")]) as court:
            court.judge()
        with (
            Court(tmp_path, server, [Judge("strict", "two")]) as court,
            pytest.raises(VotesProblem, match="another name"),
        ):
            court.judge()
        with (
            Court(tmp_path, server, [Judge("strict", "one", "en")]) as court,
            pytest.raises(VotesProblem, match="grade/en"),
        ):
            court.judge()


def test_a_budget_stops_cleanly_and_the_next_run_goes_on(tmp_path):
    with Server(judges(by_mark), models=MODELS) as server:
        with Court(tmp_path, server, budget=Budget(calls=10)) as court:
            done = court.judge()
            assert not done.complete and "budget" in done.stopped and server.total == 10
            assert len(court.all()) == done.votes > 0
        with Court(tmp_path, server) as court:
            assert court.judge().complete and len(court.all()) == 144
        assert server.repeated == 0


def test_a_plan_tells_the_calls_and_makes_none(tmp_path):
    with Server(judges(by_mark), models=MODELS) as server, Court(tmp_path, server) as court:
        plan = court.jury.plan()
        assert plan.calls == 36 and plan.models["two"].calls == 24 and plan.tokens > 0 and server.total == 0
        court.judge()
        assert server.total == 36 and court.jury.plan().calls == 0


def test_without_reasons_the_schema_and_the_prompt_ask_for_grades_alone(tmp_path):
    play = judges(by_mark, reason=False)
    settings = JudgingSettings(batch=5, reasons=False)
    with Server(play, models=MODELS) as server, Court(tmp_path, server, settings=settings) as court:
        assert court.judge().complete
        body = server.log[0][1]
        item = body["response_format"]["json_schema"]["schema"]["properties"]["P1"]
        assert list(item["properties"]) == ["grade"] and "reason" not in body["messages"][-1]["content"]
        assert body["response_format"]["json_schema"]["strict"] is True
