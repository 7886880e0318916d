"""What a search costs with filters of any selectivity, and what it takes beside processes that keep every core busy.

Run: python benchmarks/filter_cost.py [--passages 96000 --dimension 256 --queries 60 --rounds 5 --index FOLDER]

An index of drawn vectors and texts, made once where ``--index`` names a folder. Each round asks every query without a
filter and with each filter, in turn, of the engine's legs alone (nothing is encoded): hybrid is both legs to the depth
that hybrid search reads. A filter is asked for again and again, as a page of a site does; the first time right after a
write, in the first round the first time ever (rounds are told by their median). Then as many
processes as there are cores compute without an end, and the legs are timed again: CPU and wall of dense beside
lexical's. All that is said is a ratio within one run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

from suwen.corpora.records import Document, Passage
from suwen.index.embedded import EmbeddedEngine
from suwen.index.engine import EncodedDocument, Snapshot

WORDS = "高血压 糖尿病 头痛 阿司匹林 肾结石 发热 咳嗽 胰岛素 抗生素 血栓 房颤 贫血 骨折 过敏 失眠 胃炎 肝炎 肺炎 痛风"
SHARES = {"none": 0.0, "0.1%": 0.001, "1%": 0.01, "5%": 0.05, "15%": 0.15, "30%": 0.3, "60%": 0.6, "95%": 0.95}
DEPTH = 200
#: Of no filter: the bar for the filter of 15%.
TARGET = 1.5


def make(folder: Path, passages: int, dimension: int) -> None:
    """An index of one passage a document, with one field for each share."""
    draw, rng = random.Random(1), np.random.default_rng(1)
    engine = EmbeddedEngine.create(folder, space="sp-bench", dimension=dimension)
    # Near one of many centres, as real texts are.
    centres = rng.standard_normal((500, dimension)).astype(np.float32)
    for start in range(0, passages, 4096):
        batch = []
        for number in range(start, min(start + 4096, passages)):
            text = " ".join(draw.choices(WORDS.split(), k=12)) + f" 编号{number}"
            vector = centres[draw.randrange(500)] + rng.standard_normal(dimension).astype(np.float32)
            metadata = {f"f{name}": draw.random() < share for name, share in SHARES.items() if share}
            document = Document(f"d{number}", text, "", metadata)
            unit = (vector / np.linalg.norm(vector))[None, :]
            batch.append(EncodedDocument(document, [Passage(document.id, 0, text, 0, len(text))], unit, "static"))
        engine.add(batch)
    engine.rebuild()
    engine.close()


def leg(name: str, snapshot: Snapshot, vector: np.ndarray, text: str, where: dict[str, bool] | None) -> None:
    if name != "lexical":
        snapshot.dense(vector, DEPTH, where)
    if name != "dense":
        snapshot.lexical(text, DEPTH, where)


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of CPU, of all threads, and of wall."""
    cpu, wall = time.process_time(), time.perf_counter()
    act()
    return 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)


@contextmanager
def busy_cores():
    """As many processes as cores, each computing until the end."""
    burning = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in burning:
        process.start()
    try:
        yield
    finally:
        for process in burning:
            process.terminate()
            process.join()


def _burn() -> None:
    while True:
        sum(range(10_000))


def filters(engine: EmbeddedEngine, asked: list, rounds: int) -> None:
    print("| filter | dense | lexical | hybrid | hybrid, after a write |\n|---|---|---|---|---|")
    spent: dict[tuple[str, str], list[float]] = {}
    cold: dict[str, list[float]] = {}
    for _ in range(rounds):
        for share in SHARES:
            where = {f"f{share}": True} if SHARES[share] else None
            # A write makes a new view, in which what filters admit is brought up to date.
            engine.remember(round=str(time.time()))
            with engine.snapshot() as snapshot:
                cold.setdefault(share, []).append(timed(lambda: leg("hybrid", snapshot, *asked[0], where))[0])  # noqa: B023
                for name in ("dense", "lexical", "hybrid"):
                    took = [timed(lambda one=one: leg(name, snapshot, *one, where))[0] for one in asked]  # noqa: B023
                    spent.setdefault((share, name), []).append(float(np.mean(took)))
    for share in SHARES:
        ratios = [median(spent[share, name]) / median(spent["none", name]) for name in ("dense", "lexical", "hybrid")]
        first = median(cold[share]) / median(cold["none"])
        print(f"| {share} | " + " | ".join(f"{ratio:.2f}" for ratio in (*ratios, first)) + " |")
    told = median(spent["15%", "hybrid"]) / median(spent["none", "hybrid"])
    fresh = median(cold["15%"]) / median(cold["none"])
    met = "met" if max(told, fresh) <= TARGET else "MISSED"
    print(f"\n15%: {told:.2f} times no filter, {fresh:.2f} right after a write; target {TARGET}: {met}")


def stalls(engine: EmbeddedEngine, asked: list) -> None:
    print("\n| cores | dense / lexical, CPU | dense / lexical, p50 of wall | p95 |\n|---|---|---|---|")

    def compare(state: str) -> None:
        took: dict[str, list[tuple[float, float]]] = {"dense": [], "lexical": []}
        with engine.snapshot() as snapshot:
            for one in asked * 3:
                for name, spent in took.items():
                    spent.append(timed(lambda: leg(name, snapshot, *one, None)))  # noqa: B023
        dense, lexical = (np.array(took[name]) for name in ("dense", "lexical"))
        walls = [np.percentile(dense[:, 1], at) / np.percentile(lexical[:, 1], at) for at in (50, 95)]
        print(f"| {state} | {dense[:, 0].mean() / lexical[:, 0].mean():.2f} | {walls[0]:.2f} | {walls[1]:.2f} |")

    compare("as they are")
    with busy_cores():
        compare("all busy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("--passages", 96_000), ("--dimension", 256), ("--queries", 60), ("--rounds", 5)):
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--index", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.index or Path(scratch) / "index"
        if not EmbeddedEngine.exists(folder):
            make(folder, given.passages, given.dimension)
        engine = EmbeddedEngine.open(folder, write=True)
        rng, draw = np.random.default_rng(2), random.Random(2)
        vectors = rng.standard_normal((given.queries, engine.dimension)).astype(np.float32)
        asked = [(v / np.linalg.norm(v), " ".join(draw.choices(WORDS.split(), k=3))) for v in vectors]
        filters(engine, asked, given.rounds)
        stalls(engine, asked)
        engine.close()


if __name__ == "__main__":
    main()
