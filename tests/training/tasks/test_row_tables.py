"""Rows on disk: the same ids, masks and batches as in memory, made once, and gone on with after a crash."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))

from rows_on_disk import MemoryTable, memory_table, written_table

import suwen.training.tasks.row_tables as row_tables
from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate.leakage import HeldOut, LeakageError
from suwen.training.loop.batches import OneSourceBatches
from suwen.training.tasks.pair_task import PairLosses, PairTask, right_columns
from suwen.training.tasks.row_tables import drawn_rows, read_source

TEXTS = st.sampled_from(["头疼", "头痛", "发烧", "咳嗽", "牙痛", "多喝水", "看医生", "a", "b c", "𠮷"])
ROWS = st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=3).map(tuple), st.lists(TEXTS, max_size=4).map(tuple)).map(
    lambda parts: TrainingRow(*parts)
)


@st.composite
def sources(draw: st.DrawFn) -> dict[str, list[TrainingRow]]:
    """Sources of plain rows, of rows with instructions, and of symmetric ones."""
    found = {}
    for name in draw(st.lists(st.sampled_from(["z", "a", "m"]), min_size=1, max_size=3, unique=True)):
        prompts = draw(st.sampled_from([("",), ("找资料：", "找答案：")]))
        kind = draw(st.sampled_from(["", "symmetric_sts"]))
        rows = draw(st.lists(ROWS, min_size=2, max_size=12))
        found[name] = [row._replace(prompt=draw(st.sampled_from(prompts)), type=kind) for row in rows]
    return found


def drawn_in_memory(table: MemoryTable, batches: OneSourceBatches, step: int, negatives: int, seed: int) -> tuple:
    """The ids of a step as release 0.1.0 drew them from rows in memory."""
    chosen = batches.rows(step)
    rng = np.random.default_rng((seed, step, 0, 7))
    rows = [table.sources[chosen.source][place] for place in chosen.positions]
    right = [row[1][int(rng.integers(len(row[1])))] for row in rows]
    wrong = []
    for _, _, ids in rows:
        if negatives <= 0 or len(ids) <= negatives:
            wrong += ids[: max(negatives, 0)]
        else:
            wrong += [ids[place] for place in rng.choice(len(ids), negatives, replace=False)]
    return [row[0] for row in rows], right + wrong


@settings(max_examples=40)
@given(sources(), st.booleans(), st.integers(0, 99), st.integers(0, 3), st.sampled_from([None, 3, 7]), st.data())
def test_batches_are_those_of_rows_in_memory(given_rows, prompts, seed, negatives, limit, data):
    shard = data.draw(st.integers(1, 7), "rows in a shard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_tables, "_SHARD_ROWS", shard)
        patch.setattr("suwen.durable.sync", lambda path: None)  # no power cut is tried here
        table = written_table(given_rows, prompts=prompts)
    memory = memory_table(given_rows, prompts=prompts)
    assert (list(table.queries), list(table.instructions)) == (memory.queries, memory.instructions)
    assert (list(table.documents), list(table.document_instructions)) == memory[2:4]
    assert table.sizes() == {name: len(rows) for name, rows in memory.sources.items()}
    weights = {name: data.draw(st.sampled_from([0.5, 1.0, 2.0])) for name in given_rows}
    try:
        options = {"batch": 3, "seed": seed, "limit": limit, "weights": weights}
        ours, theirs = (OneSourceBatches(sizes, **options) for sizes in (table.sizes(), table.sizes()))
        assert ours.per_epoch
    except Exception:  # too few rows for a batch, in either way
        return
    module = torch.nn.Linear(1, 1)
    task = PairTask(table, None, None, [(module, 1.0)], ours, PairLosses(), negatives=negatives, seed=seed)
    for step in range(2 * ours.per_epoch):
        batch = task.draw(step)
        queries, documents = drawn_in_memory(memory, theirs, step, negatives, seed)
        assert (batch.queries.tolist(), batch.documents.tolist()) == (queries, documents)
        masked = right_columns(table, batch.queries, batch.documents).tolist()
        assert masked == [[document in memory.right[query] for document in documents] for query in queries]
        assert task.describe(step).startswith("source ")


def some_rows(count: int) -> list[TrainingRow]:
    return [TrainingRow(f"问题{n}", (f"回答{n}",), (f"回答{n + 1}",)) for n in range(count)]


def test_finished_shards_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_tables, "_SHARD_ROWS", 2)
    file, made = tmp_path / "rows.jsonl", []
    write_training_rows(file, some_rows(7))
    shard = row_tables._shard

    def counted(rows: list[TrainingRow], prompts: bool) -> dict:
        made.append([row.query for row in rows])
        if len(made) == 3:
            raise KeyboardInterrupt
        return shard(rows, prompts)

    monkeypatch.setattr(row_tables, "_shard", counted)
    with pytest.raises(KeyboardInterrupt):
        read_source(file, None, tmp_path / "shards")
    shards = read_source(file, None, tmp_path / "shards")
    assert made[2:] == [["问题4", "问题5"], ["问题4", "问题5"], ["问题6"]]
    assert read_source(file, None, tmp_path / "shards") == shards and len(made) == 5
    table = row_tables.table_of({"rows": shards})
    assert list(table.queries) == [f"问题{n}" for n in range(7)]
    assert [table.documents[id_] for id_ in table.sources["rows"].negatives[6]] == ["回答7"]
    write_training_rows(file, some_rows(3))
    assert len(read_source(file, None, tmp_path / "shards")) == 2, "another content has shards of its own"


def test_shards_of_rows_that_leak_are_refused_each_time(tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    write_training_rows(file, some_rows(4))
    for _ in range(2):
        with pytest.raises(LeakageError, match=r"rows\.jsonl: 1 texts"):
            read_source(file, HeldOut(["问题3"]), tmp_path / "shards")
    assert len(read_source(file, HeldOut(["别的"]), tmp_path / "shards")) == 1
    with pytest.raises(LeakageError):  # shards that are there are no answer to another held-out set
        read_source(file, HeldOut(["问题0"]), tmp_path / "shards")


def test_no_rows_at_all_are_refused_with_the_reason(tmp_path: Path):
    (tmp_path / "empty.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(row_tables.DataError, match="there are no rows in empty"):
        row_tables.table_of({"empty": read_source(tmp_path / "empty.jsonl", None, tmp_path / "shards")})


def test_a_share_of_rows_is_the_same_in_every_run_and_part_of_a_larger_one():
    rows = {"a": [TrainingRow(f"q{n}", (f"d{n}", f"e{n}"), (f"x{n}",)) for n in range(40)]}
    table = written_table(rows)

    def drawn(share: float) -> list[tuple[int, ...]]:
        some = drawn_rows(table, share).sources["a"]
        return [(query, *some.positives[row], *some.negatives[row]) for row, query in enumerate(some.queries.tolist())]

    whole = drawn(1.0)
    assert drawn(0.25) == drawn(0.25) and len(drawn(0.25)) == 10
    assert set(drawn(0.25)) < set(drawn(0.5)) < set(whole) and len(whole) == 40
    assert [row[0] for row in drawn(0.25)] == sorted(row[0] for row in drawn(0.25)) != list(range(10))
    assert len(drawn(0.001)) == 2
    beside = drawn_rows(written_table({"b": rows["a"], "a": rows["a"], "A": rows["a"]}), 0.25).sources
    asked = [[table.queries[query] for query in beside[name].queries] for name in ("a", "b")]
    assert asked[0] == [table.queries[row[0]] for row in drawn(0.25)] != asked[1], "a variant may have other sources"
