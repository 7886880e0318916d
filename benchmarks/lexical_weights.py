"""What words and character bigrams are worth in the lexical leg: nDCG@10 by the weight of words, on BEIR folders.

    python benchmarks/lexical_weights.py dev/cmedir dev/consultation dev/cmedqa dev/nfcorpus

The folders are those that tools/make_dev_collections.py writes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from suwen.bench.retrieval_metrics import evaluate
from suwen.corpora.collection import Collection
from suwen.index import lexical

WEIGHTS = (0.0, 0.5, 1.0, 2.0, 1e6)
NOBODY = np.empty(0, dtype=np.int64)


def measure(folder: Path) -> list[float]:
    collection = Collection.open(folder)
    documents = list(collection.documents())
    qrels = collection.qrels()
    with tempfile.TemporaryDirectory() as scratch:
        index = lexical.Lexical(Path(scratch) / "lexical", create=True)
        index.add((row, f"{document.title}\n{document.text}") for row, document in enumerate(documents, start=1))
        searcher = index.reload()
        found = []
        for weight in WEIGHTS:
            lexical.WORD_WEIGHT = weight
            run = {}
            for query in collection.queries():
                hits = index.search(searcher, query.text, 10, None, NOBODY, len(documents))
                run[query.id] = {documents[row - 1].id: float(score) for row, score in zip(*hits, strict=True)}
            found.append(100 * float(evaluate(run, qrels, ["ndcg@10"])["ndcg@10"].mean()))
        index.close()
    return found


if __name__ == "__main__":
    print("weight of words".ljust(24), *(f"{weight:>9g}" for weight in WEIGHTS))
    for argument in sys.argv[1:]:
        print(argument.ljust(24), *(f"{value:>9.2f}" for value in measure(Path(argument))), flush=True)
