"""Queries of other fields than medicine, told by their words, and what that does to a search."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.encoders.pair import default_pair_path
from suwen.retrieve.elsewhere import NOTE, is_elsewhere
from suwen.retrieve.relevance import ELSEWHERE
from suwen.retrieve.retriever import Index
from suwen.retrieve.sample import index_sample
from suwen.text.synonyms import shipped

#: How many of a hundred passages hold a word.
PASSAGES = {"患者": 30, "宠物": 0, "手指": 4, "gout": 3, "opera": 1, "often": 40}


@pytest.fixture(scope="module")
def sample() -> Iterator[Index]:
    with folder_in_memory() as folder, Index.create(folder / "i", pair=default_pair_path()) as index:
        index_sample(index)
        yield index


def elsewhere(text: str) -> bool:
    return is_elsewhere(text, lambda name: PASSAGES.get(name, 0), 100)


@pytest.mark.parametrize(
    "text",
    [
        "sourdough",
        "how long should sourdough prove",
        "Trombones?",
        "明天的高铁票怎么买",
        "高铁可以带宠物吗",
        "学吉他难不难",
        "how often is a gearbox changed",
    ],
)
def test_a_thing_of_another_field_of_which_the_index_has_nothing(text: str) -> None:
    assert not shipped().mentions(text)
    assert elsewhere(text)


@pytest.mark.parametrize(
    "text",
    [
        "弹吉他手指疼",  # the index has something of it
        "gout and sourdough",
        "opera",  # itself
        "高铁血红蛋白",  # of medicine, though it begins as a train does
        "血常规四级",
        "头晕怎么办",
        "can I use my blue puffer",
        "",
    ],
)
def test_what_may_be_of_medicine_is_left_alone(text: str) -> None:
    assert not elsewhere(text)


@pytest.mark.parametrize("mode", ["hybrid", "dense"])
@pytest.mark.parametrize("asked", ["sourdough", "how long should sourdough prove", "高铁票"])
def test_it_is_turned_away_and_its_hits_are_less_sure(
    sample: Index, asked: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sample.search(asked, mode=mode)
    assert not found.relevant and len(found) == 10 and found.notes == (NOTE,)
    monkeypatch.setattr("suwen.retrieve.relevance.ELSEWHERE", 1.0)
    before = sample.search(asked, mode=mode)
    assert [hit.score for hit in found] == [hit.score for hit in before]
    for hit, as_it_was in zip(found, before, strict=True):
        odds, were = (one.confidence / (1 - one.confidence) for one in (hit, as_it_was))
        assert odds == pytest.approx(ELSEWHERE * were, abs=0.02)


def test_a_word_that_comes_into_the_index_is_found(sample: Index) -> None:
    assert sample.worded("sourdough").elsewhere
    sample.add([Document("bread", "Sourdough bread is no safer with coeliac disease: it has gluten.")])
    assert not sample.worded("sourdough").elsewhere
    found = sample.search("sourdough")
    assert found.relevant and found[0].document_id == "bread" and not found.notes
