"""What a query in traditional characters finds among simplified documents: nDCG@10 with the tiers of a pair.

    python benchmarks/traditional_queries.py dev/cmedir dev/cmedqa

The folders are those that tools/make_dev_collections.py writes. Queries are asked as they are, with every character
that has a traditional form written so, and so again by a tokenizer that does not fold. A tier encodes both sides.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from suwen.bench.retrieval_metrics import evaluate
from suwen.corpora.collection import Collection
from suwen.encoders.pair import Pair
from suwen.encoders.query import Encoder
from suwen.text.fold import simplified


def traditional(text: str) -> str:
    """The text with the first traditional character of the table for each simplified one."""
    forms: dict[str, str] = {}
    for old, new in simplified().items():
        forms.setdefault(new, old)
    return text.translate(str.maketrans(forms))


def without_folding(pair: Pair, folder: Path) -> Pair:
    """A copy of a pair whose tokenizers read traditional characters as they are written."""
    shutil.copytree(pair.path, folder)
    for tier in pair.manifest.tiers.values():
        file = folder / tier.path / "tokenizer.json"
        content = json.loads(file.read_text(encoding="utf-8"))
        steps = content["normalizer"]["normalizers"]
        kept = [step for step in steps if step["type"] != "Precompiled"]
        if len(kept) == len(steps):
            raise SystemExit(f"{file} does not fold: there is nothing to compare")
        content["normalizer"]["normalizers"] = kept
        file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return Pair.load(folder, verify=False)


def ask(encoder: Encoder, queries: Sequence[str], documents: np.ndarray, collection: Collection) -> float:
    """nDCG@10 × 100 of queries whose documents are encoded."""
    qrels, names = collection.qrels(), [document.id for document in collection.documents()]
    scores = encoder.encode_queries(queries) @ documents.T
    best = np.argsort(-scores, axis=1)[:, :10]
    ids = [query.id for query in collection.queries()]
    run = {
        id_: {names[place]: float(row[place]) for place in places}
        for id_, places, row in zip(ids, best, scores, strict=True)
    }
    return 100 * float(evaluate(run, qrels, ["ndcg@10"])["ndcg@10"].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path)
    parser.add_argument("--pair", type=Path, help="another pair than the default")
    parser.add_argument("--tiers", nargs="+", help="all by default")
    chosen = parser.parse_args()
    pair = Pair.load(chosen.pair)
    print("collection".ljust(16), "tier".ljust(8), "simplified  traditional  not folded")
    with tempfile.TemporaryDirectory() as scratch:
        unfolded = without_folding(pair, Path(scratch) / "pair")
        for folder in chosen.collections:
            collection = Collection.open(folder)
            texts = [query.text for query in collection.queries()]
            asked = [traditional(text) for text in texts]
            for tier in chosen.tiers or pair.tiers:
                encoder = pair.encoder(tier)
                documents = encoder.encode_documents(
                    [f"{document.title}\n{document.text}".strip() for document in collection.documents()]
                )
                found = [ask(encoder, wording, documents, collection) for wording in (texts, asked)]
                found.append(ask(unfolded.encoder(tier), asked, documents, collection))
                print(
                    folder.name.ljust(16), tier.ljust(8), "{:>10.1f}  {:>11.1f}  {:>10.1f}".format(*found), flush=True
                )


if __name__ == "__main__":
    main()
