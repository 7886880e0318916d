"""Assembly: what is refined, drawn, split and written, and that ``suwen bench run`` measures on the result."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_pair import make_pair

from suwen.bench.suite_runner import run_suite
from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_loading import load_data
from suwen.corpora.collection import Collection, write_collection
from suwen.corpora.records import Document, Query
from suwen.corpora.training_rows import read_training_rows
from suwen.curate import CurateError
from suwen.curate.benchmark_assembly import Assembly, assemble, read_labels, refine, sample_candidates
from suwen.curate.card import front_matter, table
from suwen.curate.leakage import HeldOut
from suwen.jury.verdicts import JuryProblem, Verdict

DRUGS = (
    "布洛芬",
    "阿司匹林",
    "二甲双胍",
    "华法林",
    "阿莫西林",
    "奥美拉唑",
    "氨氯地平",
    "左甲状腺素",
    "辛伐他汀",
    "甲氨蝶呤",
)
TOPICS = ("饭前吃还是饭后吃", "有哪些副作用", "孕妇可以吃吗", "漏服一次该怎么办")
FACTS = (
    "应在进餐后用温水送服，以免刺激胃黏膜",
    "常见恶心、头晕与皮疹，多数可以自行缓解",
    "妊娠期使用须由医生权衡",
    "想起来就补服，临近下次则跳过",
)


def corpus() -> list[Document]:
    return [
        Document(f"d{m}-{n}", f"{drug}{fact}。编号{m}{n}。", f"{drug}说明书")
        for m, drug in enumerate(DRUGS)
        for n, fact in enumerate(FACTS)
    ]


def queries() -> list[Query]:
    return [Query(f"q{m}-{n}", drug + topic) for m, drug in enumerate(DRUGS) for n, topic in enumerate(TOPICS)]


def verdicts() -> list[Verdict]:
    """Of its drug's passages a query has its own as positive and the others as negatives, one of them undecided."""
    made = []
    for m in range(len(DRUGS)):
        for n in range(4):
            for other in range(4):
                label = "positive" if other == n else "negative"
                made.append(Verdict(f"q{m}-{n}", f"d{m}-{other}", label))
    return [
        Verdict(v.query_id, v.passage_id, "undecided") if (v.query_id, v.passage_id) == ("q0-0", "d0-1") else v
        for v in made
    ]


#: Each query's positive is the other's undecided.
CROSSED = [
    Verdict(f"q0-{query}", f"d0-{passage}", "positive" if query == passage else "undecided")
    for query in (0, 1)
    for passage in (0, 1)
]


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    return write_collection(tmp_path / "collection", corpus(), queries(), {})


def made(collection: Collection, out: Path, given: list[Verdict] | None = None, **settings: Any) -> Any:
    return assemble(collection, verdicts() if given is None else given, out, Assembly("meds", **settings))


