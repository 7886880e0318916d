"""Collections: opened in each public layout, written in BEIR's, and checked."""

import json

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from suwen.corpora.collection import Collection, write_collection
from suwen.corpora.files import CorpusError
from suwen.corpora.records import Document, Qrel, Query
from suwen.text.clean import clean

DOCUMENTS = [Document(f"d{number}", f"第{number}条。", f"题{number}") for number in range(1, 13)]
QUERIES = [Query(f"q{number}", f"问{number}") for number in range(1, 10)]
QRELS = {"dev": [Qrel("q1", "d1", 2), Qrel("q1", "d2", 0), Qrel("q9", "d12", 1)], "test": [Qrel("q2", "d3", 1)]}
DEV = {"q1": {"d1": 2, "d2": 0}, "q9": {"d12": 1}}

ID = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=8).filter(
    lambda text: clean(text) == text
)
TEXT = st.text(max_size=40).map(clean)
SCALAR = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
METADATA = st.dictionaries(ID.filter(lambda key: key != "metadata"), SCALAR | st.lists(SCALAR, max_size=3), max_size=3)


def lines(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")


def table(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(records)), path)


def write_beir(folder):
    lines(folder / "corpus.jsonl", ({"_id": d.id, "title": d.title, "text": d.text} for d in DOCUMENTS))
    lines(folder / "queries.jsonl", ({"_id": q.id, "text": q.text, "metadata": {}} for q in QUERIES))
    (folder / "qrels").mkdir()
    rows = "".join(f"{q}\t{d}\t{grade}\n" for q, d, grade in QRELS["dev"])
    (folder / "qrels" / "dev.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")


def write_cmirb(folder):
    lines(folder / "corpus.jsonl", ({"id": d.id, "text": d.text, "title": d.title} for d in DOCUMENTS))
    lines(folder / "query.jsonl", ({"id": q.id, "text": q.text} for q in QUERIES))
    lines(folder / "qrels.jsonl", ({"q_id": q, "p_id": d, "score": grade} for q, d, grade in QRELS["dev"]))


def write_split_lines(folder):
    lines(folder / "corpus.jsonl", ({"id": d.id, "text": d.text, "title": d.title} for d in DOCUMENTS))
    lines(folder / "queries-dev.jsonl", ({"id": q.id, "text": q.text} for q in QUERIES[:5]))
    lines(folder / "queries-train.jsonl", ({"id": q.id, "text": q.text} for q in QUERIES[5:]))
    lines(folder / "qrels-dev.jsonl", ({"query": q, "document": d, "score": grade} for q, d, grade in QRELS["dev"]))


def write_c_mteb(folder):
    table(folder / "data/corpus-00000-of-00001-ab.parquet", (d._asdict() | {"metadata": None} for d in DOCUMENTS))
    table(folder / "data/queries-00000-of-00001-cd.parquet", (q._asdict() for q in QUERIES))
    table(folder / "data/dev-00000-of-00001.parquet", ({"qid": q, "pid": d, "score": g} for q, d, g in QRELS["dev"]))


def write_mteb(folder):
    table(folder / "corpus/x.parquet", ({"_id": d.id, "title": d.title, "text": d.text} for d in DOCUMENTS))
    table(folder / "queries/x.parquet", ({"_id": q.id, "text": q.text} for q in QUERIES))
    rows = ({"query-id": q, "corpus-id": d, "score": float(grade)} for q, d, grade in QRELS["dev"])
    table(folder / "qrels/dev-00000-of-00001.parquet", rows)


@pytest.mark.parametrize("write", [write_beir, write_cmirb, write_split_lines, write_c_mteb, write_mteb])
def test_every_layout(tmp_path, write):
    write(tmp_path)
    collection = Collection.open(tmp_path)
    documents, queries = list(collection.documents()), collection.queries()
    assert (len(documents), len(queries)) == (12, 9)
    assert (documents[0], documents[8], documents[-1]) == (DOCUMENTS[0], DOCUMENTS[8], DOCUMENTS[11])
    assert (queries[0], queries[-1]) == (QUERIES[0], QUERIES[8])
    (split,) = collection.splits()
    assert split == ("test" if write is write_cmirb else "dev")
    assert collection.qrels(split) == collection.qrels() == DEV
    assert [query.id for query in collection.queries(split)] == ["q1", "q9"]
    assert collection.check() == []


def test_splits_stay_apart_and_can_be_joined(tmp_path):
    collection = write_collection(tmp_path / "c", DOCUMENTS, QUERIES, QRELS)
    assert collection.splits() == ["dev", "test"]
    assert collection.qrels("test") == {"q2": {"d3": 1}}
    assert collection.qrels() == {**DEV, "q2": {"d3": 1}}
    with pytest.raises(CorpusError, match="no judgements for the split 'train'; the splits here are: dev, test"):
        collection.qrels("train")


def test_what_is_written_is_beir(tmp_path):
    document = Document("d1", "头痛。", "", {"year": 2020, "tags": ["a"]})
    write_collection(str(tmp_path / "new" / "c"), [document], [Query("q1", "痛？")], {"test": [Qrel("q1", "d1", 1)]})
    folder = tmp_path / "new" / "c"
    assert json.loads((folder / "corpus.jsonl").read_text("utf-8")) == {
        "_id": "d1",
        "title": "",
        "text": "头痛。",
        "metadata": {"year": 2020, "tags": ["a"]},
    }
    assert (folder / "queries.jsonl").read_text("utf-8") == '{"_id": "q1", "text": "痛？"}\n'
    assert (folder / "qrels" / "test.tsv").read_text("utf-8") == "query-id\tcorpus-id\tscore\nq1\td1\t1\n"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["c"]


