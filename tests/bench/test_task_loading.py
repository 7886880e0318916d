from __future__ import annotations

import json
from pathlib import Path

import pytest

from suwen.bench.task_data import DataError, MissingData, Paired, Ranked
from suwen.bench.task_loading import load_data, load_task, locate

REVISION = "0123456789abcdef0123456789abcdef01234567"
DOCUMENTS = {
    "d1": "高血压 高血压患者应低盐饮食并定期测量血压",
    "d2": "糖尿病的早期症状包括多饮多尿和体重下降",
}
QRELS = {"q1": {"d1": 2, "d6": 0}, "q2": {"d2": 1}, "q3": {"d3": 1, "d4": 0}}


def put(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def put_parquet(path: Path, rows: list[dict]) -> Path:
    import pyarrow
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def judgements(query="query-id", document="corpus-id") -> list[dict]:
    return [{query: q, document: d, "score": grade} for q, found in QRELS.items() for d, grade in found.items()]


def to_cmirb(beir: Path, folder: Path) -> Path:
    rows = [{"id": r["_id"], "title": r["title"], "text": r["text"]} for r in read(beir / "corpus.jsonl")]
    put(folder / "corpus.jsonl", rows)
    put(folder / "query.jsonl", [{"id": r["_id"], "text": r["text"]} for r in read(beir / "queries.jsonl")])
    put(folder / "qrels.jsonl", judgements("q_id", "p_id"))
    return folder


def to_mteb_parquet(beir: Path, folder: Path) -> Path:
    put_parquet(folder / "corpus" / "corpus-00000-of-00001.parquet", read(beir / "corpus.jsonl"))
    put_parquet(folder / "queries" / "queries-00000-of-00001.parquet", read(beir / "queries.jsonl"))
    put_parquet(folder / "qrels" / "test-00000-of-00001.parquet", judgements())
    return folder


def to_cmteb_parquet(beir: Path, folder: Path) -> Path:
    rows = [{"id": r["_id"], "title": r["title"], "text": r["text"]} for r in read(beir / "corpus.jsonl")]
    put_parquet(folder / "data" / "corpus-00000-of-00001-0a1b2c.parquet", rows)
    asked = [{"id": r["_id"], "text": r["text"]} for r in read(beir / "queries.jsonl")]
    put_parquet(folder / "data" / "queries-00000-of-00001-0a1b2c.parquet", asked)
    put(Path(f"{folder}-qrels") / "test.jsonl", judgements("qid", "pid"))
    return folder


LAYOUTS = {"beir": lambda beir, _: beir, "cmirb": to_cmirb, "mteb": to_mteb_parquet, "cmteb": to_cmteb_parquet}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_collection_layout_loads_the_same(layout: str, beir: Path, tmp_path: Path, make_suite):
    suite = make_suite({"name": "One"})
    data = load_data(suite, suite.tasks[0], {"One": LAYOUTS[layout](beir, tmp_path / layout)})
    assert isinstance(data, Ranked)
    assert data.query_ids == ["q1", "q2", "q3"]
    assert data.qrels == QRELS
    assert dict(zip(data.document_ids, data.documents, strict=True)).items() >= DOCUMENTS.items()
    assert data.candidates is None


def test_a_collection_reranks_what_is_judged(beir: Path, make_suite):
    suite = make_suite({"name": "One", "kind": "rerank", "metrics": ["map@10"]})
    data = load_data(suite, suite.tasks[0], {"One": beir})
    named = [[data.document_ids[row] for row in rows] for rows in data.candidates]
    assert named == [["d1", "d6"], ["d2"], ["d3", "d4"]]
    assert data.document_ids == ["d1", "d2", "d3", "d4", "d6"]  # d5 is nobody's candidate


def test_top_ranked_names_the_candidates(beir: Path, make_suite):
    put_parquet(
        beir / "top_ranked" / "test-00000-of-00001.parquet",
        [{"query-id": q, "corpus-ids": ["d5", "d1", "d3", "d2"]} for q in ("q1", "q2", "q3")],
    )
    suite = make_suite({"name": "One", "kind": "rerank", "metrics": ["map@10"]})
    data = load_data(suite, suite.tasks[0], {"One": beir})
    assert [data.document_ids[row] for row in data.candidates[2]] == ["d5", "d1", "d3", "d2"]


ROWS = [
    {"query": "血压高怎么办", "pos": ["低盐饮食", "定期测量血压"], "neg": ["多喝热水", "多喝热水"]},
    {"query": "胃痛", "pos": ["慢性胃炎"], "neg": ["低盐饮食"]},
]


def test_care_rows_are_candidates(tmp_path: Path, make_suite):
    suite = make_suite({"name": "One", "kind": "rerank", "metrics": ["map@10"]})
    data = load_data(suite, suite.tasks[0], {"One": put(tmp_path / "care.jsonl", ROWS)})
    assert data.documents == ["低盐饮食", "定期测量血压", "多喝热水", "慢性胃炎"]
    assert data.qrels == {"q0": {"d0": 1, "d1": 1, "d2": 0}, "q1": {"d3": 1, "d0": 0}}
    assert data.candidates == [[0, 1, 2], [3, 0]]
    assert data.notes == ("1 passages stood twice in one list and count once",)


def test_mteb_reranking_rows_in_parquet(tmp_path: Path, make_suite):
    rows = [{"query": row["query"], "positive": row["pos"], "negative": row["neg"]} for row in ROWS]
    put_parquet(tmp_path / "x" / "data" / "test-00000-of-00001-ab12.parquet", rows)
    suite = make_suite({"name": "One", "kind": "rerank", "metrics": ["map@10"]})
    data = load_data(suite, suite.tasks[0], {"One": tmp_path / "x"})
    assert data.candidates == [[0, 1, 2], [3, 0]]


def test_rows_are_a_pool_in_a_retrieval(tmp_path: Path, make_suite):
    suite = make_suite({"name": "One"})
    data = load_data(suite, suite.tasks[0], {"One": put(tmp_path / "care.jsonl", ROWS)})
    assert data.candidates is None and len(data.documents) == 4


def test_triplets_are_searched_among_the_positives(tmp_path: Path, make_suite):
    rows = [
        {"anchor": "MI was treated", "positive": "heart attack was treated", "negatives": ["the knee was seen"]},
        {"anchor": "AF is common", "positive": "atrial fibrillation is common", "negatives": []},
    ]
    suite = make_suite({"name": "P", "kind": "paraphrase", "metrics": ["accuracy@1", "positive_similarity"]})
    data = load_data(suite, suite.tasks[0], {"P": put(tmp_path / "t.jsonl", rows)})
    assert data.documents == ["heart attack was treated", "atrial fibrillation is common"]
    assert data.qrels == {"q0": {"d0": 1}, "q1": {"d1": 1}}


CSV = {
    "question.csv": "question_id,content\n11,头痛怎么办\n12,发烧吃什么药\n13,不在其中\n",
    "answer.csv": 'ans_id,question_id,content\n1,11,"多休息，少熬夜"\n2,12,吃退烧药\n3,12,多喝水\n4,9,无关\n',
}


@pytest.mark.parametrize(
    "candidates",
    [
        "question_id,ans_id,cnt,label\n11,1,2,1\n11,3,2,0\n12,2,2,1\n12,1,2,0\n",
        "question_id,pos_ans_id,neg_ans_id\n11,1,3\n12,2,1\n12,2,1\n",
    ],
)
def test_cmedqa_csv_with_candidates(candidates: str, tmp_path: Path, make_suite):
    for name, text in {**CSV, "test_candidates.txt": candidates}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    suite = make_suite({"name": "One", "kind": "rerank", "metrics": ["map@10"]}, {"name": "Pool"})
    data = load_data(suite, suite.task("One"), {"One": tmp_path})
    assert data.query_ids == ["11", "12"]
    assert data.qrels == {"11": {"1": 1, "3": 0}, "12": {"2": 1, "1": 0}}
    assert data.documents == ["多休息，少熬夜", "吃退烧药", "多喝水"]
    pool = load_data(suite, suite.task("Pool"), {"Pool": tmp_path})
    assert pool.document_ids == ["1", "2", "3", "4"] and pool.candidates is None


def test_cmedqa_without_the_candidates_of_the_split_names_the_file(tmp_path: Path, make_suite):
    for name, text in CSV.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    suite = make_suite({"name": "One", "kind": "rerank", "metrics": ["map@10"]})
    with pytest.raises(DataError, match=r"test_candidates\.txt"):
        load_data(suite, suite.tasks[0], {"One": tmp_path})


PAIRS = [
    {"sentence1": "心梗", "sentence2": "心肌梗死", "score": 5},
    {"sentence1": "心梗", "sentence2": "骨折", "score": 0.5},
]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "folder"])
def test_sentence_pairs_in_every_form(form: str, tmp_path: Path, make_suite):
    path = tmp_path / f"pairs.{form}"
    if form == "csv":
        path.write_text("a,b,label\n心梗,心肌梗死,5\n心梗,骨折,0.5\n", encoding="utf-8")
    elif form == "parquet":
        put_parquet(path, PAIRS)
    elif form == "folder":
        put(path / "train.jsonl", PAIRS[::-1])
        put_parquet(path / "data" / "test-00000-of-00001.parquet", PAIRS)
    else:
        put(path, PAIRS)
    suite = make_suite({"name": "S", "kind": "sts", "metrics": ["spearman"]})
    data = load_data(suite, suite.tasks[0], {"S": path})
    assert isinstance(data, Paired)
    assert (data.left, data.right, data.scores) == (["心梗", "心梗"], ["心肌梗死", "骨折"], [5.0, 0.5])


