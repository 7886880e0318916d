"""Other names of what a query mentions, and the words an index has: the same of every engine."""

from __future__ import annotations

import numpy as np
from engines import Making
from naive import encoded, unit

from suwen.index.engine import Engine

TEXTS = {
    "brand": "波立维每日一次，术后至少服用一年。",
    "generic": "氯吡格雷与奥美拉唑同服时疗效可能下降。",
    "other": "阿司匹林肠溶片宜空腹服用。",
    "latin": "clopidogrel after stenting, clopidogrelum in older texts",
}


def made(make: Making) -> Engine:
    engine = make(documents=0)
    vectors = unit(np.random.default_rng(5), len(TEXTS), 16)
    engine.add([encoded(id_, [text], vectors[place : place + 1]) for place, (id_, text) in enumerate(TEXTS.items())])
    return engine


def found(engine: Engine, text: str, also: dict[str, list[str]] | None = None) -> dict[str, float]:
    with engine.snapshot() as view:
        ranking = view.lexical(text, 10, None, also)
        items = view.fetch(ranking.rows.tolist())
    return dict(zip((item.passage.document_id for item in items), ranking.scores.tolist(), strict=True))


def test_a_passage_with_another_name_is_found_below_the_one_as_typed(make: Making) -> None:
    engine = made(make)
    plain, wide = found(engine, "波立维"), found(engine, "波立维", {"波立维": ["氯吡格雷", "clopidogrel"]})
    assert set(plain) == {"brand"}
    assert next(iter(wide)) == "brand" and set(wide) == {"brand", "generic", "latin"}
    assert wide["latin"] < wide["generic"]


def test_nothing_scores_more_than_the_most_that_is_told(make: Making) -> None:
    engine = made(make)
    for text, also in (("波立维 术后", {"波立维": ["氯吡格雷"]}), ("阿司匹林肠溶片宜空腹服用", {})):
        with engine.snapshot() as view:
            ranking = view.lexical(text, 10, None, also)
        assert ranking.most is None or ranking.scores.max() <= ranking.most


def test_the_words_of_an_index_are_counted(make: Making) -> None:
    engine = made(make)
    with engine.snapshot() as view:
        assert view.vocabulary(["波立", "服用", "没有"]) == [1, 2, 0]
        assert view.terms("clopi") == [("clopidogrel", 1), ("clopidogrelum", 1)]
        assert view.terms("zzz") == []
