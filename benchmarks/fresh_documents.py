"""What fresh documents cost, and whether their scores can be compared with those of encoded ones.

    python benchmarks/fresh_documents.py COLLECTION... --vectors FOLDER --pair PAIR [--tier TIER] [--draws N]

A COLLECTION is a folder in BEIR's layout. FOLDER holds, for a collection's name, `NAME-documents.npy` (by the document
encoder), and `NAME-queries.npy` and `NAME-fresh.npy` (queries and documents, both by the tier), a row for each line of
`corpus.jsonl` or `queries.jsonl`. The latter two are made by the pair's tier, and kept there, where they are missing;
what the tier makes of documents as queries is encoded on the way.

Documents are drawn to be fresh so that the same share of the relevant ones is. Queries are halved: what is fitted to
queries is fitted on one half, and everything is measured on the other. "by the index" is what the product does: a
sample of the encoded documents, and no query at all. The last table runs through the engine: all documents arrive
fresh, then half of them are encoded, then the rest.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suwen.bench.retrieval_metrics import evaluate
from suwen.corpora.collection import Collection
from suwen.corpora.records import Document, Passage
from suwen.encoders.pair import Pair
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import EncodedDocument, Reencoded
from suwen.retrieve.freshness import PROBES, SAMPLE, Calibration

SHARES = (0.1, 0.5, 0.9)
K = 10
Values = np.ndarray[Any, Any]
#: Scores of fresh documents for some queries, brought to the scale of encoded ones.
Method = Callable[[Values, Calibration], Values]


class Task(NamedTuple):
    name: str
    document_ids: list[str]
    query_ids: list[str]
    qrels: dict[str, dict[str, int]]
    relevant: list[list[int]]
    queries: Values
    encoded: Values
    fresh: Values
    #: The tier's vectors of documents in the form of queries, by their rows.
    asked: Callable[[Values], Values]


# -- data -------------------------------------------------------------------------------------------------------------


def read(path: Path, folder: Path, pair: Pair, tier: str | None) -> Task:
    collection = Collection.open(path)
    documents, qrels = list(collection.documents()), collection.qrels()
    asked = [query for query in collection.queries() if query.id in qrels]
    place = {document.id: row for row, document in enumerate(documents)}
    relevant = [[place[id_] for id_, grade in qrels[query.id].items() if grade > 0 and id_ in place] for query in asked]
    whole = [f"{document.title}\n{document.text}" if document.title else document.text for document in documents]

    def vectors(side: str, texts: Sequence[str]) -> Values:
        file = folder / f"{path.name}-{side}.npy"
        if not file.is_file():
            if side == "documents":
                raise SystemExit(f"{file} is missing: encode the documents with the pair's document encoder")
            encoder = pair.encoder(tier)
            made = encoder.encode_queries(texts) if side == "queries" else encoder.encode_documents(texts)
            np.save(file, made.astype(np.float16))
        found = np.load(file).astype(np.float32)
        if len(found) != len(texts):
            raise SystemExit(f"{file} has {len(found)} rows for {len(texts)} texts: encode them again")
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))

    made = vectors("queries", [query.text for query in asked]), vectors("documents", whole), vectors("fresh", whole)
    ids = [one.id for one in documents], [one.id for one in asked]
    return Task(path.name, *ids, qrels, relevant, *made, asking(pair, tier, whole))


def asking(pair: Pair, tier: str | None, texts: Sequence[str]) -> Callable[[Values], Values]:
    """Texts in the form of queries, each encoded when it is first wanted."""
    known: dict[int, Values] = {}

    def asked(rows: Values) -> Values:
        missing = [int(row) for row in rows if int(row) not in known]
        for row, vector in zip(
            missing, pair.encoder(tier).encode_queries([texts[row] for row in missing]), strict=True
        ):
            known[row] = vector
        return np.stack([known[int(row)] for row in rows])

    return asked


def halves(task: Task) -> tuple[Values, Values]:
    order = np.random.default_rng(1).permutation(len(task.queries))
    middle = len(order) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])


def draw(task: Task, measured: Values, share: float, seed: int) -> Values:
    """A flag for each document; the same share of the measured queries' relevant documents as of the others."""
    rng = np.random.default_rng(seed)
    fresh = np.zeros(len(task.encoded), dtype=bool)
    judged = np.unique([row for query in measured for row in task.relevant[query]])
    for group in (judged, np.setdiff1d(np.arange(len(fresh)), judged)):
        fresh[rng.permutation(group)[: round(share * len(group))]] = True
    return fresh


