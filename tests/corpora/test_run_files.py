"""Runs and qrels of other people's tools."""

from __future__ import annotations

import gzip
import json

import pytest

from suwen.corpora.files import CorpusError
from suwen.corpora.run_files import read_ranking, read_trec_qrels, write_trec_qrels


def test_a_ranking_is_by_score_and_ties_as_trec_eval_has_them(tmp_path):
    (tmp_path / "a.run").write_text("q 0 b 1 2.0 x\nq 0 a 2 2.0 x\n\nq 0 c 3 5 x\n")
    assert read_ranking(tmp_path / "a.run") == {"q": [("c", 5.0), ("b", 2.0), ("a", 2.0)]}


def test_packed_tabbed_and_json_runs(tmp_path):
    with gzip.open(tmp_path / "a.run.gz", "wt") as file:
        file.write("q one\t0\td 1\t1\t2.0\tx\n")
    assert read_ranking(tmp_path / "a.run.gz") == {"q one": [("d 1", 2.0)]}
    (tmp_path / "b.tsv").write_text("q\tb\t2\nq\ta\t1\n")
    assert read_ranking(tmp_path / "b.tsv") == {"q": [("a", -1.0), ("b", -2.0)]}
    (tmp_path / "c.json").write_text(json.dumps({"q": {"a": 1, "b": 2.5}}))
    assert read_ranking(tmp_path / "c.json") == {"q": [("b", 2.5), ("a", 1.0)]}


@pytest.mark.parametrize("text", ['["q"]', '{"q": ["a"]}', '{"q": {"a": "x"}}', '{"q": {"a": true}}', "{"])
def test_json_that_is_no_run(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(CorpusError, match=r"a\.json"):
        read_ranking(tmp_path / "a.json")


def test_qrels_there_and_back(tmp_path):
    qrels = {"q1": {"a": 3, "b": 0}, "q2": {"a": 1}}
    assert write_trec_qrels(tmp_path / "q.txt", qrels) == 3
    assert read_trec_qrels(tmp_path / "q.txt") == qrels
    (tmp_path / "beir.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t3\n")
    assert read_trec_qrels(tmp_path / "beir.tsv") == {"q1": {"a": 3}}


@pytest.mark.parametrize("text", ["q 0 a x\nq 0 b x\n", "q 0 a 1\nq 0 a 2\n", "q 0 a 1\nq a\n", "", "head\n"])
def test_bad_qrels(tmp_path, text):
    (tmp_path / "q.txt").write_text(text)
    with pytest.raises(CorpusError, match=r"q\.txt"):
        read_trec_qrels(tmp_path / "q.txt")


def test_an_id_with_a_blank_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="white space"):
        write_trec_qrels(tmp_path / "q.txt", {"q 1": {"a": 1}})
    assert not (tmp_path / "q.txt").exists()
