"""Turn public medical question files into the development suite: collections, sentence pairs and ``dev.toml``.

One split is used by everything: of a file without a dev part, the rows whose first text has a sha1 divisible by ten are
held out, and only those are scored here. A pool to search in holds every document of its files, trained on or not.
``--suite bmretriever`` writes ``bmretriever.toml`` instead: English tasks with that paper's instructions, for pairs
whose prompt has a place for one, and all of PubMedQA and iCliniq, of which that paper trains on nothing. Other models
may have been trained on them: ``icliniq-held-out`` has the few questions of which nothing here has been.
``bmretriever-short`` has NFCorpus and iCliniq alone, for ablations.

The files are gzipped JSON lines, ``<name>.jsonl.gz``: zh/cmedir-dev, zh/cmedqa-dev and zh/cmedqq-dev (ChineseBLUE),
zh/huatuo-qa-a (SupritYoung/Zhongjing), zh/toyhom-qa (Toyhom/Chinese-medical-dialogue-data), en/nfcorpus/ with corpus,
queries-dev and qrels-dev (NFCorpus), en/medquad-qa (abachaa/MedQuAD), en/pubmedqa (pubmedqa),
en/medical-question-pairs (curai), en/consult-qa for bmretriever (icliniq, questionDoctor, eHealthForum). Example::

    python tools/make_dev_collections.py DATA dev && suwen bench run dev/dev.toml -s bm25:bigrams
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from public_rows import Row, rows_of

from suwen.bench.published_tables import instructions
from suwen.bench.suite_tasks import load_suite
from suwen.corpora.collection import write_collection
from suwen.corpora.records import Document, Qrel, Query
from suwen.curate.leakage import is_held_out
from suwen.text.clean import clean

log = logging.getLogger("dev-collections")
#: Grades by query text and document text.
Judged = dict[str, dict[str, int]]


class Entry(NamedTuple):
    """One task of the suite: its texts' source and licence, and how it is made."""

    name: str
    kind: str
    language: str
    licence: str
    source: str
    make: Callable[[Path, Path], None]
    asked: str = ""
    #: What is written for its queries as a hypothetical document; a passage where nothing is said.
    hyde: str = ""


def identity(text: str) -> str:
    """An id made of the text itself, so that a text has one id in every file."""
    return hashlib.sha1(text.encode()).hexdigest()[:16]


def write(folder: Path, pool: Iterable[str], judged: Judged, split: str = "dev") -> None:
    """Write a collection of distinct texts; queries are those that are judged."""
    texts = dict.fromkeys(text for raw in pool if (text := clean(raw)))
    grades = ((query, text, grade) for query in judged for text, grade in judged[query].items())
    write_collection(
        folder,
        (Document(identity(text), text) for text in texts),
        (Query(identity(query), query) for query in judged),
        {split: (Qrel(identity(query), identity(text), grade) for query, text, grade in grades)},
    )


def judge(judged: Judged, query: str, document: str, grade: int) -> None:
    """Note a judgement; the higher of two for one pair stays."""
    query, document = clean(query), clean(document)
    if query and document:
        grades = judged.setdefault(query, {})
        grades[document] = max(grade, grades.get(document, grade))


def held_out(row: Row) -> bool:
    """Whether nothing is trained on a row's question."""
    return is_held_out(row["query"])


def answers(*names: str, scored: Callable[[Row], bool] = held_out) -> Callable[[Path, Path], None]:
    """Questions of the held-out rows, or of others, against the answers of all rows."""

    def make(data: Path, folder: Path) -> None:
        pool: list[str] = []
        judged: Judged = {}
        for name in names:
            for row in rows_of(data, name):
                pool.append(row["document"])
                if scored(row):
                    judge(judged, row["query"], row["document"], 1)
        write(folder, pool, judged)

    return make


