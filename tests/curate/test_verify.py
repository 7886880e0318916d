"""Verified training rows: what becomes a positive, a negative, a false negative; windows, faults, resumption."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import Fault, Says, Server
from small_pair import NOTES, make_pair

from suwen.corpora.records import Document
from suwen.corpora.training_rows import TrainingRow, read_training_rows, write_training_rows
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut
from suwen.curate.mine import Found, search_index
from suwen.curate.verify import RowFunnel, Verification, read_queries, verify_rows
from suwen.encoders.pair import Pair
from suwen.llm.asker import Unfinished
from suwen.retrieve.retriever import Index

RIGHT, OTHER = "感冒多喝水，一周自愈。", "得了感冒注意休息，通常七天好转。"
WRONG = ("骨折后应固定患肢。", "失眠者睡前不宜饮咖啡。", "肺炎需要抗生素治疗，不可拖延。")
DOUBT = "感冒的人很多。"
TEXTS = (RIGHT, OTHER, *WRONG, DOUBT)


def fixed(queries: list[str], k: int) -> list[list[Found]]:
    return [[Found(text, 1.0 - n / 10) for n, text in enumerate(TEXTS)][:k] for _ in queries]


def play(body: dict[str, Any]) -> str:
    passages = re.findall(r"【(P\d+)】\n(.+)", body["messages"][1]["content"])
    said = {label: "unsure" if text == DOUBT else "yes" if "感冒" in text else "no" for label, text in passages}
    return json.dumps(said)


def verified(ask: Any, url: str, rows: list[TrainingRow], held_out: HeldOut | None = None, **settings: Any) -> Any:
    asker = ask(url, attempts=40)
    funnel = RowFunnel()
    made = list(verify_rows(rows, fixed, asker, Verification(**settings), held_out=held_out, funnel=funnel))
    return made, funnel, asker


def test_a_bare_query_gets_positives_and_hard_negatives(ask) -> None:
    with Server(play) as server:
        (row,), funnel, _ = verified(ask, server.url, [TrainingRow("感冒怎么办", ())], batch=4)
        assert server.total == 2
    assert set(row.pos) == {RIGHT, OTHER} and set(row.neg) == set(WRONG)
    assert (funnel.answering, funnel.not_answering, funnel.unsure, funnel.unanswered) == (2, 3, 1, 0)
    assert funnel.passages == 6 and funnel.false_negatives == 0 and funnel.rows == 1


def test_known_labels_are_checked(ask) -> None:
    row = TrainingRow("感冒怎么办", (RIGHT, WRONG[0]), (OTHER, WRONG[1]), prompt="查询：")
    with Server(play) as server:
        (made,), funnel, _ = verified(ask, server.url, [row])
        (strict,), _, _ = verified(ask, server.url, [row], promote=False)
    # The refuted positive is neither; the false negative becomes a positive, or is left out.
    assert set(made.pos) == {RIGHT, OTHER} and set(made.neg) == set(WRONG[1:]) and made.prompt == "查询："
    assert strict.pos == (RIGHT,) and OTHER not in strict.neg
    assert (funnel.false_positives, funnel.false_negatives) == (1, 1)


def test_no_answer_means_no_row_and_copies_of_a_positive_are_no_negatives(ask) -> None:
    def none(body: dict[str, Any]) -> str:
        labels = re.findall(r"【(P\d+)】\n(.+)", body["messages"][1]["content"])
        return json.dumps(
            {
                label: "yes" if text == RIGHT and "感冒" in body["messages"][1]["content"] else "no"
                for label, text in labels
            }
        )

    copy = Found(RIGHT.replace("，", "、") + "啊", 0.2)
    with Server(none) as server:
        asker, funnel = ask(server.url), RowFunnel()
        rows = [TrainingRow("感冒怎么办", ()), TrainingRow("痛风怎么办", ())]
        found = iter([[[Found(RIGHT, 1.0), copy, Found(WRONG[0], 0.5)], [Found(WRONG[0], 0.4)]]])
        made = list(verify_rows(rows, lambda queries, k: next(found), asker, funnel=funnel))
    assert [(row.query, row.pos, row.neg) for row in made] == [("感冒怎么办", (RIGHT,), (WRONG[0],))]
    assert funnel.without_a_positive == 1


def test_repeated_and_held_out_rows_and_passages_are_left_out(ask) -> None:
    rows = [TrainingRow("感冒怎么办", ()), TrainingRow("感冒怎么办？", ()), TrainingRow("孕妇感冒了可以吃什么药呢", ())]
    held_out = HeldOut(["孕妇感冒了可以吃什么药", OTHER])
    with Server(play) as server:
        (row,), funnel, _ = verified(ask, server.url, rows, held_out)
    assert row.pos == (RIGHT,) and (funnel.queries, funnel.repeated, funnel.held_out) == (3, 1, 1)


def test_windows_batches_and_faults_change_nothing(ask, tmp_path) -> None:
    rows = [TrainingRow(f"感冒第{number}天怎么办", ()) for number in range(7)]
    kinds = (Fault("status", 429, retry_after="0"), Fault("cut"), Fault("not-json"))
    with Server(play) as server:
        calm, _, _ = verified(ask, server.url, rows, batch=2)
    with Server(play, lambda number, _: kinds[number % 3] if number % 2 else None) as server:
        rough, funnel, _ = verified(ask, server.url, rows, batch=2, window=3)
    assert calm == rough and funnel.unanswered == 0


def test_wrong_ids_and_refusals_are_no_labels(ask) -> None:
    def wrong(body: dict[str, Any]) -> str | Says:
        content = body["messages"][1]["content"]
        if WRONG[0] in content:
            return json.dumps({"P9": "no"})
        return Says("", refusal="no") if WRONG[1] in content else play(body)

    with Server(wrong) as server:
        (row,), funnel, asker = verified(ask, server.url, [TrainingRow("感冒怎么办", ())], batch=1)
    assert funnel.unanswered == 2 == asker.failed and set(row.neg) == {WRONG[2]}


def test_a_stopped_run_leaves_no_file_and_goes_on(ask, tmp_path) -> None:
    rows = [TrainingRow(f"感冒第{number}天怎么办", ()) for number in range(6)]
    out = tmp_path / "rows.jsonl.gz"
    with Server(play) as server:
        with pytest.raises(Unfinished):
            write_training_rows(
                out, verify_rows(rows, fixed, ask(server.url, calls=4), Verification(batch=3, window=2))
            )
        assert not out.exists() and server.total == 4
        made = write_training_rows(out, verify_rows(rows, fixed, ask(server.url), Verification(batch=3, window=2)))
        assert made == 6 == len(list(read_training_rows(out)))
        assert server.total == 12 and server.repeated == 0


def test_memory_is_bounded_by_the_window(ask) -> None:
    taken = 0

    def endless() -> Iterator[TrainingRow]:
        nonlocal taken
        while True:
            taken += 1
            yield TrainingRow(f"感冒第{taken}天怎么办", ())

    with Server(play) as server:
        stream = verify_rows(endless(), fixed, ask(server.url), Verification(window=3))
        assert [next(stream).query for _ in range(4)] == [f"感冒第{n}天怎么办" for n in range(1, 5)]
        assert taken == 6


def test_over_a_real_index(ask, tmp_path) -> None:
    def about_stones(body: dict[str, Any]) -> str:
        passages = re.findall(r"【(P\d+)】\n(.+)", body["messages"][1]["content"])
        return json.dumps({label: "yes" if "结石" in text else "no" for label, text in passages})

    pair = Pair.load(make_pair(tmp_path / "pair"))
    with Index.create(tmp_path / "index", pair=pair) as index, Server(about_stones) as server:
        index.add([Document(id_, text, title) for id_, title, text, _ in NOTES])
        rows = [TrainingRow("尿酸结石怎么溶解", ())]
        (row,) = verify_rows(rows, search_index(index, mode="hybrid"), ask(server.url), Verification(depth=5))
    assert len(row.pos) == 1 and "结石" in row.pos[0] and len(row.neg) == 4


def test_a_dry_run_calls_nobody(ask) -> None:
    asker = ask("http://127.0.0.1:9/v1", dry_run=True)
    list(verify_rows([TrainingRow("感冒怎么办", ())], fixed, asker, Verification(batch=2)))
    assert asker.steps["verify"].calls == 3


def test_what_is_verified_is_read_in_every_form(tmp_path) -> None:
    lines = ['{"query": "甲", "pos": ["乙"]}', '{"text": " 丙 "}', '{"query": "丁", "neg": ["戊"]}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    read = list(read_queries(tmp_path / "a.jsonl"))
    assert read == [TrainingRow("甲", ("乙",)), TrainingRow("丙", ()), TrainingRow("丁", (), ("戊",))]
    (tmp_path / "b.jsonl").write_text('{"query": ""}\n', encoding="utf-8")
    with pytest.raises(CurateError, match=r"b\.jsonl:1: no query"):
        list(read_queries(tmp_path / "b.jsonl"))
    with pytest.raises(CurateError, match="at least 1"):
        Verification(depth=0)


def test_the_sample_collections_queries_are_read() -> None:
    from suwen.corpora.sample_collection import sample_path

    assert len(list(read_queries(Path(sample_path())))) == 60