def test_a_root_folder_holds_the_tasks(beir: Path, tmp_path: Path, make_suite):
    suite = make_suite({"name": "One"}, {"name": "S", "kind": "sts", "metrics": ["pearson"]})
    root = tmp_path / "data"
    (root / "mine").mkdir(parents=True)
    beir.rename(root / "mine" / "One")
    put(root / "S.jsonl", PAIRS)
    assert locate(suite, suite.task("One"), root).path == root / "mine" / "One"
    assert load_data(suite, suite.task("S"), root).scores == [5.0, 0.5]


def test_the_revision_that_a_download_noted_is_kept(beir: Path, make_suite):
    note = beir / ".cache" / "huggingface" / "download" / "corpus.jsonl.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{REVISION}\nabc\n1.0\n")
    suite = make_suite({"name": "One", "hub": "org/one"})
    source = load_data(suite, suite.tasks[0], {"One": beir}).source
    assert (source.hub, source.revision) == ("org/one", REVISION)


def test_a_pinned_revision_comes_from_the_hubs_cache(beir: Path, tmp_path: Path, make_suite, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub" / "datasets--org--one" / "snapshots" / REVISION
    snapshot.parent.mkdir(parents=True)
    beir.rename(snapshot)
    suite = make_suite({"name": "One", "hub": "org/one", "revision": REVISION})
    data = load_data(suite, suite.tasks[0], offline=True)
    assert data.qrels == QRELS and data.source.revision == REVISION


def test_missing_data_say_how_to_get_them(tmp_path: Path, make_suite, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    suite = make_suite(
        {"name": "Hub", "hub": "org/one", "revision": REVISION},
        {"name": "Unpinned", "hub": "org/one"},
        {"name": "Private"},
    )
    for name, words in (
        ("Hub", f"org/one at {REVISION}.*fetch Hub by hand.*--data Hub=PATH"),
        ("Unpinned", "--revision COMMIT.*fetch Unpinned by hand"),
        ("Private", "no public copy.*fetch Private by hand"),
    ):
        with pytest.raises(MissingData, match=words):
            load_data(suite, suite.task(name), offline=True)
    with pytest.raises(MissingData, match=r"nothing at .*gone.*fetch Hub by hand"):
        load_data(suite, suite.task("Hub"), {"Hub": tmp_path / "gone"})
    with pytest.raises(MissingData, match="check --data"):
        load_data(suite, suite.task("Hub"), tmp_path / "gone")


def edit_qrels(beir: Path, *extra: str) -> None:
    file = beir / "qrels" / "test.tsv"
    file.write_text(file.read_text() + "".join(f"{line}\n" for line in extra))


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("q1\tnowhere\t1", r"1 documents that are not in the corpus: 'nowhere'.*--lenient"),
        ("q9\td1\t1", r"1 queries that are not in the queries: 'q9'.*--lenient"),
        ("q1\td1\t2", r"test\.tsv:7: query 'q1' judges document 'd1' twice \(grades 2 and 2\)"),
        ("q1\td1\t0", r"judges document 'd1' twice \(grades 2 and 0\).*keep the higher"),
    ],
)
def test_bad_judgements_are_named_and_lenient_leaves_them_out(extra: str, words: str, beir: Path, make_suite):
    edit_qrels(beir, extra)
    suite = make_suite({"name": "One"})
    with pytest.raises(DataError, match=words):
        load_data(suite, suite.tasks[0], {"One": beir})
    data = load_data(suite, suite.tasks[0], {"One": beir}, lenient=True)
    assert data.qrels == QRELS and len(data.notes) == 1


