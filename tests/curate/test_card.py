"""The lines of CARE's Table 7 for any collection and any training rows, by the tokenizer that one names."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiktoken
from tokenizers import Tokenizer

from suwen.corpora.collection import write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate import CurateError
from suwen.curate.card import Statistics, statistics, table, token_counter
from suwen.encoders.pair import Pair

DOCUMENTS = [Document("d1", "多喝水", title="肾结石"), Document("d2", "限盐"), Document("d3", "每天量血压")]
QUERIES = [Query("q1", "肾结石怎么办"), Query("q2", "高血压吃什么"), Query("q3", "没有人评过")]
QRELS = {"test": [Qrel("q1", "d1", 2), Qrel("q1", "d2", 0), Qrel("q2", "d2", 1), Qrel("q2", "d3", 1)]}


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    write_collection(tmp_path / "small", DOCUMENTS, QUERIES, QRELS)
    return tmp_path / "small"


def test_a_collection_is_counted_title_and_all(collection: Path) -> None:
    line = statistics(collection, len)
    # d1 is its title, a line's end and its text; a grade of 0 is no positive; an unjudged query is counted as a query.
    assert line == Statistics("all", "small", "retrieval", 3, 17 / 3, 3, (7 + 2 + 5) / 3, 1.5)
    assert statistics(collection, len, "test") == Statistics("test", "small", "retrieval", 2, 6, 3, 14 / 3, 1.5)
    assert "| all | small | retrieval | 3 | 5.67 | 3 | 4.67 | 1.50 |" in table([line])


def test_of_rows_the_distinct_documents_are_the_corpus(tmp_path: Path) -> None:
    rows = [TrainingRow("问题", ("答案一", "答"), ("别的",)), TrainingRow("问题二", ("别的",))]
    write_training_rows(tmp_path / "rows.jsonl.gz", rows)
    line = statistics(tmp_path / "rows.jsonl.gz", len)
    assert line == Statistics("train", "rows.jsonl.gz", "rows", 2, 2.5, 3, 2, 1.5)


def test_the_pair_counts_unless_another_tokenizer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair.load()
    oracle = Tokenizer.from_file(str(pair.path / "query" / pair.default_tier / "tokenizer.json"))
    oracle.no_truncation()
    for text in ("肾结石怎么判断酸性还是碱性", "HbA1c 7.5% (normal < 6)", "血压" * 400):
        assert token_counter()(text) == len(oracle.encode(text, add_special_tokens=False).ids)
    # An encoding of our own, one token a byte: the real ones are fetched from the net.
    bytes_ = tiktoken.Encoding(
        "bytes",
        pat_str=r".",
        mergeable_ranks={bytes([one]): one for one in range(256)},
        special_tokens={"<|end|>": 256},
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "bytes", bytes_)
    assert token_counter("bytes")("盐 7") == len("盐 7".encode())
    # A mark of the encoding inside a text is text.
    assert token_counter("bytes")("<|end|>") == 7


def test_a_tokenizer_that_cannot_be_had_says_what_to_do() -> None:
    with pytest.raises(CurateError, match=r"'nosuch' of tiktoken cannot be had .*pip install tiktoken; offline, put"):
        token_counter("nosuch")
