"""How far real questions stand above off-topic ones, and from what height on a question should count as answered.

    python benchmarks/confidence_curves.py DEV --vectors FOLDER --documents document|transformer|static --tier TIER
        [--questions 400] [--mode hybrid|dense|lexical]

DEV and FOLDER are those of benchmarks/hybrid_fusion.py; TIER of the default pair made FOLDER's queries, and encodes the
off-topic ones, tests/data/questions/off_topic_development.jsonl. Heights are deviations above what the questions of
calibration find, as an index measures them; questions are searched as typed, without other names. Told is, for each
task and for the mean, which share of real questions is kept and which of off-topic ones is turned away from each height
on, and where both are furthest above what is asked of them (0.95 and 0.92). The mean leaves NFCorpus out: its queries
are titles and single words ("dogs", "spain", "golden glow"), of which nobody could say that they ask about medicine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
from hybrid_fusion import NOBODY, TASKS, vectors_of
from question_set import QUESTIONS

from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_data import Ranked
from suwen.bench.task_loading import load_data
from suwen.encoders.pair import Pair
from suwen.encoders.who_encodes import Maker
from suwen.index.engine import Ranking
from suwen.index.lexical import Lexical
from suwen.index.vectors import best
from suwen.retrieve.fuse import DEPTH, WEIGHTS_BY, WORDS, fuse_hybrid, highest
from suwen.retrieve.relevance import measure_null

HEIGHTS = tuple(round(0.05 * step, 2) for step in range(10, 80))
KEPT, AWAY = 0.95, 0.92
ASKED_BY_PEOPLE = ("consultation", "cmedir", "cmedqa")
Values = np.ndarray[Any, Any]


def heights(
    data: Ranked, vectors: tuple[Values, Values], maker: Maker, tier: str, off: list[str], mode: str = "hybrid"
) -> tuple[Values, Values]:
    """Of the best hit of each real question, and of each off-topic one."""
    queries, documents = vectors
    pair, rows, weights = Pair.load(None), np.arange(len(documents)), WEIGHTS_BY[maker]
    encoder = pair.encoder(tier)
    again = encoder.encode_queries(data.queries[:20])
    if np.einsum("ij,ij->i", again, queries[:20]).mean() < 0.98:
        raise SystemExit(f"the ready vectors of the queries are not by the default pair's {tier}")
    with tempfile.TemporaryDirectory() as scratch:
        index = Lexical(Path(scratch) / "lexical", create=True)
        index.add(enumerate(data.documents, start=1))
        searcher = index.reload()

        def lexical(text: str, k: int) -> Ranking:
            found = index.search(searcher, searcher.doc_freq, text, k, None, NOBODY, len(documents))
            return found._replace(rows=found.rows - 1)

        def dense(vector: Values, k: int, _where: None = None, beside: Values | None = None) -> Ranking:
            return best(rows, documents @ vector, k, beside)

        null = measure_null(dense, lexical, encoder, len(rows), maker, pair.space, weights)

        def height(text: str, vector: Values) -> float:
            words = lexical(text, WORDS)
            legs = {"dense": dense(vector, DEPTH, None, np.sort(words.rows)), "lexical": words}
            if mode != "hybrid":
                return null.height(mode, highest(mode, legs[mode]))
            return null.height("hybrid", float(fuse_hybrid(legs, 1, weights).scores[0]))

        real = [height(text, vector) for text, vector in zip(data.queries, queries, strict=False)]
        away = [height(text, vector) for text, vector in zip(off, encoder.encode_queries(off), strict=True)]
        index.close()
    return np.array(real), np.array(away)


def main() -> None:
    """Read every task's legs, tell the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--documents", choices=get_args(Maker), default="transformer")
    parser.add_argument("--tier", default="l6", help="the encoder of the queries")
    parser.add_argument("--questions", type=int, default=400, help="of each task, the first so many")
    parser.add_argument("--mode", choices=("hybrid", "dense", "lexical"), default="hybrid", help="of the search")
    options = parser.parse_args()
    text = (QUESTIONS / "off_topic_development.jsonl").read_text(encoding="utf-8")
    off = [json.loads(line)["text"] for line in text.splitlines()]
    suite, shares = load_suite(options.dev / "dev.toml"), {}
    for task in suite.tasks:
        if task.name in TASKS:
            data = load_data(suite, task)
            assert isinstance(data, Ranked)
            queries, documents = vectors_of(task.name, data, options.vectors, None)
            some = (queries[: options.questions], documents)
            real, away = heights(data, some, options.documents, options.tier, off, options.mode)
            shares[task.name] = np.array([[np.mean(real >= height), np.mean(away < height)] for height in HEIGHTS])
    shares["mean"] = np.mean([shares[name] for name in ASKED_BY_PEOPLE], axis=0)
    print(f"documents by {options.documents}, queries by {options.tier}, {options.mode}: kept / turned away\n")
    print(f"| from the height | {' | '.join(shares)} |\n|---|" + "---|" * len(shares))
    for place, height in enumerate(HEIGHTS):
        cells = [f"{kept:.3f} / {away:.3f}" for kept, away in (found[place] for found in shares.values())]
        print(f"| {height:.2f} | {' | '.join(cells)} |")
    room = (shares["mean"] - [KEPT, AWAY]).min(axis=1)
    print(f"\nmost room at {HEIGHTS[int(room.argmax())]:.2f}: {room.max():+.3f}")


if __name__ == "__main__":
    main()
