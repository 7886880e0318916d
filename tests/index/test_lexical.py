"""The lexical index against textbook BM25, and queries that a parser would choke on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from naive import Naive, encoded, same, unit

from suwen.index import lexical as lexicals
from suwen.index.embedded import EmbeddedEngine

Make = Callable[..., EmbeddedEngine]
RNG = np.random.default_rng(5)
PARTS = (
    "高血压",
    "二甲双胍",
    "HbA1c",
    "COVID-19",
    "维生素B12",
    "头痛",
    "发热",
    "β-blocker",
    "7.5%",
    "肾结石",
    "stones",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedEngine, Naive]]:
    """Sixty documents added in six calls, three of them deleted again, and the model of them."""
    engine, model = EmbeddedEngine.create(tmp_path_factory.mktemp("both") / "index", space="sp", dimension=16), Naive()
    for start in range(0, 60, 10):
        batch = []
        for number in range(start, start + 10):
            text = " ".join(RNG.choice(PARTS, RNG.integers(1, 7)))
            title = str(RNG.choice(PARTS))
            batch.append(encoded(f"d{number}", [text], unit(RNG, 1, 16), {"half": number % 2}, title=title))
            model.put(batch[-1])
        engine.add(batch)
    engine.delete(["d3", "d4", "d5"])
    for id_ in ("d3", "d4", "d5"):
        model.remove(id_)
    yield engine, model
    engine.close()


@pytest.mark.parametrize(
    "query", ["高血压能吃二甲双胍吗", "HbA1c: 7.5% (", "ＨＢＡ１Ｃ", "COVID-19 發熱", "kidney stone 肾结石"]
)
@pytest.mark.parametrize("where", [None, {"half": 1}])
def test_scores_are_those_of_bm25(both: tuple[EmbeddedEngine, Naive], query: str, where: dict[str, int] | None) -> None:
    engine, model = both
    for k in (1, 10, 100):
        with engine.snapshot() as view:
            ranking = view.lexical(query, k, where)
            same(ranking, view.fetch(ranking.rows.tolist()), model.state().lexical_scores(query, where), k, 1e-4)


@pytest.mark.parametrize(
    "query", ["AND OR NOT", '"', "a:b", "(((", "field:[a TO b]", "*", "~", "\\", "高血压^9", "-头痛", "+头痛 -发热"]
)
def test_operators_mean_nothing(both: tuple[EmbeddedEngine, Naive], query: str) -> None:
    engine, model = both
    with engine.snapshot() as view:
        ranking = view.lexical(query, 100)
        same(ranking, view.fetch(ranking.rows.tolist()), model.state().lexical_scores(query), 100, 1e-4)


def test_a_page_of_text_is_searched_by_its_first_terms(both: tuple[EmbeddedEngine, Naive]) -> None:
    engine, _ = both
    long = "".join(chr(0x4E00 + number) for number in range(5000))
    with engine.snapshot() as view:
        assert len(view.lexical("头痛" + long, 1000).rows) > 0
        assert len(view.lexical(long + "头痛", 1000).rows) == 0


def test_a_filter_in_the_query_and_one_after_it_agree(
    both: tuple[EmbeddedEngine, Naive], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = both
    with engine.snapshot() as view:
        inside = view.lexical("高血压 头痛", 15, {"half": 0})
        monkeypatch.setattr(lexicals, "_TERM_SET", 1)
        after = view.lexical("高血压 头痛", 15, {"half": 0})
    np.testing.assert_allclose(inside.scores, after.scores, rtol=1e-5)
    assert len(inside.rows) == 15


def test_equal_scores_come_in_row_order(made: Make) -> None:
    engine = made(documents=0)
    for start in range(0, 40, 4):
        engine.add([encoded(f"d{n:02}", ["一模一样的句子"], unit(RNG, 1, 16)) for n in range(start, start + 4)])
    with engine.snapshot() as view:
        assert view.lexical("句子", 40).rows.tolist() == list(range(1, 41))
        assert view.lexical("句子", 5).rows.tolist() == [1, 2, 3, 4, 5]