# -- measuring --------------------------------------------------------------------------------------------------------


def best(scores: Values) -> Values:
    found = np.argpartition(-scores, K, axis=1)[:, :K]
    order = np.argsort(-np.take_along_axis(scores, found, axis=1), axis=1)
    return np.take_along_axis(found, order, axis=1)


def ndcg(task: Task, queries: Values, tops: Values) -> float:
    """Mean nDCG@10 in points; the order given is the order scored."""
    run = {
        task.query_ids[query]: ([task.document_ids[row] for row in top], [-float(place) for place in range(len(top))])
        for query, top in zip(queries, tops, strict=True)
    }
    return 100 * float(evaluate(run, {id_: task.qrels[id_] for id_ in run}, ["ndcg@10"])["ndcg@10"].mean())


def plain(queries: Values, calibration: Calibration) -> Values:
    return np.tile([1.0, 0.0], (len(queries), 1))


def by_the_index(queries: Values, calibration: Calibration) -> Values:
    return np.array([calibration.scale(query) for query in queries])


def one_map(encoded: Values, fresh: Values) -> Method:
    """One affine map for all queries: the top 50 of the fitted half get the same mean and deviation."""
    tops = [np.sort(scores, axis=1)[:, -50:] for scores in (encoded, fresh)]
    slope = float(tops[0].std() / tops[1].std())
    return lambda queries, _: np.tile([slope, tops[0].mean() - slope * tops[1].mean()], (len(queries), 1))


def fit(task: Task, sample: Values) -> Calibration:
    return Calibration.fit(task.encoded[sample], task.fresh[sample], task.asked(sample[:PROBES]))