def test_undecided_documents_are_excluded_for_their_query_alone(collection, tmp_path) -> None:
    done = made(collection, tmp_path / "out")
    kept = Collection.open(tmp_path / "out" / "retrieval")
    assert len(list(kept.documents())) == 40 and kept.check() == []
    qrels = kept.qrels("test")
    assert len(qrels) == 40 and "d0-1" not in qrels["q0-0"] and qrels["q0-1"]["d0-1"] == 1
    assert done.funnel["pairs_excluded_as_undecided"] == 1 and done.funnel["documents_removed_as_undecided"] == 0
    lines = (tmp_path / "out" / "retrieval" / "excluded" / "test.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"query-id": "q0-0", "corpus-ids": ["d0-1"]}]
    suite = load_suite(tmp_path / "out" / "suite.toml")
    data = load_data(suite, suite.tasks[0])
    assert data.excluded == {"q0-0": ["d0-1"]}


def test_an_excluded_document_costs_a_system_nothing(collection, tmp_path) -> None:
    made(collection, tmp_path / "out")
    firsts = {"finds": ["d0-1", "d0-0"], "misses": ["d0-2", "d0-0"], "bare": ["d0-0"]}
    for name, first in firsts.items():
        (tmp_path / name).mkdir()
        lines = [f"q0-0 Q0 {id_} {n} {9 - n} x" for n, id_ in enumerate(first)]
        (tmp_path / name / "meds-retrieval.trec").write_text("\n".join(lines))
    systems = [f"{name}=run:{tmp_path / name}" for name in firsts]
    done = run_suite(tmp_path / "out" / "suite.toml", systems, out=tmp_path / "results", tasks=["meds-retrieval"])
    found = [system.results["meds-retrieval"].metrics for system in done.systems]
    assert [round(one["mrr@10"] * 40, 6) for one in found] == [1.0, 0.5, 1.0]


def test_undecided_documents_leave_the_corpus_and_their_queries_with_them(collection, tmp_path) -> None:
    done = made(collection, tmp_path / "out", undecided="drop")
    kept = Collection.open(tmp_path / "out" / "retrieval")
    ids = {document.id for document in kept.documents()}
    assert "d0-1" not in ids and len(ids) == 39 and kept.check() == []
    qrels = kept.qrels("test")
    assert "q0-1" not in qrels and len(qrels) == 39 == done.funnel["test_queries"]
    assert qrels["q1-2"] == {"d1-0": 0, "d1-1": 0, "d1-2": 1, "d1-3": 0}
    assert done.funnel["test_queries_lost_with_their_documents"] == 1
    assert done.funnel["pairs_positive"] + done.funnel["pairs_negative"] + done.funnel["pairs_undecided"] == 160


def test_an_undecided_document_may_stay_where_it_is_a_positive(collection, tmp_path) -> None:
    made(collection, tmp_path / "out", undecided="keep")
    kept = Collection.open(tmp_path / "out" / "retrieval")
    assert len(list(kept.documents())) == 40 and kept.qrels("test")["q0-1"]["d0-1"] == 1
    assert "d0-1" not in kept.qrels("test")["q0-0"]


_LABELS = st.dictionaries(
    st.sampled_from("abcd"),
    st.dictionaries(st.sampled_from("stuvwxyz"), st.sampled_from(["positive", "negative", "undecided"]), min_size=1),
    min_size=1,
)


@given(_LABELS)
def test_refining_leaves_no_doubt_and_no_query_without_a_positive(labels: Any) -> None:
    refined = refine(labels, labels)
    doubtful = {p for own in labels.values() for p, label in own.items() if label == "undecided"}
    assert refined.removed == doubtful
    for query, own in refined.labels.items():
        assert "positive" in own.values() and "undecided" not in own.values()
        assert own == {p: label for p, label in labels[query].items() if p not in doubtful}


@given(_LABELS, st.integers(1, 4), st.integers(1, 4))
def test_the_draw_is_bounded_repeatable_and_each_querys_own(labels: Any, positives: int, negatives: int) -> None:
    settings = Assembly(positives=positives, negatives=negatives, seed=3)
    refined = refine(labels, labels).labels
    chosen = sample_candidates(refined, settings)
    assert chosen == sample_candidates(refined, settings)
    for query, own in chosen.items():
        said = [refined[query][qrel.document_id] for qrel in own]
        assert said == ["positive" if qrel.grade else "negative" for qrel in own]
        assert said.count("positive") == min(positives, list(refined[query].values()).count("positive"))
        assert said.count("negative") == min(negatives, list(refined[query].values()).count("negative"))
        assert sample_candidates({query: refined[query]}, settings)[query] == own


def test_suwen_bench_run_measures_on_it(collection, tmp_path) -> None:
    sts = tmp_path / "sts"
    sts.mkdir()
    pairs = [("布洛芬饭前吃还是饭后吃", "布洛芬饭前还是饭后吃", 1.0), ("骨折怎么办", "孕妇可以吃阿莫西林吗", 0.0)]
    lines = [json.dumps(dict(zip(("sentence1", "sentence2", "score"), pair, strict=True))) for pair in pairs]
    (sts / "test.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "out"
    assemble(collection, verdicts(), out, Assembly("meds", negatives=2), sts=sts)
    suite = load_suite(out / "suite.toml")
    assert [task.kind for task in suite.tasks] == ["retrieval", "rerank", "sts"]
    pair = make_pair(tmp_path / "pair")
    done = run_suite(out / "suite.toml", [f"pair:{pair}"], out=tmp_path / "results")
    assert done.complete
    results = done.systems[0].results
    assert 0.2 < results["meds-retrieval"].metrics["ndcg@10"] <= 1
    assert results["meds-rerank"].metrics["map@10"] > 0.3
    assert results["meds-sts"].metrics["pearson"] == pytest.approx(1.0)
    assert not any(note for result in results.values() for note in result.about["notes"])


def test_the_rerankings_candidates_are_written_as_mteb_reads_them(collection, tmp_path) -> None:
    made(collection, tmp_path / "out", negatives=2)
    folder = tmp_path / "out" / "rerank"
    ranked = [json.loads(line) for line in (folder / "top_ranked" / "test.jsonl").read_text("utf-8").splitlines()]
    qrels = Collection.open(folder).qrels("test")
    assert {row["query-id"]: set(row["corpus-ids"]) for row in ranked} == {q: set(own) for q, own in qrels.items()}
    assert all(sorted(own.values()) == [0, 0, 1] for own in qrels.values())
    assert "config_name: top_ranked" in (folder / "README.md").read_text("utf-8")


def test_training_rows_hold_nothing_of_the_test(collection, tmp_path) -> None:
    given = [*verdicts(), Verdict("q5-0", "d6-0", "negative"), Verdict("q5-1", "d6-1", "negative")]
    done = made(collection, tmp_path / "out", given, train=0.5)
    test = Collection.open(tmp_path / "out" / "retrieval")
    rows = list(read_training_rows(tmp_path / "out" / "train.jsonl.gz"))
    assert len(rows) == done.funnel["training_rows"] > 5
    asked = {query.text for query in test.queries()}
    assert not asked & {row.query for row in rows}
    wanted = {d for own in test.qrels("test").values() for d, grade in own.items() if grade}
    positives = {f"{d.title}\n{d.text}" for d in corpus() if d.id in wanted}
    assert not positives & {text for row in rows for text in (*row.pos, *row.neg)}
    assert not any(HeldOut(asked).hits((row.query, *row.pos, *row.neg)) for row in rows)
    assert done.funnel["training_passages_dropped_as_test_positives"] > 0


def test_the_card_tells_the_statistics_and_the_same_seed_makes_the_same(collection, tmp_path) -> None:
    done = made(collection, tmp_path / "out", train=0.25)
    again = made(collection, tmp_path / "again", train=0.25)
    assert done.funnel == again.funnel and done.statistics == again.statistics
    for name in ("retrieval/qrels/test.tsv", "rerank/qrels/test.tsv", "rerank/top_ranked/test.jsonl", "README.md"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert table(done.statistics) in card and card.startswith("---\npretty_name:")
    retrieval = done.statistics[0]
    documents = list(Collection.open(tmp_path / "out" / "retrieval").documents())
    assert retrieval.corpus == len(documents) and retrieval.positive == 1.0
    assert retrieval.document_length == pytest.approx(
        sum(len(d.title) + len(d.text) for d in documents) / len(documents)
    )
    suite = tomllib.loads((tmp_path / "out" / "suite.toml").read_text("utf-8"))
    assert suite["tasks"][0]["counts"]["documents"] == len(documents)


def test_front_matter_is_yaml() -> None:
    import yaml

    parsed = yaml.safe_load(front_matter({"corpus": {"corpus": "corpus.jsonl"}}).strip("-\n"))
    assert parsed["configs"][0]["data_files"] == [{"split": "corpus", "path": "corpus.jsonl"}]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "there are no verdicts"),
        ([Verdict("q0-0", "d0-0", "negative")], "no query has a positive"),
        ([Verdict("q0-0", "d0-0", "positive")] * 2, "two verdicts"),
        ([Verdict("q0-0", "nowhere", "positive")], "not in"),
        ([Verdict("nobody", "d0-0", "positive")], "give the collection that was judged"),
        (CROSSED, "no test query keeps a positive"),
    ],
)
def test_what_cannot_be_assembled_is_refused_and_nothing_is_left(collection, tmp_path, given, problem) -> None:
    with pytest.raises((CurateError, JuryProblem), match=problem):
        made(collection, tmp_path / "out", given, undecided="drop")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["collection"]


def test_duplicate_queries_and_a_folder_in_the_way_are_refused(tmp_path) -> None:
    twins = [Query("a", "感冒怎么办？"), Query("b", "感冒怎么办")]
    collection = write_collection(tmp_path / "twins", [Document("d", "多喝水。")], twins, {})
    given = [Verdict("a", "d", "positive"), Verdict("b", "d", "positive")]
    with pytest.raises(CurateError, match="'a' and 'b' are the same"):
        made(collection, tmp_path / "out", given)
    with pytest.raises(CurateError, match="there already"):
        made(collection, tmp_path / "twins", given)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(CurateError, match="at least one positive"):
        Assembly(negatives=0)
    with pytest.raises(CurateError, match="cannot be called"):
        Assembly("a/b")
    with pytest.raises(CurateError, match="two verdicts"):
        read_labels([Verdict("q", "d", "positive"), Verdict("q", "d", "negative")])
