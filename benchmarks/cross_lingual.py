"""Retrieval across languages: a Chinese question finds an English passage, and back, beside the same within a language.

Run: python benchmarks/cross_lingual.py [COLLECTION] [--model PATH ...] [--base PATH] [--names DATA [--rows ROWS]] \
         [--cache FOLDER] [--out FILE]

COLLECTION is tests/data/cross-lingual, or one in BEIR's layout whose ids begin with the language (`zh-`, `en-`). Each
way is searched in the passages of the answer's language alone (`own`), and in those of both (`both`), where passages on
the same topic in the question's language stand in the way.

The systems are BM25 (character pairs), each tier of the default pair with documents by the tier itself, the default
tier with BM25 as hybrid search fuses them, and each sentence-transformers model named. With --base (a GGUF file, a
folder or a hub id) also the tiers over documents by the document encoder, and the document encoder on both sides.

--names measures translations of names too: zh-en/icd10-names (GNU Health) and zh-en/hpo-labels (HPO) of DATA, files of
tools/make_training_data.py. A name finds its translation among all names of the other language. Both files are training
data of the default pair. ROWS, the rows that tool draws, tells names whose translation was a training row from others.
Names are searched by BM25 and by the tiers alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suwen.bench.dense_systems import PairSystem, rank_densely
from suwen.bench.ranking_systems import BM25, Hybrid
from suwen.bench.retrieval_metrics import evaluate
from suwen.bench.suite_tasks import BySide, Counts, Hub, Task
from suwen.bench.system_specs import parse_systems
from suwen.bench.systems import RankingContext, Setting, Side, System, is_dense
from suwen.bench.task_data import Ranked, Source
from suwen.bench.vector_cache import VectorCache
from suwen.corpora.collection import Collection
from suwen.corpora.files import open_text
from suwen.encoders.pair import Pair
from suwen.encoders.query import Vectors
from suwen.encoders.who_encodes import DOCUMENT
from suwen.text.clean import clean

HERE = Path(__file__).parents[1]
METRICS = ("ndcg@10", "recall@1", "recall@10")
WAYS = ("zh->en", "en->zh", "zh->zh", "en->en")
DEPTH = 100
HAN = re.compile("[\u4e00-\u9fff]")
Scores = dict[str, dict[str, float]]


class Search(NamedTuple):
    """One measurement: a way (`zh->en`), where it searches (`own`, `both`, a file of names), and its data."""

    way: str
    where: str
    data: Ranked


class OwnTier(PairSystem):
    """A tier on both sides: what a machine has that cannot run the language model."""

    def __init__(self, pair: Pair, tier: str) -> None:
        super().__init__(f"pair:default#{tier}", pair, tier)
        self.name = f"{tier}, documents by {tier}"

    def contract(self, setting: Setting | None, side: Side) -> dict[str, Any]:
        """The query side's contract, told apart by the side."""
        return super().contract(setting, "query") | {"side": side}

    def encode(self, texts: Sequence[str], setting: Setting | None, side: Side) -> Vectors:
        """Both forms by the tier."""
        if side == "query":
            return super().encode(texts, setting, side)
        assert self.tier is not None
        return self.pair.encoder(self.tier).encode_documents(texts)


def ranked(documents: dict[str, str], queries: dict[str, str], qrels: dict[str, dict[str, int]], path: Path) -> Ranked:
    """Data of one search; queries are those that are judged."""
    asked = {id_: text for id_, text in queries.items() if id_ in qrels}
    columns = ([*documents], [*documents.values()], [*asked], [*asked.values()])
    return Ranked(*columns, {id_: qrels[id_] for id_ in asked}, Source(path))


