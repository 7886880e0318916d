"""Contrastive training on rows: what is masked, that caching changes nothing, and that it learns."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))

from rows_on_disk import written_table as table_of

from suwen.corpora.training_rows import TrainingRow
from suwen.encoders.prompts import Prompts
from suwen.training.loop.batches import OneSourceBatches
from suwen.training.tasks.align_task import AlignLosses, AlignTask, Part
from suwen.training.tasks.pair_task import Asker, PairLosses, PairTask, right_columns
from suwen.training.tasks.row_tables import PairTable, put
from suwen.training.tasks.towers import FrozenTower


class Bag:
    """A small real tower: a trained table of vectors, in one piece, or in pieces of so many rows."""

    def __init__(self, count: int, width: int = 8, seed: int = 0, piece: int = 100) -> None:
        self.piece = piece
        self.table = torch.nn.Embedding(count, width)
        torch.nn.init.normal_(self.table.weight, generator=torch.Generator().manual_seed(seed))

    def vectors(self, rows):
        return torch.nn.functional.normalize(self.table(torch.from_numpy(rows)), dim=-1)

    def pieces(self, rows):
        parts = [rows[start : start + self.piece] for start in range(0, len(rows), self.piece)]
        return [lambda part=part: self.vectors(part) for part in parts]


def rows() -> dict[str, list[TrainingRow]]:
    return {
        "a": [TrainingRow(f"q{n}", (f"d{n}",), (f"d{(n + 3) % 12}", f"x{n}")) for n in range(12)],
        "b": [TrainingRow("q0", ("d0",)), TrainingRow("q0", ("d5",)), TrainingRow("q1", ("d1", "d7"))],
    }


def right_of(table: PairTable, query: int) -> list[int]:
    """The documents that are right for a query, by their words."""
    return np.flatnonzero(np.isin(table.words, table.right[query])).tolist()


def task(table: PairTable, *, piece: int = 100, losses: PairLosses | None = None, seed: int = 0) -> PairTask:
    queries, documents = Bag(len(table.queries), seed=1, piece=piece), Bag(len(table.documents), seed=2, piece=piece)
    modules = [(queries.table, 1.0), (documents.table, 1.0)]
    batches = OneSourceBatches(table.sizes(), 4, seed)
    chosen = losses or PairLosses(0.1, dimensions=(4, 8), backward_weight=0.3)
    return PairTask(table, queries, documents, modules, batches, chosen, negatives=1, seed=seed)


def test_every_text_has_one_id_and_every_right_document_is_known():
    table = table_of(rows())
    assert len(table.queries) == 12 and len(set(table.documents)) == len(table.documents)
    right = {table.documents[id_] for id_ in right_of(table, table.queries.index("q0"))}
    assert right == {"d0", "d5"}


def test_a_symmetric_row_puts_the_prompt_on_both_sides():
    alike, about = "找意思相近的话", "找资料"
    table = table_of(
        {
            "pairs": [TrainingRow("头疼", ("头痛",), ("牙痛",), prompt=alike, type="symmetric_sts")],
            "answers": [TrainingRow("头疼", ("头痛",), ("多喝水",), prompt=about, type="retrieval")],
        }
    )
    prompts = Prompts.filled("{instruction}：", "文：", "默认")
    assert list(put(table.queries, "query", table.instructions, prompts)) == [f"{alike}：头疼", f"{about}：头疼"]
    put_documents = list(put(table.documents, "document", table.document_instructions, prompts))
    assert put_documents == [f"{alike}：头痛", f"{alike}：牙痛", "文：头痛", "文：多喝水"]
    assert list(table.bare) == ["头痛", "多喝水"]
    # The same words are right in either form.
    assert [right_of(table, query) for query in (0, 1)] == [[0, 2], [0, 2]]
    plain = Prompts(query="问：", document="文：")
    assert list(put(table.queries, "query", table.instructions, plain)) == ["问：头疼", "问：头疼"]
    assert put(table.documents, "document", table.document_instructions, plain)[:3] == [
        "问：头痛",
        "问：牙痛",
        "文：头痛",
    ]


TABLE = table_of(rows())


@given(st.lists(st.integers(0, 11), min_size=1, max_size=6), st.lists(st.integers(0, 23), min_size=1, max_size=12))
def test_right_columns_are_those_a_plain_loop_finds(queries, documents):
    table = TABLE
    documents = [id_ % len(table.documents) for id_ in documents]
    found = right_columns(table, np.array(queries), np.array(documents))
    expected = [[document in right_of(table, query) for document in documents] for query in queries]
    assert found.tolist() == expected


@pytest.mark.parametrize("scaler", [None, torch.amp.GradScaler("cpu", init_scale=64.0)])
def test_stage_one_in_the_mix_adds_its_weight_of_its_gradients(scaler):
    table = table_of(rows())

    def mixed(keep: float) -> tuple[dict, torch.Tensor]:
        found = task(table, losses=PairLosses(0.1, keep_alignment=keep))
        places = np.arange(len(table.queries))
        targets = FrozenTower(Bag(len(table.queries), seed=7).vectors(places).detach().numpy(), "cpu")
        part = Part("query", found.queries, targets, places, places, 1.0)
        found._alignment = AlignTask(found.queries.table, [part], 6, AlignLosses(), seed=3)
        found.scaler = scaler
        values = found.step(0)
        return values, found.queries.table.weight.grad

    (none, without), (half, with_half), (whole, with_whole) = mixed(0.0), mixed(0.5), mixed(1.0)
    assert "alignment" not in none
    torch.testing.assert_close(whole["alignment"], 2 * half["alignment"])
    torch.testing.assert_close(none["loss"], whole["loss"])
    torch.testing.assert_close(with_whole - without, 2 * (with_half - without))
    assert float((with_half - without).abs().sum()) > 0


def test_caching_gives_the_same_loss_and_gradients():
    table = table_of(rows())
    plain, cached = task(table), task(table, piece=2)
    for step in range(3):
        left, right = plain.step(step), cached.step(step)
        assert torch.allclose(torch.as_tensor(left["loss"]), torch.as_tensor(right["loss"]), rtol=1e-5)
    for one, other in zip(plain.groups()[0]["params"], cached.groups()[0]["params"], strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-5, atol=1e-7)


def test_a_right_document_of_another_row_costs_nothing():
    table = table_of({"b": [TrainingRow("q0", ("d0",)), TrainingRow("q0", ("d5",))]})
    found = task(table, losses=PairLosses(0.1)).step(0)
    assert float(found["loss"]) == 0.0


def test_training_brings_queries_to_their_documents():
    table = table_of({"a": rows()["a"]})
    trained = task(table, losses=PairLosses(0.1, learn_temperature=True))
    optimiser = torch.optim.Adam([p for group in trained.groups() for p in group["params"]], lr=0.05)
    losses = []
    for step in range(60):
        optimiser.zero_grad()
        found = trained.step(step)
        optimiser.step()
        losses.append(float(found["loss"]))
    assert np.mean(losses[-6:]) < 0.2 * np.mean(losses[:6])
    assert float(found["temperature"]) != 0.1


def test_weights_come_back_from_their_state():
    table = table_of(rows())
    one, other = task(table), task(table, seed=5)
    with torch.no_grad():
        one.queries.table.weight.add_(1.0)
    other.load_state({name: value.clone() for name, value in one.state().items()})
    assert torch.equal(other.queries.table.weight, one.queries.table.weight)


def test_the_description_names_the_source_and_a_query():
    table = table_of({"a": rows()["a"]})
    assert "source a, 4 rows" in task(table).describe(0)


def test_frozen_vectors_are_handed_out_as_they_are_stored():
    stored = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float16)
    for resident in (torch.from_numpy(stored), None):
        tower = FrozenTower(stored, "cpu")
        tower._resident = resident
        vectors = tower.vectors(np.array([3, 0]))
        assert vectors.numpy().tolist() == stored[[3, 0]].astype(np.float32).tolist()


def test_equal_texts_in_a_batch_are_no_negatives_of_each_other():
    """Two queries with one passage: each sees it twice, and once as its own; nothing is left to tell apart."""
    table = table_of({"a": [TrainingRow("q0", ("the same",)), TrainingRow("q1", ("the same",))]})
    assert float(task(table, losses=PairLosses(0.1)).step(0)["loss"]) == 0
    other = table_of({"a": [TrainingRow("q0", ("the same",)), TrainingRow("q1", ("another",))]})
    assert float(task(other, losses=PairLosses(0.1)).step(0)["loss"]) > 0


def test_a_row_has_its_own_negative_and_the_positives_of_the_others() -> None:
    own = {"a": [TrainingRow(f"q{n}", (f"d{n}",), (f"x{n}",)) for n in range(6)]}
    table = table_of(own)
    queries, documents = Bag(6, seed=1), Bag(len(table.documents), seed=2)

    def loss(share: bool) -> float:
        modules = [(queries.table, 1.0), (documents.table, 1.0)]
        batches, losses = OneSourceBatches(table.sizes(), 6, 0), PairLosses(0.05, share_negatives=share)
        return float(PairTask(table, queries, documents, modules, batches, losses, negatives=1).step(0)["loss"])

    asked = torch.nn.functional.normalize(queries.table.weight.detach(), dim=-1)
    given = torch.nn.functional.normalize(documents.table.weight.detach(), dim=-1)
    place = {text: at for at, text in enumerate(table.documents)}
    said, every = [], []
    for at, query in enumerate(table.queries):
        scores = {text: torch.exp(asked[at] @ given[place[text]] / 0.05) for text in table.documents}
        number, right = query[1:], scores[f"d{query[1:]}"]
        positives = sum(value for text, value in scores.items() if text.startswith("d"))
        said.append(-torch.log(right / (positives + scores[f"x{number}"])))
        every.append(-torch.log(right / sum(scores.values())))
    assert loss(False) == pytest.approx(float(torch.stack(said).mean()), rel=1e-4)
    assert loss(True) == pytest.approx(float(torch.stack(every).mean()), rel=1e-4)


def stored(count: int, width: int, seed: int) -> FrozenTower:
    """Vectors of length one that do not learn."""
    drawn = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    return FrozenTower(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), "cpu")


@pytest.mark.parametrize("share", [0.0, 0.7])
def test_another_encoder_asks_beside_over_documents_cut_to_its_width_and_come_half_way(share: float) -> None:
    table = table_of({"a": [TrainingRow(f"q{n}", (f"d{n}",), (f"x{n}",)) for n in range(6)]})
    asks, met = stored(6, 4, seed=5), stored(len(table.documents), 4, seed=6)

    def step(asker: Asker | None) -> tuple[float, Bag]:
        queries, documents = Bag(6, seed=1), Bag(len(table.documents), seed=2)
        modules, batches = [(queries.table, 1.0), (documents.table, 1.0)], OneSourceBatches(table.sizes(), 6, 0)
        losses = PairLosses(0.05, share_negatives=False)
        found = PairTask(table, queries, documents, modules, batches, losses, negatives=1, asker=asker)
        return float(found.step(0)["loss"]), documents

    alone, plain = step(None)
    both, documents = step(Asker(asks, met if share else None, share))
    given = torch.nn.functional.normalize(plain.table.weight.detach()[:, :4], dim=-1)
    if share:
        given = torch.nn.functional.normalize(given + share * met.vectors(np.arange(len(given))), dim=-1)
    place = {text: at for at, text in enumerate(table.documents)}
    expected = []
    for at, query in enumerate(table.queries):
        scores = torch.exp(given @ asks.vectors(np.array([at]))[0] / 0.05)
        # Its own negative, and the right documents of the others.
        seen = [place[f"d{n}"] for n in range(6)] + [place[f"x{query[1:]}"]]
        expected.append(-torch.log(scores[place[f"d{query[1:]}"]] / scores[seen].sum()))
    assert both - alone == pytest.approx(float(torch.stack(expected).mean()), rel=1e-3)
    assert not torch.allclose(plain.table.weight.grad, documents.table.weight.grad)


def test_documents_learn_to_be_found_by_who_asks_beside() -> None:
    table = table_of({"a": rows()["a"]})
    found = task(table, losses=PairLosses(0.1))
    asks = stored(len(table.queries), 8, seed=5)
    found._asker = Asker(asks)
    optimiser = torch.optim.Adam([p for group in found.groups() for p in group["params"]], lr=0.05)

    def first() -> float:
        """How often the right document stands first for it."""
        given = torch.nn.functional.normalize(found.documents.table.weight.detach(), dim=-1)
        best = (asks.vectors(np.arange(len(table.queries))) @ given.T).argmax(dim=1).tolist()
        return float(np.mean([at in right_of(table, query) for query, at in enumerate(best)]))

    before = first()
    for step in range(200):
        optimiser.zero_grad()
        found.step(step)
        optimiser.step()
    assert before < 0.4 and first() > 0.8
