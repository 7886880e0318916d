"""Finding the parts of a collection."""

import pytest

from suwen.corpora.collection_layouts import find_layout


@pytest.mark.parametrize(
    ("names", "corpus", "queries", "qrels"),
    [
        (
            ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv", "qrels/dev.tsv", "README.md"],
            ["corpus.jsonl"],
            ["queries.jsonl"],
            {"dev": ["qrels/dev.tsv"], "test": ["qrels/test.tsv"]},
        ),
        (
            [
                "corpus.jsonl.gz",
                "queries-dev.jsonl.gz",
                "queries-train.jsonl.gz",
                "qrels-dev.jsonl.gz",
                "qrels-train.jsonl",
            ],
            ["corpus.jsonl.gz"],
            ["queries-dev.jsonl.gz", "queries-train.jsonl.gz"],
            {"dev": ["qrels-dev.jsonl.gz"], "train": ["qrels-train.jsonl"]},
        ),
        (
            ["corpus.jsonl", "query.jsonl", "qrels.jsonl"],
            ["corpus.jsonl"],
            ["query.jsonl"],
            {"test": ["qrels.jsonl"]},
        ),
        (
            [
                "data/corpus-00001-of-00002-ab12.parquet",
                "data/corpus-00000-of-00002-cd34.parquet",
                "data/queries-00000-of-00001-ef.parquet",
                "data/dev-00000-of-00001.parquet",
            ],
            ["data/corpus-00000-of-00002-cd34.parquet", "data/corpus-00001-of-00002-ab12.parquet"],
            ["data/queries-00000-of-00001-ef.parquet"],
            {"dev": ["data/dev-00000-of-00001.parquet"]},
        ),
        (
            ["corpus/test-00000-of-00001.parquet", "queries/x.parquet", "qrels/test-00000-of-00001.parquet"],
            ["corpus/test-00000-of-00001.parquet"],
            ["queries/x.parquet"],
            {"test": ["qrels/test-00000-of-00001.parquet"]},
        ),
        (
            ["corpus-00000-of-00001.parquet", "queries.parquet", "dev.parquet"],
            ["corpus-00000-of-00001.parquet"],
            ["queries.parquet"],
            {"dev": ["dev.parquet"]},
        ),
        (["corpus.jsonl", "corpus.jsonl.gz", ".corpus.jsonl"], ["corpus.jsonl"], [], {}),
        (["train.jsonl", "dev.jsonl"], [], [], {}),
    ],
)
def test_layouts(tmp_path, names, corpus, queries, qrels):
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    layout = find_layout(tmp_path)

    def relative(paths):
        return [path.relative_to(tmp_path).as_posix() for path in paths]

    assert relative(layout.corpus) == corpus
    assert relative(layout.queries) == queries
    assert {split: relative(paths) for split, paths in layout.qrels.items()} == qrels


def test_c_mteb_judgements_lie_beside_the_collection(tmp_path):
    for name in ("Cmed/data/corpus-00000-of-00001.parquet", "Cmed-qrels/data/dev-00000-of-00001.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    layout = find_layout(tmp_path / "Cmed")
    assert layout.qrels == {"dev": [tmp_path / "Cmed-qrels/data/dev-00000-of-00001.parquet"]}