def test_an_empty_candidate_list_is_named(beir: Path, tmp_path: Path, make_suite):
    suite = make_suite({"name": "One", "kind": "rerank", "metrics": ["map@10"]})
    rows = put(tmp_path / "care.jsonl", [ROWS[0], {"query": "空", "pos": [], "neg": [""]}])
    with pytest.raises(DataError, match=r"care\.jsonl:2: query 'q1' has an empty candidate list"):
        load_data(suite, suite.tasks[0], {"One": rows})
    given = [{"query-id": "q1", "corpus-ids": ["d1"]}, {"query-id": "q2", "corpus-ids": []}]
    put(beir / "top_ranked" / "test.jsonl", given)
    with pytest.raises(DataError, match="query 'q2' has no candidates"):
        load_data(suite, suite.tasks[0], {"One": beir})


def test_a_passage_that_is_right_and_wrong_contradicts_itself(tmp_path: Path, make_suite):
    rows = put(tmp_path / "care.jsonl", [{"query": "问", "pos": ["答"], "neg": ["答"]}])
    suite = make_suite({"name": "One", "kind": "rerank", "metrics": ["map@10"]})
    with pytest.raises(DataError, match=r"twice \(grades 1 and 0\)"):
        load_data(suite, suite.tasks[0], {"One": rows})


