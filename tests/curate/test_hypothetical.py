"""Choosing among hypothetical documents; from unlabelled documents to rows, with a real server and encoder."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suwen.corpora.training_rows import read_training_rows
from suwen.curate import CurateError
from suwen.curate.hypothetical import choose, write_rewrites
from suwen.curate.leakage import HeldOut
from suwen.encoders.pair import Pair
from suwen.hyde.writing import Writer
from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from server import Body, Server

DOCUMENTS = [
    "高血压患者每日食盐应少于五克，并且坚持监测血压。",
    "布洛芬可以退烧和止痛，但孕晚期禁用。",
    "糖尿病患者多饮多尿，体重下降，要查空腹血糖。",
    "骨折后一般要固定六周，复查以后再下地负重。",
]


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


@given(st.lists(st.integers(0, 3), max_size=15), st.sampled_from(["document", "mean"]), st.integers(0, 50))
def test_the_chosen_one_ranks_no_worse_than_any_other(owners: list[int], by: str, seed: int) -> None:
    dice = np.random.default_rng(seed)
    queries, pool = unit(dice.normal(size=(4, 5))), unit(dice.normal(size=(30, 5)))
    candidates, targets = unit(dice.normal(size=(len(owners), 5))), dice.integers(30, size=4)
    found = choose(queries, candidates, owners, targets, pool, by=by)
    for number, chosen in enumerate(found):
        rows = [row for row, owner in enumerate(owners) if owner == number]
        asked = {row: candidates[row] if by == "document" else candidates[row] + queries[number] for row in rows}
        # One product for all: the target's score by itself may be rounded otherwise, and would stand under its own.
        scores = {row: pool.astype(np.float64) @ one for row, one in asked.items()}
        ranks = {row: 1 + sum(own > own[targets[number]] + 1e-6) for row, own in scores.items()}
        if chosen is None:
            assert not rows
        else:
            best = min(ranks.values())
            firsts = [row for row in rows if ranks[row] == best]
            assert (chosen.candidate, chosen.rank, chosen.worst) == (firsts[0], best, max(ranks.values()))
            assert chosen.tied == (len(firsts) > 1)


def test_a_duplicate_of_the_target_takes_no_rank_from_it() -> None:
    pool = unit(np.array([[1.0, 0.1], [1.0, 0.1], [0.0, 1.0]]))
    chosen = choose(pool[:1], pool[:1], [0], [1], pool)[0]
    assert chosen is not None and chosen.rank == 1


def test_what_brings_the_target_nowhere_near_is_left_out() -> None:
    pool = np.eye(4, dtype=np.float32)
    assert choose(pool[:1], pool[2:3], [0], [2], pool, depth=1)[0] is not None
    assert choose(pool[:1], unit(np.array([[1.0, 0.5, -1.0, 0.0]])), [0], [2], pool, depth=1) == [None]


def play(body: Body) -> str:
    asked = body["messages"][-1]["content"]
    if "问题：" not in asked:  # a query of a document
        return f"关于{re.search('资料：(.{2,4})', asked)[1]}我该知道什么？"
    target = asked.rsplit("资料：", 1)[1].strip()
    number = DOCUMENTS.index(target)
    # One draw in three speaks of the right matter; the others of the next one.
    right = body["seed"] % 3 == 2
    about = DOCUMENTS[number if right else (number + 1) % len(DOCUMENTS)]
    return f"一般来说，{about[:12]}，第{body['seed'] % 3}种说法，具体情况请结合检查结果。"


@pytest.fixture
def llm(tmp_path: Path):
    with Server(play) as server:
        config = LLMConfig.model_validate(
            {
                "endpoints": {"here": {"base_url": server.url}},
                "models": {"m": {"endpoint": "here", "model": "scripted", "seed": 0}},
            }
        )
        with LLM.open(config, tmp_path / "r.db") as llm:
            yield llm


def test_from_documents_to_rows(llm: LLM, tmp_path: Path) -> None:
    tier = Pair.load().encoder("static")
    held_out = HeldOut()
    held_out.add(DOCUMENTS[3])
    counts = write_rewrites(
        [*DOCUMENTS, DOCUMENTS[0], " "],
        tmp_path / "rows.jsonl.gz",
        Writer(llm, "m"),
        tier.encode_queries,
        tier.encode_documents,
        candidates=3,
        held_out=held_out,
    )
    assert (counts["repeated_or_empty"], counts["held_out"], counts["rewrites"]) == (2, 1, 3)
    rows = list(read_training_rows(tmp_path / "rows.jsonl.gz"))
    assert [row.pos[0] for row in rows] == DOCUMENTS[:3] and all(row.query.startswith("关于") for row in rows)
    with gzip.open(tmp_path / "rows.jsonl.gz", "rt", encoding="utf-8") as lines:
        chosen = [json.loads(line) for line in lines]
    # What speaks of the right matter was chosen, wherever it makes a difference.
    assert all("第2种" in one["rewrite_query"] and one["rank"] == 1 for one in chosen)
    assert counts["better_than_the_worst"] == 3


def test_too_few_documents_are_refused(llm: LLM, tmp_path: Path) -> None:
    tier = Pair.load().encoder("static")
    with pytest.raises(CurateError, match="fewer than two"):
        write_rewrites(
            DOCUMENTS[:1] * 3, tmp_path / "r.jsonl", Writer(llm, "m"), tier.encode_queries, tier.encode_documents
        )