def slope_of(queries: Values) -> Method:
    """As the index does it, with the slope measured by queries instead of the sample's own texts."""

    def scales(measured: Values, calibration: Calibration) -> Values:
        falls = []
        for vectors in (calibration.encoded, calibration.fresh):
            scores = -np.sort(-(queries @ vectors.T), axis=1)
            falls.append(
                (scores[:, : len(vectors) // 100].mean(axis=1) - scores[:, : len(vectors) // 10].mean(axis=1)).mean()
            )
        fitted = Calibration(calibration.encoded, calibration.fresh, float(falls[0] / falls[1]))
        return by_the_index(measured, fitted)

    return scales


def compare(task: Task, draws: int, size: int) -> None:
    fitted, measured = halves(task)
    encoded, fresh = task.queries @ task.encoded.T, task.queries @ task.fresh.T
    methods = {
        "plain scores": plain,
        "one map for all queries": one_map(encoded[fitted], fresh[fitted]),
        "slope by half the queries": slope_of(task.queries[fitted]),
        "**by the index**": by_the_index,
    }
    ends = [f"{ndcg(task, measured, best(scores[measured])):.2f}" for scores in (encoded, fresh)]
    print(f"| {task.name} | all encoded {ends[0]}, all fresh {ends[1]} | | | | | | |")
    for name, method in methods.items():
        cells = []
        for share in SHARES:
            found = np.array(
                [mixed(task, encoded, fresh, measured, share, seed, size, method) for seed in range(draws)]
            )
            gap, spread, accuracy = found[:, 0].mean(), found[:, 0].std(), found[:, 1].mean()
            cells += [f"{gap:+.1f} ± {spread:.1f}", f"{accuracy:.2f}"]
        print(f"| {task.name} | {name} | {' | '.join(cells)} |", flush=True)


def mixed(
    task: Task, encoded: Values, fresh: Values, measured: Values, share: float, seed: int, size: int, method: Method
) -> tuple[float, float]:
    """By how many points the fresh share of the top 10 is over that of the relevant documents; nDCG@10."""
    flags = draw(task, measured, share, seed)
    sample = np.random.default_rng(seed).permutation(np.flatnonzero(~flags))[:size]
    calibration = fit(task, sample)
    scales = method(task.queries[measured], calibration)
    tops = best(np.where(flags, scales[:, :1] * fresh[measured] + scales[:, 1:], encoded[measured]))
    relevant = np.concatenate([flags[task.relevant[query]] for query in measured]).mean()
    return 100 * float(flags[tops].mean() - relevant), ndcg(task, measured, tops)


# -- through the engine -----------------------------------------------------------------------------------------------


def through_the_engine(task: Task) -> None:
    _, measured = halves(task)
    flags = draw(task, measured, 0.5, 0)
    with tempfile.TemporaryDirectory() as scratch:
        engine = EmbeddedEngine.create(Path(scratch) / "index", space="sp-measured", dimension=task.fresh.shape[1])
        for start in range(0, len(task.fresh), 2048):
            engine.add([one(task, row) for row in range(start, min(start + 2048, len(task.fresh)))])
        found = [searched(task, engine, measured, None)]
        for rows in (np.flatnonzero(~flags), np.flatnonzero(flags)):
            for start in range(0, len(rows), 2048):
                part = rows[start : start + 2048]
                made = [Reencoded(task.document_ids[row], "1", task.encoded[row][None]) for row in part]
                assert set(engine.reencode(made, "document").values()) == {"stored"}
            sample = np.random.default_rng(0).permutation(np.flatnonzero(~flags))[:SAMPLE]
            found.append(searched(task, engine, measured, fit(task, sample)))
        engine.close()
    never = ndcg(task, measured, best(task.queries[measured] @ task.encoded.T))
    print(f"| {task.name} | {' | '.join(f'{value:.2f}' for value in [*found, never])} |", flush=True)


def one(task: Task, row: int) -> EncodedDocument:
    id_ = task.document_ids[row]
    passage = Passage(id_, 0, f"编号{row}", 0, len(f"编号{row}"), "")
    return EncodedDocument(Document(id_, passage.text), [passage], task.fresh[row][None], "tier", "1")


def searched(task: Task, engine: EmbeddedEngine, measured: Values, calibration: Calibration | None) -> float:
    place = {id_: row for row, id_ in enumerate(task.document_ids)}
    tops = []
    with engine.snapshot() as snapshot:
        for query in task.queries[measured]:
            scales = {"tier": calibration.scale(query)} if calibration is not None else None
            rows = snapshot.dense(query, K, None, scales).rows.tolist()
            tops.append([place[item.passage.document_id] for item in snapshot.fetch(rows)])
    return ndcg(task, measured, np.array(tops))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", type=Path, nargs="+")
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--pair", type=Path, required=True, help="whose tier it is")
    parser.add_argument("--tier", help="the pair's default where left out")
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--sample", type=int, default=SAMPLE, help="passages with both vectors")
    options = parser.parse_args()
    pair = Pair.load(options.pair)
    tasks = [read(path, options.vectors, pair, options.tier) for path in options.collections]
    print("| collection | scores | 10% fresh: gap | nDCG@10 | 50%: gap | nDCG@10 | 90%: gap | nDCG@10 |")
    print("|---|---|---|---|---|---|---|---|")
    for task in tasks:
        compare(task, options.draws, options.sample)
    print("\nThrough the engine, nDCG@10:\n\n| collection | all fresh | half encoded | all re-encoded | never fresh |")
    print("|---|---|---|---|---|")
    for task in tasks:
        through_the_engine(task)


if __name__ == "__main__":
    main()
