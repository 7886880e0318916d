"""What the fastest tier encoded is encoded again by the usual one, of what the index holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.retrieve import second_pass as module
from suwen.retrieve.retriever import Index
from suwen.retrieve.second_pass import second_pass, usual_tier

DOCUMENTS = [Document(f"d{number}", f"number {number} page. " * 60) for number in range(9)]


@pytest.fixture
def index(tiered: Pair, tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "index", pair=tiered) as index:
        index.add(DOCUMENTS, encoder=tiered.encoder(tiered.fastest))
        yield index


def test_an_index_left_to_the_pair_is_encoded_again_bit_by_bit(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_AT_ONCE", 4)
    index.engine.remember(tier="")
    assert usual_tier(index) is None  # of this pair the fastest tier is the usual one
    usual = next(tier for tier in index.pair.tiers if tier != index.pair.fastest)
    monkeypatch.setattr(module, "tier_at_once", lambda pair: usual)
    assert usual_tier(index) == usual
    seen: list[tuple[int, int]] = []
    assert second_pass(index, progress=lambda *done: seen.append(done), stop=lambda: len(seen) == 1) == 4
    assert set(index.stats().encoders) == {usual, index.pair.fastest} and usual_tier(index) == usual
    assert second_pass(index) == 5
    assert list(index.stats().encoders) == [usual] and usual_tier(index) is None and second_pass(index) == 0
    with Index.create(tmp_path / "other", pair=index.pair) as other:
        other.add(DOCUMENTS, encoder=index.pair.encoder(usual))
        found, wanted = (
            [(hit.id, hit.score) for hit in one.search("number 7 page", 5, mode="dense")] for one in (index, other)
        )
    assert found == wanted


@pytest.mark.parametrize("kept", [None, "fastest"])
def test_an_index_that_may_have_been_built_with_the_fastest_stays(
    index: Index, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = next(tier for tier in index.pair.tiers if tier != index.pair.fastest)
    monkeypatch.setattr(module, "tier_at_once", lambda pair: usual)
    if kept:
        index.engine.remember(tier=index.pair.fastest)
    assert usual_tier(index) is None and second_pass(index) == 0
