"""Draw the documents of SL-HyDE's run without labels, and smaller development collections to measure it on.

DATA is what ``make_training_data.py`` wrote: its training side, without what is held out. Documents are answers, pages'
titles, paragraphs of textbooks and articles, each by itself: which question an answer had is not kept. Beside them lie
questions that people asked, without answers, and for an encoder that has seen no label the texts that no model wrote
and the crops of DATA/rows. Example::

    python tools/make_unlabelled_data.py texts DATA OUT
    python tools/make_unlabelled_data.py measure DEV OUT/dev
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from suwen.text.segment import language_of

#: Documents by source, and the file of rows whose answers are among them.
DOCUMENTS = {
    "zh/toyhom-qa": (3000, "toyhom"),
    "zh/huatuo-qa-a": (2200, "huatuo"),
    "zh/disease-articles": (1000, "disease-articles"),
    "zh/textbook-sentences": (800, None),
    "zh/web-titles": (1000, "web-titles"),
}
#: Questions by source.
ASKED = {
    "zh/toyhom-qa": 2600,
    "zh/huatuo-qa-a": 1400,
    "zh/kuake-qqr-train": 1000,
    "zh/cmedqq-train": 600,
    "zh/covid-pairs-train": 400,
}
#: Fewest characters of a document that is a text, an answer of a row, a page's title; characters of a question.
TEXT, ANSWER, TITLE, QUESTION = 40, 30, 8, range(5, 121)
#: Most texts of the encoder without labels.
PLAIN = 300_000
#: Queries drawn of each development task; of others all.
QUERIES = {"consultation": 600, "cmedir": 450, "cmedqa": 300, "nfcorpus": 150}


def make_texts(data: Path, out: Path, share: float = 1.0) -> None:
    """Write ``texts.jsonl.gz`` (documents and questions), ``plain.jsonl.gz``, ``rows/`` and ``held-out.jsonl.gz``."""
    dice, texts = random.Random(19), list(_lines(data / "texts.jsonl.gz"))
    chinese = [one for one in texts if language_of(one["text"]) == "zh"]
    documents, asked = defaultdict(set), defaultdict(list)
    for one in chinese:
        if one["kind"] == "answer" and len(one["text"]) >= TEXT:
            documents[one["source"]].add(one["text"])
        elif one["kind"] == "query" and len(one["text"]) in QUESTION:
            asked[one["source"]].append(one["text"])
    for source, (_, name) in DOCUMENTS.items():
        file = data / "rows" / f"{name}.jsonl.gz"
        least = TITLE if name == "web-titles" else ANSWER
        if file.is_file():
            found = (row["pos"][0] for row in _lines(file))
            documents[source] |= {text for text in found if len(text) >= least and language_of(text) == "zh"}
    drawn = [
        *_drawn(
            dice, "answer", {name: (sorted(documents[name]), count) for name, (count, _) in DOCUMENTS.items()}, share
        ),
        *_drawn(dice, "query", {name: (asked[name], count) for name, count in ASKED.items()}, share),
    ]
    plain = [one for one in texts if one["source"] != "written"]
    dice.shuffle(plain)
    (out / "rows").mkdir(parents=True, exist_ok=True)
    _write(out / "texts.jsonl.gz", drawn)
    _write(out / "plain.jsonl.gz", plain[: round(PLAIN * share)])
    for file in sorted((data / "rows").glob("unsup-*.jsonl.gz")):
        shutil.copy(file, out / "rows")
    shutil.copy(data / "held-out.jsonl.gz", out)


def make_measure(dev: Path, out: Path) -> None:
    """Copy the collections with all their documents and some of their judged queries."""
    dice = random.Random(19)
    for corpus in sorted(dev.glob("*/corpus.jsonl")):
        task, to = corpus.parent, out / corpus.parent.name
        (to / "qrels").mkdir(parents=True, exist_ok=True)
        head, *judged = (task / "qrels" / "dev.tsv").read_text("utf-8").splitlines()
        known = {line.split("\t")[0] for line in judged}
        queries = [line for line in (task / "queries.jsonl").read_text("utf-8").splitlines() if line]
        queries = [line for line in queries if json.loads(line)["_id"] in known]
        dice.shuffle(queries)
        queries = queries[: QUERIES.get(task.name)]
        kept = {json.loads(line)["_id"] for line in queries}
        shutil.copy(corpus, to)
        (to / "queries.jsonl").write_text("\n".join(queries) + "\n", "utf-8")
        lines = [head, *(line for line in judged if line.split("\t")[0] in kept)]
        (to / "qrels" / "dev.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    shutil.copy(dev / "dev.toml", out)


def _drawn(
    dice: random.Random, kind: str, pools: dict[str, tuple[list[str], int]], share: float
) -> list[dict[str, str]]:
    found = []
    for source, (texts, count) in pools.items():
        own = list(texts)
        dice.shuffle(own)
        found += [{"text": text, "kind": kind, "source": source} for text in own[: round(count * share)]]
    dice.shuffle(found)
    return found


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as opened:
        yield from map(json.loads, opened)


def _write(file: Path, rows: Iterable[dict[str, str]]) -> None:
    with gzip.open(file, "wt", encoding="utf-8") as opened:
        opened.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    texts = commands.add_parser("texts", help="documents and questions without labels")
    texts.add_argument("data", type=Path, help="what make_training_data.py wrote")
    texts.add_argument("out", type=Path)
    texts.add_argument("--share", type=float, default=1.0, help="of the numbers above, for a smaller run")
    measure = commands.add_parser("measure", help="development collections with fewer queries")
    measure.add_argument("dev", type=Path, help="what make_dev_collections.py wrote")
    measure.add_argument("out", type=Path)
    asked = parser.parse_args()
    if asked.command == "texts":
        make_texts(asked.data, asked.out, asked.share)
    else:
        make_measure(asked.dev, asked.out)


if __name__ == "__main__":
    main()
