"""What indexing is foreseen to take, and when the fastest tier goes first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.retrieve import foresight as module
from suwen.retrieve.foresight import Foresight, foresee, in_turn
from suwen.retrieve.retriever import Index


@pytest.fixture
def index(tiered: Pair, tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "index", pair=tiered) as index:
        yield index


def some(count: int) -> list[Document]:
    return [Document(f"d{n}", f"number {n} page. " * (1 + 40 * (n % 3)), "题目") for n in range(count)]


def test_passages_are_about_as_many_as_there_will_be(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 1)
    seen = foresee(index.engine, index.pair, some(200), index.pair.tiers)
    index.add(some(200))
    passages = index.stats().passages
    assert seen.documents == 200 and passages > 200
    assert 0.7 * passages <= seen.passages <= 1.4 * passages
    assert set(seen.seconds) == set(index.pair.tiers) and min(seen.seconds.values()) > 0


def test_what_else_the_machine_does_takes_no_time(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    walls, works = iter([0.0, 640.0]), iter([0.0, 0.64])
    clock = SimpleNamespace(perf_counter=lambda: next(walls), process_time=lambda: next(works))
    monkeypatch.setattr(module, "_FEW", 1)
    monkeypatch.setattr(module, "time", clock)
    seen = foresee(index.engine, index.pair, some(200), ["static"])
    assert seen.seconds["static"] == pytest.approx(seen.passages * (module._STORING + 0.64 / module._PROBED))


def test_what_is_there_already_takes_no_time(index: Index) -> None:
    index.add(some(50))
    assert foresee(index.engine, index.pair, some(60), ["static"])[:2] == (60, foresee_new(index))
    assert foresee(index.engine, index.pair, [], ["static"]) == Foresight(0, 0, {})


def foresee_new(index: Index) -> int:
    return foresee(index.engine, index.pair, some(60)[50:], ["static"]).passages


def test_the_fastest_goes_first_where_the_usual_one_takes_long(index: Index) -> None:
    pair = index.pair
    usual = next(tier for tier in pair.tiers if tier != pair.fastest)
    slow, quick = (Foresight(9, 9, {usual: seconds}) for seconds in (module.LONG + 1, module.LONG))
    assert in_turn(index.engine, pair, usual, slow) == [pair.fastest, usual]
    assert in_turn(index.engine, pair, usual, quick) == [usual]
    assert in_turn(index.engine, pair, pair.fastest, Foresight(9, 9, {pair.fastest: 1e9})) == [pair.fastest]
    index.add(some(3), encoder=pair.encoder(usual))
    assert in_turn(index.engine, pair, usual, slow) == [usual], "nothing is encoded by a worse encoder than before"