def test_a_truncated_parquet_is_named(beir: Path, tmp_path: Path, make_suite):
    folder = to_mteb_parquet(beir, tmp_path / "cut")
    file = folder / "corpus" / "corpus-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    suite = make_suite({"name": "One"})
    with pytest.raises(DataError, match=r"Task One: .*corpus-00000.*not a whole parquet file.*get it again"):
        load_data(suite, suite.tasks[0], {"One": folder})


@pytest.mark.parametrize("score", ["", "nan", "very"])
def test_a_pair_without_a_number_is_named(score: str, tmp_path: Path, make_suite):
    (tmp_path / "p.csv").write_text(f"a,b,score\n一,二,1\n一,三,{score}\n", encoding="utf-8")
    suite = make_suite({"name": "S", "kind": "sts", "metrics": ["pearson"]})
    with pytest.raises(DataError, match=r"p\.csv:3: the field 'score' holds"):
        load_data(suite, suite.tasks[0], {"S": tmp_path / "p.csv"})


def test_another_split_is_never_taken_silently(tmp_path: Path, beir: Path, make_suite):
    (beir / "qrels" / "test.tsv").rename(beir / "qrels" / "train.tsv")
    suite = make_suite({"name": "One"}, {"name": "Dev", "split": "dev"})
    with pytest.raises(DataError, match="no judgements for the split 'test'; the splits here are: train"):
        load_data(suite, suite.task("One"), {"One": beir})
    (beir / "qrels" / "train.tsv").rename(beir / "qrels" / "validation.tsv")
    assert load_data(suite, suite.task("Dev"), {"Dev": beir}).qrels == QRELS  # dev goes by two names


def test_a_folder_of_something_else_names_the_layouts(tmp_path: Path, make_suite):
    suite = make_suite({"name": "One"})
    (tmp_path / "x").mkdir()
    with pytest.raises(DataError, match=r"none of the layouts a retrieval task takes .beir: corpus\.jsonl"):
        load_task(suite.tasks[0], locate(suite, suite.tasks[0], {"One": tmp_path / "x"}))


def test_other_counts_than_the_suite_states_are_noted(beir: Path, make_suite):
    suite = make_suite(
        {"name": "Same", "path": beir, "counts": "{ queries = 3, documents = 6 }"},
        {"name": "Other", "path": beir, "counts": "{ queries = 734, documents = 6 }"},
        {"name": "About", "path": beir, "counts": "{ queries = 700, approximate = true }"},
    )
    notes = {task.name: load_data(suite, task).notes for task in suite.tasks}
    assert notes["Same"] == notes["About"] == ()
    assert len(notes["Other"]) == 1 and "states 734 queries, these are 3" in notes["Other"][0]


def test_a_fingerprint_follows_what_is_scored(beir: Path, make_suite):
    suite = make_suite({"name": "One"})
    before = load_data(suite, suite.tasks[0], {"One": beir}).fingerprint()
    assert load_data(suite, suite.tasks[0], {"One": beir}).fingerprint() == before
    edit_qrels(beir, "q2\td1\t1")
    assert load_data(suite, suite.tasks[0], {"One": beir}).fingerprint() != before