@settings(max_examples=50)
@given(
    st.lists(
        st.builds(Document, ID, TEXT.filter(bool), TEXT, METADATA), min_size=1, max_size=4, unique_by=lambda d: d.id
    ),
    st.lists(st.builds(Query, ID, TEXT.filter(bool)), max_size=4, unique_by=lambda query: query.id),
    st.dictionaries(
        st.from_regex(r"[a-z]{1,4}", fullmatch=True),
        st.lists(st.builds(Qrel, ID, ID, st.integers(-1, 4)), max_size=4, unique_by=lambda qrel: qrel[:2]),
        max_size=2,
    ),
)
def test_what_is_written_is_read(tmp_path_factory, documents, queries, qrels):
    path = tmp_path_factory.mktemp("round") / "c"
    write_collection(path, iter(documents), iter(queries), qrels)
    collection = Collection.open(path)
    assert list(collection.documents()) == documents
    assert collection.queries() == queries
    assert collection.splits() == sorted(qrels)
    for split, judgements in qrels.items():
        flat = {
            (query, document): grade
            for query, grades in collection.qrels(split).items()
            for document, grade in grades.items()
        }
        assert flat == {qrel[:2]: qrel.grade for qrel in judgements}


def test_dirty_texts_are_cleaned_on_the_way(tmp_path):
    document = Document("d1", "头\ud800痛\x00", "\ufeff题", {"source": "书\ud800"})
    collection = write_collection(tmp_path / "c", [document], [], {})
    assert list(collection.documents()) == [Document("d1", "头痛", "题", {"source": "书"})]


@pytest.mark.parametrize(
    ("documents", "queries", "qrels", "said"),
    [
        ([DOCUMENTS[0], DOCUMENTS[0]], [], {}, "document id 'd1' occurs twice"),
        ([Document("", "x")], [], {}, "document id '' cannot be written"),
        ([Document("a\tb", "x")], [], {}, "cannot be written"),
        ([Document("a", " ")], [], {}, "document 'a' has no text"),
        (DOCUMENTS, [Query("q", "")], {}, "query 'q' has no text"),
        (DOCUMENTS, QUERIES, {"../x": []}, "cannot be called '../x'"),
        (DOCUMENTS, QUERIES, {"test": [Qrel("q\n", "d", 1)]}, "query id .* cannot be written"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(tmp_path, documents, queries, qrels, said):
    with pytest.raises(CorpusError, match=said):
        write_collection(tmp_path / "c", documents, queries, qrels)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_fails_halfway_leaves_nothing_behind(tmp_path):
    def failing():
        yield DOCUMENTS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_collection(tmp_path / "c", failing(), [], {})
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "c").mkdir()
    write_collection(tmp_path / "c", DOCUMENTS, QUERIES, QRELS)
    with pytest.raises(CorpusError, match="already there"):
        write_collection(tmp_path / "c", DOCUMENTS[:1], [], {})
    assert len(list(Collection.open(tmp_path / "c").documents())) == 12


def test_check_says_what_is_wrong(tmp_path):
    lines(tmp_path / "corpus.jsonl", [{"_id": "d1", "text": "甲"}, {"_id": "d1", "text": "乙"}])
    lines(tmp_path / "queries.jsonl", [{"_id": "q1", "text": "甲"}, {"_id": "q1", "text": "乙"}])
    unknown = [{"qid": "q2", "pid": f"x{number}", "score": 1} for number in range(5)]
    lines(tmp_path / "qrels-dev.jsonl", [{"qid": "q1", "pid": "d1", "score": 1}, *unknown])
    assert Collection.open(tmp_path).check() == [
        "1 document ids occur more than once: d1",
        "1 query ids occur more than once: q1",
        "1 queries judged in dev are not in the queries: q2",
        "5 documents judged in dev are not in the corpus: x0, x1, x2 and 2 more",
    ]


def test_missing_parts(tmp_path):
    with pytest.raises(CorpusError, match="no such folder"):
        Collection.open(tmp_path / "none")
    with pytest.raises(CorpusError, match=r"no corpus here; a collection has corpus\.jsonl"):
        Collection.open(tmp_path)
    lines(tmp_path / "corpus.jsonl", [{"_id": "d1", "text": "甲"}])
    collection = Collection.open(tmp_path)
    assert collection.check() == ["there are no queries", "there are no judgements"]
    assert collection.splits() == [] and collection.qrels() == {}
    with pytest.raises(CorpusError, match=r"add queries\.jsonl"):
        collection.queries()


def test_bad_queries_and_judgements_name_their_line(tmp_path):
    write_beir(tmp_path)
    lines(tmp_path / "queries.jsonl", [{"_id": "q1", "text": "甲"}, {"_id": "q2"}])
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\thigh\n", encoding="utf-8")
    collection = Collection.open(tmp_path)
    with pytest.raises(CorpusError, match=r"queries\.jsonl:2"):
        collection.queries()
    with pytest.raises(CorpusError, match=r"dev\.tsv:2: .*whole number"):
        collection.qrels()
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1"', encoding="utf-8")
    with pytest.raises(CorpusError, match="cut off"):
        collection.queries()
