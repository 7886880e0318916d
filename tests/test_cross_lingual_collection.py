"""The hand-written questions across languages in tests/data/cross-lingual: counts, languages, one answer each."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from suwen.corpora.collection import Collection

FOLDER = Path(__file__).parent / "data" / "cross-lingual"
HAN = re.compile("[\u4e00-\u9fff]")


def test_each_passage_is_asked_for_once_in_each_language() -> None:
    collection = Collection.open(FOLDER)
    qrels = collection.qrels("test")
    documents = {document.id for document in collection.documents()}
    assert Counter(id_[:2] for id_ in documents) == {"en": 200, "zh": 200}
    assert all(len(answers) == 1 for answers in qrels.values())
    asked = Counter((query[:2], next(iter(answers))) for query, answers in qrels.items())
    assert asked == {(language, id_): 1 for language in ("en", "zh") for id_ in documents}


def test_ids_say_the_language_of_the_text_and_no_text_stands_twice() -> None:
    collection = Collection.open(FOLDER)
    texts = [*collection.documents(), *collection.queries("test")]
    assert len(texts) == 1200
    assert [text.id for text in texts if bool(HAN.search(text.text)) != text.id.startswith("zh")] == []
    assert [text for text, count in Counter(one.text for one in texts).items() if count > 1] == []


def test_topics_have_near_neighbours_in_both_languages() -> None:
    topics = Counter((one.metadata["topic"], one.metadata["language"]) for one in Collection.open(FOLDER).documents())
    assert len(topics) == 80
    assert set(topics.values()) == {5}


def test_first_ninth_and_last() -> None:
    collection = Collection.open(FOLDER)
    documents = list(collection.documents())
    assert documents[0].text.startswith("Metformin is best swallowed with food")
    assert documents[8].text.startswith("Hypertension with unexplained hypokalaemia")
    assert documents[-1].text.startswith("绝经10年内")
    assert collection.qrels("test")["zh-to-en-009"] == {"en-009": 1}
