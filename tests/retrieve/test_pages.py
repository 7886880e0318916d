"""Pages of a ranking: no overlaps, no holes, however deep they reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.retrieve.retriever import Index


def ids(hits: Any) -> list[str]:
    return [hit.id for hit in hits]


@pytest.fixture(scope="module")
def long(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """Six hundred documents of three passages each, so that pages reach past every step of the search depth."""
    rng = np.random.default_rng(0)
    parts = ["肾结石", "血压", "头痛", "饮水", "疫苗", "骨折", "失眠", "尿液", "检查", "患者", "蛋白质", "咖啡"]

    def sentence() -> str:
        return "".join(rng.choice(parts, rng.integers(2, 7))) + "。"

    documents = (Document(f"d{n:03}", "".join(sentence() for _ in range(9)), "", {"n": n}) for n in range(600))
    with Index.create(tmp_path_factory.mktemp("long") / "index", pair=pair) as made:
        made.add(documents, size=40, overlap=0)
        assert made.engine.stats().passages > 1500
        yield made


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_pages_have_neither_overlaps_nor_holes(long: Index, mode: Any) -> None:
    """Through the steps of the depth a search is read to: 100 and 1,000."""
    query = "肾结石患者饮水检查尿液"
    paged: list[str] = []
    for offset in range(0, 260, 20):
        page = long.search(query, 20, mode=mode, offset=offset)
        assert len(page) == 20
        paged += ids(page)
    for offset in range(900, 1200, 100):
        page = long.search(query, 100, mode=mode, offset=offset)
        assert not set(paged) & set(ids(page))
        paged += ids(page)
    assert len(paged) == len(set(paged))


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_pages_together_are_the_whole_ranking(long: Index, mode: Any) -> None:
    query = "失眠头痛喝咖啡"
    whole = ids(long.search(query, 2000, mode=mode))
    paged: list[str] = []
    while page := ids(long.search(query, 130, mode=mode, offset=len(paged))):
        paged += page
    assert sorted(paged) == sorted(whole)
    assert len(paged) == len(set(paged))


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_pages_of_documents(long: Index, mode: Any) -> None:
    query = "失眠头痛喝咖啡"
    paged: list[str] = []
    while page := long.search(query, 50, mode=mode, offset=len(paged), per_document=True):
        paged += [hit.document_id for hit in page]
        if len(page) < 50:
            break
    assert len(paged) == len(set(paged))
    if mode != "lexical":
        assert len(paged) == 600
