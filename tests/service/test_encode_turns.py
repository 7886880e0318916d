"""Batches are encoded in turns: whole and in order, with room for others in between, and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from suwen.encoders.pair import Pair
from suwen.retrieve.retriever import Index
from suwen.service import encode_turns
from suwen.service.encode_turns import Encoded, Encoding, tokens_read
from suwen.service.holder import Holder
from suwen.service.places import Shed
from suwen.service.problems import Problem
from suwen.service.serve_settings import ServeSettings

TEXTS = [f"肾结石患者第{number}天应饮水两升以上。" for number in range(60)]


@pytest.fixture(scope="module")
def pair(static_pair: Path) -> Pair:
    return Pair.load(static_pair)


@pytest.fixture
def holding(tmp_path: Path, static_pair: Path) -> Callable[..., Holder]:
    Index.create(tmp_path / "notes", pair=static_pair).close()

    def make(**changes: object) -> Holder:
        holder = Holder(ServeSettings(index=tmp_path / "notes", **changes))
        holder.open()
        assert holder.ready
        return holder

    return make


async def stopped(holder: Holder, work: object) -> object:
    try:
        return await work
    finally:
        await holder.stop()


@pytest.mark.parametrize("turn", [0.0, 0.002, 10.0])
def test_turns_change_nothing_about_the_vectors(
    holding: Callable[..., Holder], pair: Pair, monkeypatch: pytest.MonkeyPatch, turn: float
) -> None:
    monkeypatch.setattr(encode_turns, "TURN", turn)
    holder = holding()
    found = asyncio.run(stopped(holder, Encoding(holder).encode(TEXTS, "static", "document")))
    np.testing.assert_array_equal(found.vectors, pair.encoder().encode_documents(TEXTS))
    assert found.tokens == sum(pair.count_tokens(TEXTS))


@pytest.mark.parametrize("turn", [0.0, 10.0])
def test_short_texts_come_back_whole_too(
    holding: Callable[..., Holder], pair: Pair, monkeypatch: pytest.MonkeyPatch, turn: float
) -> None:
    """The first batch loads the tier, the second is looked up on the spot."""
    monkeypatch.setattr(encode_turns, "TURN", turn)
    holder = holding()
    encoding = Encoding(holder)

    async def twice() -> list[Encoded]:
        return [await encoding.encode(TEXTS[:3], "static", "query") for _ in range(2)]

    assert sum(map(len, TEXTS[:3])) <= encode_turns.AT_ONCE
    for found in asyncio.run(stopped(holder, twice())):
        np.testing.assert_array_equal(found.vectors, pair.encoder().encode_queries(TEXTS[:3]))


def test_searches_and_short_batches_do_not_wait_for_a_long_one(
    holding: Callable[..., Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode_turns, "TURN", 0.0)
    holder = holding(readers=1)
    encoding = Encoding(holder)
    ended: list[str] = []

    async def one(name: str, work: Awaitable[object]) -> None:
        await work
        ended.append(name)

    async def three() -> None:
        long = asyncio.create_task(one("long", encoding.encode(TEXTS * 5, "static", "document")))
        await asyncio.sleep(0.01)
        short = asyncio.create_task(one("short", encoding.encode(TEXTS[:15], "static", "query")))
        search = asyncio.create_task(one("search", holder.read(lambda index: index.search("血压"), "search")))
        await asyncio.gather(long, short, search)

    asyncio.run(stopped(holder, three()))
    assert ended[-1] == "long"


def test_a_batch_takes_a_place_and_gives_it_back(holding: Callable[..., Holder]) -> None:
    holder = holding(encode_concurrency=2)
    encoding = Encoding(holder)

    async def three() -> list[object]:
        jobs = (encoding.encode(TEXTS, "static", "document") for _ in range(3))
        return await asyncio.gather(*jobs, return_exceptions=True)

    async def twice() -> tuple[list[object], list[object]]:
        return await three(), await three()

    for found in asyncio.run(stopped(holder, twice())):
        assert [isinstance(one, Shed) for one in found] == [False, False, True]
    assert holder.places["encode"].taken == 0


def test_a_batch_ends_with_the_time_of_a_request(
    holding: Callable[..., Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode_turns, "TURN", 0.0)
    holder = holding(seconds=0.001)
    with pytest.raises(Problem) as problem:
        asyncio.run(stopped(holder, Encoding(holder).encode(TEXTS * 50, "static", "document")))
    assert problem.value.code == "timeout"


def test_only_what_is_read_is_counted(pair: Pair) -> None:
    encoder = pair.encoder()
    assert tokens_read(encoder, "血压", 512) == encoder.count_tokens(["血压"])[0]
    assert tokens_read(encoder, "血压高" * 10_000, 512) == 512
    # Fewer tokens than characters would suggest: the first cut is not enough to tell.
    assert tokens_read(encoder, " " * 50_000 + "血压", 512) == encoder.count_tokens(["血压"])[0]
