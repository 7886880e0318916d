"""Writing against a real server: draws, faults, resuming; and against a real tiny model in this process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from server import Body, Says, Server

from suwen.hyde import HydeError
from suwen.hyde.writing import Draws, Writer
from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig

QUERIES = ["高血压要注意什么", "头晕怎么办", "孕妇能吃布洛芬吗"]


def configured(url: str, **model: object) -> LLMConfig:
    return LLMConfig.model_validate(
        {
            "endpoints": {"here": {"base_url": url, "timeout": 30.0, "backoff": 0.01}},
            "models": {"m": {"endpoint": "here", "model": "scripted", "seed": 3, **model}},
        }
    )


def answer(body: Body) -> str:
    asked = re.search("问题：(.*)", body["messages"][-1]["content"])
    return f"关于{asked[1] if asked else ''}，应当先看症状再决定用药，第{body['seed']}种说法是多休息。"


def test_each_query_gets_its_own_draws_and_they_are_written_once(tmp_path: Path) -> None:
    bodies: list[Body] = []

    def noted(body: Body) -> str:
        bodies.append(body)
        return answer(body)

    with Server(noted) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        writer = Writer(llm, "m")
        first = writer.documents(QUERIES, 3, draws=Draws(0.7, top_p=0.9, top_k=50))
        assert [len(own) for own in first] == [3, 3, 3] and len({text for own in first for text in own}) == 9
        assert all(query in text for query, own in zip(QUERIES, first, strict=True) for text in own)
        sent = bodies[0]
        assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (0.7, 0.9, 50)
        before = server.total
        assert writer.documents(QUERIES, 3, draws=Draws(0.7, top_p=0.9, top_k=50)) == first
        assert server.total == before, "what was written is written again"
        assert writer.documents(QUERIES, 3, draws=Draws(0.7, top_p=0.9, top_k=50, seed=1)) != first
        assert writer.counts["kept"] == 27


def test_where_documents_are_titles_a_title_is_written(tmp_path: Path) -> None:
    """One line of it, short as it is; not the query itself, nor another language."""
    said = {
        QUERIES[0]: "高血压患者日常注意事项\n\n这个标题能回答问题，因为它说的是日常。",
        QUERIES[1]: QUERIES[1],
        QUERIES[2]: "Ibuprofen in pregnancy",
    }

    def play(body: Body) -> str:
        asked = body["messages"][-1]["content"]
        assert "标题" in asked
        return next(said[query] for query in QUERIES if query in asked)

    with Server(play) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        writer = Writer(llm, "m")
        assert writer.documents(QUERIES, kind="q2t") == [["高血压患者日常注意事项"], [], []]
        assert (writer.counts["copied"], writer.counts["language"]) == (1, 1)


def test_what_cannot_be_used_is_counted_and_left_out(tmp_path: Path) -> None:
    said = {
        QUERIES[0]: "Take some rest and see a doctor soon.",
        QUERIES[1]: "",
        QUERIES[2]: "布洛芬在孕晚期禁用。" * 20,
    }

    def play(body: Body) -> Says:
        text = next(said[query] for query in QUERIES if query in body["messages"][-1]["content"])
        return Says(text)

    with Server(play) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        writer = Writer(llm, "m")
        assert writer.documents(QUERIES) == [[], [], []]
        assert {key: writer.counts[key] for key in ("language", "empty", "loop", "kept")} == {
            "language": 1,
            "empty": 1,
            "loop": 1,
            "kept": 0,
        }


def test_a_reply_that_was_cut_keeps_its_whole_sentences(tmp_path: Path) -> None:
    cut = Says("先休息并多喝水，观察体温。如果三天不退就", finish="length")
    with Server(lambda _: cut) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        assert Writer(llm, "m").documents(["发烧怎么办"]) == [["先休息并多喝水，观察体温。"]]


def test_a_target_is_shown_and_its_copy_is_left_out(tmp_path: Path) -> None:
    targets = ["高血压患者要限盐，每天少于五克，并且监测血压。", "头晕时先坐下，测一测血压和血糖再说。"]

    def play(body: Body) -> str:
        asked = body["messages"][-1]["content"]
        return targets[0] if targets[0] in asked else "先坐下休息，避免跌倒，然后量血压、查血糖。"

    with Server(play) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        written = Writer(llm, "m").documents(QUERIES[:2], targets=targets)
    assert written == [[], ["先坐下休息，避免跌倒，然后量血压、查血糖。"]]


def test_queries_of_documents(tmp_path: Path) -> None:
    documents = ["高血压患者每天吃盐应少于五克。", "布洛芬在孕晚期禁用。"]

    def play(body: Body) -> str:
        return "每天能吃多少盐？\n少于五克。" if "吃盐" in body["messages"][-1]["content"] else "布洛芬在孕晚期禁用"

    with Server(play) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        writer = Writer(llm, "m")
        assert writer.queries(documents) == ["每天能吃多少盐？", None]
        assert writer.counts["copied"] == 1


def test_many_documents_without_chance_are_refused(tmp_path: Path) -> None:
    with Server(answer) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        writer = Writer(llm, "m")
        with pytest.raises(HydeError, match="temperature of 0"):
            writer.documents(QUERIES, 2, draws=Draws(0.0))


def test_a_model_of_this_process_writes_too(models, tmp_path: Path) -> None:
    base = models.build_base(tmp_path / "base")
    config = LLMConfig.model_validate(
        {
            "endpoints": {"here": {"base_url": "local", "concurrency": 8}},
            "models": {"m": {"endpoint": "here", "model": str(base)}},
        }
    )
    with LLM.open(config, tmp_path / "r.db") as llm:
        writer = Writer(llm, "m")
        written = writer.documents(QUERIES, 2, draws=Draws(0.9, max_tokens=12))
    # Noise, as the weights are random: every draw is accounted for, and none of the wrong language is handed on.
    assert writer.counts["asked"] == 6 and sum(map(len, written)) == writer.counts["kept"]


def test_a_question_in_another_language_than_asked_for_is_left_out(tmp_path: Path) -> None:
    said = iter(["What should I eat with high blood pressure?", "血压高了该吃什么？"])
    with Server(lambda _: next(said)) as server, LLM.open(configured(server.url), tmp_path / "r.db") as llm:
        writer = Writer(llm, "m")
        found = [*writer.queries(["高血压患者应低盐饮食。"]), *writer.queries(["高血压患者应少吃盐。"])]
    assert found == [None, "血压高了该吃什么？"] and writer.counts["language"] == 1
