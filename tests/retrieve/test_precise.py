"""Precise mode: the first hits in the reranker's order, within its time, the same whatever page is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rerankers_on_the_spot import make_reranker
from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.encoders.reranker import Gain
from suwen.retrieve.precise import NoReranker
from suwen.retrieve.ranking import SearchError
from suwen.retrieve.retriever import Index

QUERY = "肾结石要多喝水吗"


@pytest.fixture
def precise(tiered: Pair, notes: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The notes, and a reranker under which every character 压 counts."""
    monkeypatch.setenv("SUWEN_RERANKER", str(make_reranker(tmp_path / "reranker", {"压": 1.0})))
    with Index.create(tmp_path / "index", pair=tiered) as made:
        made.add(notes, size=24, overlap=0)
        yield made


def worth(text: str) -> int:
    return text.count("压")


def test_first_hits_stand_in_the_order_of_the_reranker(precise: Index) -> None:
    plain, read = precise.search(QUERY, k=20), precise.search(QUERY, k=20, precise=True, explain=True)
    assert {hit.id for hit in plain} == {hit.id for hit in read}
    order = [worth(f"{hit.title}{hit.text}") for hit in read]
    assert order == sorted(order, reverse=True) and order[0] > 0 == order[-1]
    assert [hit.explanation.precise for hit in read if hit.explanation] == [float(one) for one in order]
    same = [hit.id for hit in plain if worth(f"{hit.title}{hit.text}") == 0]
    assert [hit.id for hit in read if worth(f"{hit.title}{hit.text}") == 0] == same, "equal ones keep their order"
    assert read.timings["rerank"] > 0 and any("read again by worth" in note for note in read.notes)
    assert {hit.id: hit.confidence for hit in read} == {hit.id: hit.confidence for hit in plain}


def test_pages_are_cut_from_one_order(precise: Index) -> None:
    whole = [hit.id for hit in precise.search(QUERY, k=8, precise=True)]
    pages = [hit.id for offset in (0, 3, 6) for hit in precise.search(QUERY, k=3, offset=offset, precise=True)]
    assert pages[:8] == whole


def test_what_there_is_no_time_for_stays_behind(precise: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr("suwen.encoders.reranker.time.perf_counter", lambda: float(next(clock)))
    read = precise.search(QUERY, k=5, precise=True, budget_ms=3000)
    assert any("until its 3000 ms were over" in note for note in read.notes)


def test_it_says_what_is_missing_and_what_does_not_go_together(
    precise: Index, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SearchError, match="leave out sort"):
        precise.search(QUERY, sort="year", precise=True)
    monkeypatch.delenv("SUWEN_RERANKER")
    with pytest.raises(NoReranker, match="SUWEN_RERANKER"):
        index.search(QUERY, precise=True)


def test_where_it_loses_the_hybrid_order_stays(
    tiered: Pair, notes: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"dev": Gain(language="zh", hybrid=40.0, precise=39.0)}
    monkeypatch.setenv("SUWEN_RERANKER", str(make_reranker(tmp_path / "reranker", {"压": 1.0}, measured=lost)))
    with Index.create(tmp_path / "index", pair=tiered) as made:
        made.add(notes)
        read = made.search(QUERY, precise=True)
        assert [hit.id for hit in read] == [hit.id for hit in made.search(QUERY)]
    assert any("is not used for Chinese queries" in note for note in read.notes)
