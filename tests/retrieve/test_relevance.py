"""The signal that nothing relevant was found, on the bundled sample with the pair of the package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from in_memory import folder_in_memory
from suwen.corpora.collection import Collection
from suwen.corpora.sample_collection import sample_path
from suwen.encoders.pair import default_pair_path
from suwen.index.engine import Ranking
from suwen.retrieve.relevance import ANSWERS, MIXED, Null, judge, off_topic
from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample
from suwen.text.fold import fold

QUESTIONS = Path(__file__).parents[1] / "data" / "questions"
#: Not among the questions an index is calibrated with.
OFF_TOPIC = (
    "周末去杭州怎么坐高铁",
    "新买的手机充不进电",
    "如何申请护照",
    "冬天汽车打不着火",
    "best pizza place near the station",
    "how to install a printer driver",
    "who won the world cup in 1998",
    "股票开户流程",
)
NONSENSE = ("qwxz zkjv ppqt", "嗯嗯啊啊哦哦", "lorem ipsum dolor")


@pytest.fixture(scope="module")
def sample() -> Iterator[Index]:
    with folder_in_memory() as folder, Index.create(folder / "i", pair=default_pair_path()) as index:
        assert index_sample(index).report.encoder == "document"
        yield index


def test_the_samples_own_queries_are_relevant(sample: Index) -> None:
    queries = Collection.open(sample_path()).queries()
    relevant = [sample.search(query.text).relevant for query in queries]
    assert len(relevant) == 60
    assert np.mean(relevant) >= 0.85


@pytest.mark.parametrize(
    ("asked", "about"),
    [
        ("心肌梗死溶栓时间", "脑梗死溶栓时间"),
        ("心梗后多久内溶栓", "脑梗后多久内溶栓"),
        ("心梗溶栓的时间窗", "中风溶栓的时间窗"),
    ],
)
@pytest.mark.parametrize("tier", ["l6", "static"])
def test_a_passage_about_another_disease_than_the_query_names_just_counts_as_an_answer(
    sample: Index, asked: str, about: str, tier: str
) -> None:
    there = {hit.id: hit.confidence for hit in sample.search(about, tier=tier)}
    assert there["zh-stroke-06#0"] > 0.8
    found = sample.search(asked, tier=tier)
    assert found.relevant and {hit.id: hit.confidence for hit in found}["zh-stroke-06#0"] == ANSWERS
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    if tier == "l6" and asked == "心肌梗死溶栓时间":
        assert found[0].id == "zh-stroke-06#0"  # with 0.93, as it was


def test_the_sample_is_searched_well(sample: Index) -> None:
    collection = Collection.open(sample_path())
    qrels = collection.qrels()
    first = [
        any(qrels[query.id].get(hit.document_id, 0) > 0 for hit in sample.search(query.text, 5))
        for query in collection.queries()
    ]
    assert np.mean(first) >= 0.8


def test_nonsense_and_other_subjects_are_not(sample: Index) -> None:
    turned_away = [not sample.search(query).relevant for query in OFF_TOPIC + NONSENSE]
    assert not set(OFF_TOPIC) & set(off_topic())
    assert np.mean(turned_away) >= 0.7
    assert len(sample.search(OFF_TOPIC[0], 10)) == 10, "the nearest passages come all the same"


def test_dense_search_alone_keeps_real_questions_and_turns_others_away(sample: Index) -> None:
    off = QUESTIONS / "off_topic_development.jsonl"
    others = [json.loads(line)["text"] for line in off.read_text(encoding="utf-8").splitlines()]
    real = [query.text for query in Collection.open(sample_path()).queries()]
    assert np.mean([sample.search(text, mode="dense").relevant for text in real]) >= 0.95
    assert np.mean([not sample.search(text, mode="dense").relevant for text in others]) >= 0.9


def test_words_that_are_nowhere_find_nothing(sample: Index) -> None:
    found = sample.search("qwxz zkjv", mode="lexical")
    assert (len(found), found.relevant) == (0, False)


def test_the_evidence_is_said(sample: Index) -> None:
    assert set(sample.search("高血压吃什么药").evidence) == {"dense", "lexical"}
    assert set(sample.search("高血压吃什么药", mode="dense").evidence) == {"dense"}


def test_heights_are_deviations_above_the_off_topic_median() -> None:
    null = Null(dense=(0.3, 0.05), lexical=(0.4, 0.2), hybrid=(0.3, 0.1), rows=100)
    assert null.height("dense", 0.4) == pytest.approx(2.0)
    assert null.height("lexical", 0.3) == pytest.approx(-0.5)
    assert null.height("hybrid", 0.8) == pytest.approx(5.0)
    assert Null.from_json(null.to_json()) == null
    assert null.fits(150) and not null.fits(151)
    by_tier = replace(null, scale="l6")
    assert by_tier.fits(150, "l6") and by_tier.fits(150, MIXED) and not by_tier.fits(150, "document")
    of_0_1 = Null.from_json('{"dense": [0.3, 0.05], "lexical": [4.0, 2.0], "rows": 100}')
    assert not of_0_1.fits(100), "measured in scores that say nothing here"


def test_who_encodes_the_questions_chooses_the_curve(sample: Index) -> None:
    with sample.engine.snapshot() as snapshot:
        curves = {tier: sample.calibration.null(snapshot, tier) for tier in ("l6", "static")}
    assert {tier: null.curve for tier, null in curves.items()} == {"l6": "transformer", "static": "static"}
    assert curves["static"].hybrid[1] > 1.5 * curves["l6"].hybrid[1], "off-topic questions differ more by `static`"
    assert Null.from_json(curves["static"].to_json()) == curves["static"]
    two = [Null((0.3, 0.05), (0.4, 0.2), (0.3, 0.1), 100, curve=curve) for curve in ("transformer", "static")]
    assert [null.confidence("hybrid", 0.5) >= ANSWERS for null in two] == [False, True], "two deviations above"


def test_confidence_rises_with_the_value_and_never_contradicts(sample: Index) -> None:
    null = Null(dense=(0.3, 0.05), lexical=(0.4, 0.2), hybrid=(0.3, 0.1), rows=100)
    sure = [null.confidence("hybrid", value / 10) for value in range(11)]
    assert sure == sorted(sure) and 0 < sure[0] < 0.3 and 0.8 < sure[-1] < 1
    for query in (*OFF_TOPIC, "BRAF", "高血压吃什么药", "血红蛋白", "qwxz"):
        for mode in ("hybrid", "dense", "lexical"):
            found = sample.search(query, 5, mode=mode)  # type: ignore[arg-type]
            best = max((hit.confidence for hit in found), default=0.0)
            assert found.relevant == (best >= ANSWERS), (query, mode)


def test_a_bare_names_own_passage_comes_first_and_is_an_answer(sample: Index) -> None:
    names = [json.loads(line) for line in (QUESTIONS / "names.jsonl").read_text(encoding="utf-8").splitlines()]
    for tier in ("l6", "static"):
        wrong = []
        for line in names:
            found, held = sample.search(line["text"], 1, tier=tier), [fold(name) for name in line["held"]]
            content = fold(f"{found[0].title} {found[0].text}")
            if not (found.relevant and found[0].confidence >= 0.75 and any(name in content for name in held)):
                wrong.append((line["text"], found[0].confidence))
        assert len(wrong) <= 2, wrong
    everyday = [json.loads(line)["text"] for line in (QUESTIONS / "everyday.jsonl").read_text("utf-8").splitlines()]
    assert np.mean([not sample.search(text).relevant for text in everyday]) >= 0.9


def test_a_passing_mention_in_a_hit_below_the_first_decides_nothing() -> None:
    null = Null(dense=(0.3, 0.05), lexical=(0.4, 0.2), hybrid=(0.3, 0.1), rows=100)
    words = Ranking(np.array([1, 2]), np.array([9.0, 8.0], np.float32), most=200.0)
    low = judge({"lexical": words}, null, rows=[1, 2])
    assert low[0] is False
    assert judge({"lexical": words._replace(exact={2: 2})}, null, rows=[1, 2]) == low
    first = judge({"lexical": words._replace(exact={1: 2})}, null, rows=[1, 2])
    assert first[0] is True and first[2][0] >= 0.75 and first[2][1] == low[2][1]


def test_judging_nothing_is_negative() -> None:
    null = Null(dense=(0.0, 0.0), lexical=(0.0, 0.0), hybrid=(0.0, 0.0), rows=1)
    nothing = Ranking(np.empty(0, np.int64), np.empty(0, np.float32))
    assert judge({"dense": nothing, "lexical": nothing}, null)[0] is False
    something = Ranking(np.array([1]), np.array([0.9], np.float32))
    assert judge({"dense": something}, null)[0] is True
