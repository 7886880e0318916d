"""Examples: drawn from the index, questions first, short, and none where there is nothing."""

from __future__ import annotations

from pathlib import Path

from suwen.corpora.records import Document
from suwen.encoders.pair import Pair
from suwen.retrieve.examples import drawn_examples
from suwen.retrieve.retriever import Index


def test_questions_come_before_statements_and_both_languages_are_there(tmp_path: Path, pair: Pair) -> None:
    with Index.create(tmp_path / "index", pair=pair) as index:
        assert drawn_examples(index) == []
        titles = ["高血压怎么吃", "一种很长的标题" * 9, "糖尿病的诊断标准", "How to use an inhaler"]
        index.add(Document(f"d{n}", f"短句之{n}。后面还有一句。", title) for n, title in enumerate(titles))
        assert drawn_examples(index) == ["高血压怎么吃", "短句之1", "糖尿病的诊断标准", "How to use an inhaler"]


def test_without_questions_titles_and_first_sentences_serve(tmp_path: Path, pair: Pair) -> None:
    with Index.create(tmp_path / "index", pair=pair) as index:
        index.add([Document("a", "布洛芬饭后服用。其余略。", ""), Document("b", "正文。", "糖尿病的诊断标准")])
        assert sorted(drawn_examples(index)) == ["布洛芬饭后服用", "糖尿病的诊断标准"]
