"""A hit that does not stand where its score put it: that it was moved, and why, is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from in_memory import folder_in_memory
from suwen.corpora.readers import read_documents
from suwen.corpora.records import Document
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import default_pair_path
from suwen.retrieve.results import Hit
from suwen.retrieve.retriever import Index

NAMES = (
    "哮喘",
    "职业性哮喘",
    "过敏性哮喘",
    "药物性哮喘",
    "贫血",
    "缺铁性贫血",
    "慢性病贫血",
    "J45.9 哮喘",
    "Asthma, unspecified",
)
PASSING = "夜班记录：患者睡眠尚可，家属询问探视时间，护士说明病区制度，其间提到既往曾用来士普，现已停用，余无特殊。"
QUERIES = (
    "哮喘发作喷几下",
    "贫血吃铁剂黑便怎么办",
    "来士普",
    "CURB-65",
    "利奈唑胺是什么",
    "肾结石怎么判断酸性还是碱性",
    "来士普停用以后睡眠不好",
)
HIGHER, LOWER = {"like_first", "words", "name", "answer"}, {"less_like", "bare_name"}


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with folder_in_memory() as folder, Index.create(folder / "i", pair=default_pair_path()) as opened:
        more = [Document(f"name-{number}", name) for number, name in enumerate(NAMES)]
        more += [Document("passing", PASSING), Document("score", "病房记录：今日复核CURB-65评分，余同前。")]
        opened.add([*read_documents(sample_path()), *more], encoder=opened.pair.encoder("static"))
        yield opened


def worth(hit: Hit) -> float:
    """What its legs make of a hit, before it is moved."""
    why = hit.explanation
    assert why is not None
    legs = ((why.weights["dense"], why.dense), (why.weights["lexical"], why.lexical))
    return sum(weight * leg.value for weight, leg in legs if leg) / sum(why.weights.values())


def moved(hit: Hit) -> tuple[str, ...]:
    assert hit.explanation is not None
    return hit.explanation.moved


@pytest.mark.parametrize("query", QUERIES)
def test_no_hit_stands_above_a_better_one_without_a_reason(index: Index, query: str) -> None:
    # What one leg has not found is worth something there too, which is not told.
    found = [hit for hit in index.search(query, 40, tier="static", explain=True) if both_found(hit)]
    for place, hit in enumerate(found):
        for below in found[place + 1 :]:
            if worth(hit) < worth(below) - 1e-4:
                assert HIGHER & set(moved(hit)) or LOWER & set(moved(below)), (hit.id, below.id)


def both_found(hit: Hit) -> bool:
    return hit.explanation is not None and bool(hit.explanation.dense and hit.explanation.lexical)


def test_what_is_moved_says_by_what(index: Index) -> None:
    asked = index.search("哮喘发作喷几下", 30, tier="static", explain=True)
    assert "answer" in moved(asked[0])
    assert {hit.id for hit in asked if "bare_name" in moved(hit)} >= {"name-0#0"}
    bare = index.search("来士普", 5, tier="static", explain=True)
    assert moved(bare[0]) == () and "name" in moved(bare[1])
    longer = index.search("来士普停用以后睡眠不好", 5, tier="static", explain=True)
    assert any("words" in moved(hit) for hit in longer)
    alike = index.search("肾结石怎么判断酸性还是碱性", 30, tier="static", explain=True)
    assert any(moved(hit) == ("like_first",) for hit in alike)


@pytest.mark.parametrize(
    "how", [{"mode": "dense"}, {"mode": "lexical"}, {"fusion": "ranks"}, {"weights": {"dense": 1.0}}]
)
def test_nothing_is_moved_in_a_ranking_of_another_kind(index: Index, how: dict[str, object]) -> None:
    found = index.search("肾结石怎么判断酸性还是碱性", 20, tier="static", explain=True, **how)
    assert {why for hit in found for why in moved(hit)} <= {"answer", "bare_name"}