def titles(data: Path, folder: Path) -> None:
    """Queries against the pool of all titles; the gain is the label. A title without a label is unknown, not wrong."""
    pool: list[str] = []
    judged: Judged = {}
    for row in rows_of(data, "zh/cmedir-dev"):
        for title in row["documents"]:
            pool.append(title["text"])
            judge(judged, row["query"], title["text"], int(title["label"]))
    write(folder, pool, judged)


def right_answers(data: Path, folder: Path) -> None:
    """Questions that have a right answer, against the pool of all answers."""
    pool: list[str] = []
    judged: Judged = {}
    for row in rows_of(data, "zh/cmedqa-dev"):
        pool.append(row["document"])
        judge(judged, row["query"], row["document"], int(row["label"]))
    write(folder, pool, {query: grades for query, grades in judged.items() if any(grades.values())})


def nfcorpus(data: Path, folder: Path) -> None:
    """NFCorpus with the queries and judgements of its dev split."""
    documents = [Document(row["id"], row["text"]) for row in rows_of(data, "en/nfcorpus/corpus") if clean(row["text"])]
    queries = [Query(row["id"], row["text"]) for row in rows_of(data, "en/nfcorpus/queries-dev")]
    known, asked = {document.id for document in documents}, {query.id for query in queries}
    grades: dict[tuple[str, str], int] = {}
    for row in rows_of(data, "en/nfcorpus/qrels-dev"):
        pair = (row["query"], row["document"])
        if pair[0] in asked and pair[1] in known:
            grades[pair] = max(int(row["score"]), grades.get(pair, 0))
    write_collection(folder, documents, queries, {"dev": (Qrel(*pair, grade) for pair, grade in grades.items())})