def questions(path: Path) -> Iterator[Search]:
    """The four ways through a collection, in both pools."""
    collection = Collection.open(path)
    documents = {one.id: one.text for one in collection.documents()}
    queries, qrels = {one.id: one.text for one in collection.queries()}, collection.qrels("test")
    for way in WAYS:
        asked, answered = way.split("->")
        judged = {
            query: grades
            for query, grades in qrels.items()
            if query.startswith(asked) and all(one.startswith(answered) for one in grades)
        }
        own = {id_: text for id_, text in documents.items() if id_.startswith(answered)}
        yield Search(way, "own", ranked(own, queries, judged, path))
        yield Search(way, "both", ranked(documents, queries, judged, path))


def lines(file: Path) -> list[dict[str, Any]]:
    """The records of a file of JSON lines."""
    with open_text(file) as stream:
        return [json.loads(line) for line in stream]


def drawn(texts: Iterable[str], most: int) -> list[str]:
    """So many texts, the same ones in every run and of every order."""
    return sorted(set(texts), key=lambda text: hashlib.sha1(text.encode()).hexdigest())[:most]


def names(data: Path, file: str, most: int, trained: set[tuple[str, str]] | None) -> Iterator[Search]:
    """Names of one file to their translations, both ways; apart, if known, those that were trained on and the rest."""
    pairs = {(clean(row["zh"]), clean(row["en"])) for row in lines(data / "zh-en" / f"{file}.jsonl.gz")}
    pairs = {(zh, en) for zh, en in pairs if len(zh) > 1 and len(en) > 2}
    for asked, answered in ((0, 1), (1, 0)):
        translations: dict[str, dict[str, int]] = {}
        for pair in sorted(pairs):
            translations.setdefault(pair[asked], {})[pair[answered]] = 1
        pool = {text: text for text in sorted({pair[answered] for pair in pairs})}
        groups = {file: [*translations]}
        if trained is not None:
            seen = {pair[asked] for pair in trained}
            groups[f"{file}, translation trained on"] = [name for name in translations if name in seen]
            groups[f"{file}, translation not trained on"] = [name for name in translations if name not in seen]
        for where, group in groups.items():
            queries = {name: name for name in drawn(group, most)}
            yield Search(("zh->en", "en->zh")[asked], where, ranked(pool, queries, translations, data))


def trained_pairs(rows: Path) -> set[tuple[str, str]]:
    """The pairs (zh, en) of the translation rows that tools/make_training_data.py drew, from both files of names."""
    texts = ((row["query"], row["pos"][0]) for name in ("icd10", "hpo") for row in lines(rows / f"{name}.jsonl.gz"))
    return {(one, other) if HAN.search(one) else (other, one) for one, other in texts}


def systems(base: str | None, models: Sequence[str]) -> Iterator[System]:
    """What is measured, in the order of the table."""
    pair = Pair.load()
    tiers = [pair.default_tier, *(name for name in pair.tiers if name != pair.default_tier)]
    lexical = BM25("bm25:bigrams", "bigrams")
    yield lexical
    yield from parse_systems([f"st:{model}" for model in models])
    for tier in tiers:
        yield OwnTier(pair, tier)
    yield named(Hybrid("", OwnTier(pair, tiers[0]), lexical), f"hybrid of BM25 and {tiers[0]}, documents by {tiers[0]}")
    if base:
        os.environ["SUWEN_BASE"] = base
        for tier in tiers:
            yield named(PairSystem("", pair, tier), f"{tier}, documents by the document encoder")
        over = PairSystem("", pair, tiers[0])
        yield named(Hybrid("", over, lexical), f"hybrid of BM25 and {tiers[0]}, documents by the document encoder")
        yield named(PairSystem("", pair, DOCUMENT), "document encoder on both sides")


def named(system: System, name: str) -> System:
    """A system under the name it has in the table."""
    system.name = name
    return system


