"""What words and character bigrams are worth in the lexical leg: nDCG@10 by the weight of words, on BEIR folders.

    python benchmarks/lexical_weights.py dev/cmedir dev/consultation dev/cmedqa dev/nfcorpus [--out FILE]

The folders are those that tools/make_dev_collections.py writes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from suwen.bench.retrieval_metrics import evaluate
from suwen.corpora.collection import Collection
from suwen.index import lexical, lexical_terms
from suwen.text.segment import bigrams, words

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
            lexical_terms._FIELDS = (("words", words, weight), ("bigrams", bigrams, 1.0))
            run = {}
            for query in collection.queries():
                hits = index.search(searcher, searcher.doc_freq, query.text, 10, None, NOBODY, len(documents))
                run[query.id] = {
                    documents[row - 1].id: float(score) for row, score in zip(hits.rows, hits.scores, strict=True)
                }
            found.append(100 * float(evaluate(run, qrels, ["ndcg@10"])["ndcg@10"].mean()))
        index.close()
    return found


def main() -> None:
    """Measure each folder; print, and keep the numbers where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help="write the numbers to this file (JSON)")
    options = parser.parse_args()
    names = {0.0: "bigrams alone", 1e6: "words alone"}
    found: dict[str, dict[str, float]] = {}
    print("weight of words".ljust(24), *(f"{weight:>9g}" for weight in WEIGHTS))
    for folder in options.folders:
        values = measure(folder)
        print(folder.name.ljust(24), *(f"{value:>9.2f}" for value in values), flush=True)
        found[folder.name] = {
            names.get(weight, f"{weight:g}"): round(value, 2) for weight, value in zip(WEIGHTS, values, strict=True)
        }
    if options.out:
        options.out.write_text(json.dumps({"ndcg@10 x 100": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