def pairs(name: str, *, all_rows: bool) -> Callable[[Path, Path], None]:
    """Question pairs and whether they ask the same: all rows of a dev file, the held-out ones of another."""

    def make(data: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        with (folder / "dev.jsonl").open("w", encoding="utf-8") as file:
            for row in rows_of(data, name):
                if (all_rows or is_held_out(row["a"])) and clean(row["a"]) and clean(row["b"]):
                    record = {"sentence1": row["a"], "sentence2": row["b"], "score": row["label"]}
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")

    return make


ENTRIES = (
    Entry(
        "consultation",
        "retrieval",
        "zh",
        "Apache-2.0 and MIT",
        "SupritYoung/Zhongjing (huatuo-qa-a) and Toyhom/Chinese-medical-dialogue-data",
        answers("zh/huatuo-qa-a", "zh/toyhom-qa"),
    ),
    Entry("cmedir", "retrieval", "zh", "Apache-2.0", "alibaba-research/ChineseBLUE, cMedIR dev", titles, hyde="q2t"),
    Entry("cmedqa", "retrieval", "zh", "Apache-2.0", "alibaba-research/ChineseBLUE, cMedQA dev", right_answers),
    Entry("nfcorpus", "retrieval", "en", "academic use", "NFCorpus, dev split", nfcorpus),
    Entry("medquad", "retrieval", "en", "CC BY 4.0", "abachaa/MedQuAD", answers("en/medquad-qa")),
    Entry("pubmedqa", "retrieval", "en", "MIT", "pubmedqa, labelled part", answers("en/pubmedqa")),
    Entry(
        "cmedqq",
        "sts",
        "zh",
        "Apache-2.0",
        "alibaba-research/ChineseBLUE, cMedQQ dev",
        pairs("zh/cmedqq-dev", all_rows=True),
    ),
    Entry(
        "question-pairs",
        "sts",
        "en",
        "not specified",
        "curai medical-question-pairs",
        pairs("en/medical-question-pairs", all_rows=False),
    ),
)

#: Tasks of both suites, with the name of each in BMRetriever's tables of instructions.
NAMED = (("nfcorpus", "NFCorpus"), ("medquad", "MedQuad"), ("question-pairs", "MQP"))
ASKED = instructions("bmretriever")
PATIENTS = "icliniq, questionDoctor and eHealthForum"
#: What BMRetriever's method is measured on here; its own instruction goes before each query of a model that takes one.
BMRETRIEVER = (
    *(entry._replace(asked=ASKED[asked]) for entry in ENTRIES for name, asked in NAMED if entry.name == name),
    Entry(
        "pubmedqa",
        "retrieval",
        "en",
        "MIT",
        "pubmedqa, labelled part",
        answers("en/pubmedqa", scored=lambda row: True),
        ASKED["PubMedQA"],
    ),
    *(
        Entry(
            name,
            "retrieval",
            "en",
            "MIT",
            f"consult-qa: questions of icliniq, answers of {PATIENTS}",
            answers("en/consult-qa", scored=scored),
            ASKED["iCliniq"],
        )
        for name, scored in (
            ("icliniq", lambda row: row["source"] == "icliniq"),
            ("icliniq-held-out", lambda row: row["source"] == "icliniq" and held_out(row)),
        )
    ),
)
SUITES = {
    "dev": ENTRIES,
    "bmretriever": BMRETRIEVER,
    "bmretriever-short": tuple(entry for entry in BMRETRIEVER if entry.name in ("nfcorpus", "icliniq")),
}

HEAD = """\
# Written by tools/make_dev_collections.py: of files that are trained on, only held-out rows are scored.
name = "{suite}"
title = "Development measure"
paper = ""
reference = ""

[templates]
query = "{{text}}"
document = "{{text}}"
"""
TASK = """
[[tasks]]
name = "{name}"
kind = "{kind}"
language = "{language}"
metrics = {metrics}
split = "dev"
similarity = "{similarity}"
licence = "{licence}"
layouts = ["{layout}"]
path = "{name}"
get = "python tools/make_dev_collections.py DATA OUT; source: {source}"
instruction = {{ query = "{asked}", document = "" }}
hub = {{ id = "", revision = "" }}
counts = {{}}
"""
AVERAGE = """
[[averages]]
name = "{name}"
over = {over}
metric = "ndcg@10"
"""


def suite_text(suite: str) -> str:
    """The suite file."""
    ranking = json.dumps(["ndcg@10", "recall@100", "mrr@10", "map@10", "hole@10"])
    tasks = [
        TASK.format(
            **entry._asdict(),
            metrics=ranking if entry.kind == "retrieval" else json.dumps(["spearman", "pearson"]),
            layout="beir" if entry.kind == "retrieval" else "pairs",
            similarity="contract" if entry.kind == "retrieval" else "cosine",
        )
        + (f'hyde = "{entry.hyde}"\n' if entry.hyde else "")
        for entry in SUITES[suite]
    ]
    groups = {
        f"{language} retrieval": [e.name for e in ENTRIES if (e.kind, e.language) == ("retrieval", language)]
        for language in ("zh", "en")
    }
    if suite == "bmretriever":
        groups = {"NFCorpus, iCliniq, MedQuAD": ["nfcorpus", "icliniq", "medquad"]}
    elif suite == "bmretriever-short":
        groups = {"NFCorpus, iCliniq": ["nfcorpus", "icliniq"]}
    return (
        HEAD.format(suite=suite)
        + "".join(tasks)
        + "".join(AVERAGE.format(name=n, over=json.dumps(o)) for n, o in groups.items())
    )


def main() -> None:
    """Write everything into a new folder, which appears when it is whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of the files named above")
    parser.add_argument("out", type=Path, help="a new folder for the suite")
    parser.add_argument("--suite", choices=sorted(SUITES), default="dev", help="which tasks")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.out.exists():
        raise SystemExit(f"{options.out} exists; remove it or choose another folder")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{options.out.name}-", dir=options.out.parent))
    try:
        for entry in SUITES[options.suite]:
            entry.make(options.data, unfinished / entry.name)
            log.info("%s: from %s", entry.name, entry.source)
        file = unfinished / f"{options.suite}.toml"
        file.write_text(suite_text(options.suite), encoding="utf-8")
        load_suite(file)
        unfinished.chmod(0o755)
        unfinished.rename(options.out)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


if __name__ == "__main__":
    main()