def measure(system: System, search: Search, cache: VectorCache) -> dict[str, float]:
    """The metrics of one search, x 100, and half of the 95% interval of nDCG@10 over its queries."""
    task = Task(
        name=search.where,
        kind="retrieval",
        language="zh",
        metrics=METRICS,
        split="test",
        licence="-",
        layouts=("beir",),
        get="-",
        instruction=BySide(query="", document=""),
        hub=Hub(id="", revision=""),
        counts=Counts(),
    )
    setting, context = Setting(task, BySide(query="{text}", document="{text}")), RankingContext(cache, DEPTH)
    data = search.data
    found = rank_densely(system, data, setting, context) if is_dense(system) else system.rank(data, setting, context)  # type: ignore[attr-defined]
    run = {}
    for query, rows, scores in zip(data.query_ids, found.rows, found.scores, strict=True):
        there = rows >= 0
        run[query] = {
            data.document_ids[row]: float(score) for row, score in zip(rows[there], scores[there], strict=True)
        }
    values = evaluate(run, data.qrels, METRICS)
    spread = 1.96 * float(np.std(values["ndcg@10"], ddof=1)) / len(data.queries) ** 0.5
    return {name: round(100 * float(each.mean()), 2) for name, each in values.items()} | {
        "ndcg@10 ±": round(100 * spread, 2)
    }


def tables(results: dict[str, dict[str, Scores]], counts: dict[str, dict[str, str]]) -> str:
    """A table for each place that was searched: nDCG@10, and recall@1 / recall@10."""
    text = ""
    for where, rows in results.items():
        ways = [way for way in WAYS if any(way in row for row in rows.values())]
        sizes = "; ".join(sorted(set(counts[where].values())))
        text += f"\n{where} ({sizes})\n\n| system | {' | '.join(ways)} |\n|---|{'---|' * len(ways)}\n"
        for system, row in rows.items():
            cells = (row[way] for way in ways)
            shown = [f"{c['ndcg@10']:.1f} ({c['recall@1']:.1f}, {c['recall@10']:.1f})" for c in cells]
            text += f"| {system} | {' | '.join(shown)} |\n"
    return text


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, nargs="?", default=HERE / "tests" / "data" / "cross-lingual")
    parser.add_argument("--model", action="append", default=[], help="a sentence-transformers model to compare with")
    parser.add_argument("--base", help="the base of the document encoder's adapter")
    parser.add_argument("--names", type=Path, help="the folder with zh-en/icd10-names and zh-en/hpo-labels")
    parser.add_argument("--rows", type=Path, help="the folder `rows` of tools/make_training_data.py")
    parser.add_argument("--most", type=int, default=1000, help="names asked for each way, drawn by hash")
    parser.add_argument("--cache", type=Path, help="where to keep vectors between runs")
    parser.add_argument("--out", type=Path, help="write all numbers to this file (JSON)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every system on the questions; names by BM25 and the tiers alone, since there are tens of thousands."""
    options = parsed(arguments)
    searches = [*questions(options.collection)]
    if options.names:
        trained = trained_pairs(options.rows) if options.rows else None
        for file in ("icd10-names", "hpo-labels"):
            searches += names(options.names, file, options.most, trained)
    results: dict[str, dict[str, Scores]] = {}
    counts: dict[str, dict[str, str]] = {}
    for one in searches:
        sizes = f"{len(one.data.queries)} queries, {len(one.data.documents)} texts"
        counts.setdefault(one.where, {})[one.way] = sizes
    with tempfile.TemporaryDirectory() as scratch:
        cache = VectorCache(options.cache or scratch)
        for system in systems(options.base, options.model):
            light = isinstance(system, BM25 | OwnTier)
            for search in searches:
                if light or search.where in ("own", "both"):
                    row = results.setdefault(search.where, {}).setdefault(system.name, {})
                    row[search.way] = measure(system, search, cache)
            system.release()
            print(f"{system.name}: done", file=sys.stderr, flush=True)
    print(tables(results, counts))
    if options.out:
        report = {"metric": "x 100, linear gain", "counts": counts, "results": results}
        options.out.write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
