"""Reranked systems: first hits in another order, all candidates of a reranking task, and a gain told honestly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rerankers_on_the_spot import make_reranker
from suwen.bench.exact_search import Ranks
from suwen.bench.reranked import Reading, Reranked, gains, read_again, reordered
from suwen.bench.suite_tasks import load_suite, scaffold_local
from suwen.bench.system_specs import parse_systems
from suwen.bench.systems import RankingContext, Setting, SystemProblem
from suwen.bench.task_data import Ranked, Source
from suwen.bench.vector_cache import VectorCache
from suwen.encoders.reranker import Reranker


def data(candidates: list[list[int]] | None = None) -> Ranked:
    documents = ["药", "水水", "水", "无"]
    qrels = {"a": {"d1": 1}, "b": {"d1": 1}}
    ids = [f"d{number}" for number in range(4)]
    return Ranked(ids, documents, ["a", "b"], ["多喝水", "喝水吗"], qrels, Source(Path()), candidates)


RANKS = Ranks(np.array([[0, 2, 1, 3], [3, 2, 1, -1]]), np.array([[0.9, 0.8, 0.7, 0.1], [0.5, 0.4, 0.3, -np.inf]]))


def test_only_what_was_read_moves(tmp_path: Path) -> None:
    reranker = Reranker.load(make_reranker(tmp_path / "r", {"水": 1.0, "药": -1.0}))
    read = read_again(reranker, data(), RANKS, 2)
    # The query's own characters count alike for all of its documents.
    assert [np.diff(one).tolist() for one in read] == [[2.0], [1.0]]
    moved = reordered(RANKS, read, 0.0)
    assert moved.rows.tolist() == [[2, 0, 1, 3], [2, 3, 1, -1]]
    assert (np.diff(moved.scores[0]) < 0).all() and moved.scores[1, 3] == -np.inf
    assert reordered(RANKS, read, 1e6).rows.tolist() == RANKS.rows.tolist(), "a large weight leaves the order"


def test_the_gain_is_that_of_other_queries_than_chose_the_weight(tmp_path: Path) -> None:
    reranker = Reranker.load(make_reranker(tmp_path / "r", {"水": 1.0}))
    weight, gained = gains({"task": Reading(data(), RANKS, read_again(reranker, data(), RANKS, 4))})
    assert weight in (0.0, 1.0) and gained["task"].language == "zh"
    # The second query has its answer third before, and first after.
    assert (gained["task"].hybrid, gained["task"].precise) == (pytest.approx(50.0), pytest.approx(100.0))


def test_it_is_a_system_with_a_spec_of_its_own_and_reads_every_candidate(tmp_path: Path) -> None:
    folder = make_reranker(tmp_path / "my,r", {"水": 1.0})
    (system,) = parse_systems([f"mine=rerank:{folder},hits=1:bm25:words"])
    assert isinstance(system, Reranked) and system.name == "mine"
    scaffold_local(tmp_path / "suite.toml", _collection(tmp_path / "c"))
    suite = load_suite(tmp_path / "suite.toml")
    setting, context = Setting(suite.tasks[0], suite.templates), RankingContext(VectorCache(None), 10)
    ranks = system.rank(data([[0, 1, 2], [3, 1]]), setting, context)
    assert ranks.rows[0].tolist()[0] == 1 and sorted(ranks.rows[1][ranks.rows[1] >= 0].tolist()) == [1, 3]
    assert system.contract(setting, "query")["hits"] == 1
    with pytest.raises(SystemProblem, match="rerank:FOLDER"):
        parse_systems(["rerank:nothing"])


def _collection(folder: Path) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text('{"_id": "d", "text": "水"}\n', encoding="utf-8")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "水"}\n', encoding="utf-8")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t1\n", encoding="utf-8")
    return folder
