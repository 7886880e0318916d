"""What a query costs in one checkout over another: CPU time in alternating bursts, with 95% intervals of the ratio.

    python benchmarks/query_cost_of_releases.py --old OLD --new NEW [--blocks 12] [--pairs 120] [--out FILE.json]

OLD and NEW are checkouts of suwen, or their ``src`` folders; this Python has the dependencies of both. Each side is a
process of its own that opens the same index, which OLD made of the bundled sample collection, with the default pair.
The two take turns at short bursts of the same queries, pinned to one core, and count their own CPU time, so that what
else the machine does troubles both alike. A block of bursts ends with the processes: a new process has another layout
of its memory, which alone makes a per cent of difference, so the interval is over blocks.

Exit code 1 when the two give other hits, or the upper end of an interval of the default tier is over the bar of 1.03.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

BAR = 1.03
#: Set by ``--other-hits``: a change of the ranking itself finds other hits, and is held to the bar of such a change.
OTHER_HITS = "--other-hits" in sys.argv
OTHER_BAR = 1.15
#: Set by ``--one-encoder``: the sample alone, all by the document encoder, where hits like the first ones move up.
ONE_ENCODER = "--one-encoder" in sys.argv
#: Queries of one burst, by mode and tier: each takes about 15 milliseconds, so that most end undisturbed.
CASES = {"dense": 2, "lexical": 12, "hybrid": 2, "dense static": 10, "hybrid static": 6}
#: Those the bar is for: the default tier's.
HELD = ("dense", "lexical", "hybrid")
#: Copies of the sample's documents beside the sample itself, so that there is a sealed file and a tail.
COPIES = 8
#: Of a block's pairs, the share left out at either end: a burst in which the kernel was at work says nothing.
TRIMMED = 0.2


class Side:
    """A process that answers queries with the code of one checkout."""

    def __init__(self, source: Path, index: Path, pair: Path, core: int) -> None:
        command = [sys.executable, __file__, "--serve", str(index), "--pair", str(pair), "--core", str(core)]
        self.source = source
        self._process = subprocess.Popen(
            command, env=environment(source), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **asked: Any) -> Any:
        """Hand the process one line, and read one."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.source} ended: its own message says why")
        return json.loads(line)

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def environment(source: Path) -> dict[str, str]:
    """One thread, the same order of hashes, and this source before any other."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SUWEN")}
    return {**kept, **threads, "PYTHONPATH": str(source), "PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1"}


def serve(index: str, pair: str, core: int) -> None:
    """The other side of :class:`Side`: answers lines until there are no more."""
    if core >= 0:
        os.sched_setaffinity(0, {core})
    import suwen

    with suwen.open(index, pair=pair) as opened:
        for line in sys.stdin:
            asked = json.loads(line)
            mode, _, tier = asked["case"].partition(" ")
            options = {"mode": mode, "tier": tier or None}
            started = time.process_time_ns()
            hits = [opened.search(query, 10, **options).hits for query in asked["queries"]]
            spent = time.process_time_ns() - started
            said = {"spent": spent, "hits": [[hit.id for hit in found] for found in hits]}
            print(json.dumps(said), flush=True)


def make_index(source: Path, folder: Path) -> None:
    """The sample by the document encoder's vectors, copies of its documents by a tier, and the scale between them."""
    run = "import sys; from suwen.cli.main import run; sys.argv[0] = 'suwen'; run()"
    corpus = (source / "suwen" / "sample" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    copies = folder.parent / "copies.jsonl"
    with copies.open("w", encoding="utf-8") as file:
        for copy in range(COPIES):
            for document in map(json.loads, corpus):
                changed = {"_id": f"{document['_id']}-{copy}", "text": f"{document['text']}（第{copy}版）"}
                file.write(json.dumps({**document, **changed}, ensure_ascii=False) + "\n")
    added = [] if ONE_ENCODER else [["add", str(folder), str(copies), "--tier", "static"]]
    for verb in (["demo", str(folder)], *added):
        subprocess.run([sys.executable, "-c", run, *verb], env=environment(source), check=True, stdout=sys.stderr)


def block(sides: list[Side], queries: list[str], pairs: int, rng: random.Random) -> dict[str, list[float]]:
    """For every case the logarithms of new over old, one for each pair of bursts."""
    ratios: dict[str, list[float]] = {case: [] for case in CASES}
    for case in CASES:
        # The first round reads files and fills caches; that both sides find the same is seen on the way.
        first, second = (side.ask(case=case, queries=queries)["hits"] for side in sides)
        for query, before, now in zip(queries, first, second, strict=True):
            if before != now and not OTHER_HITS:
                raise SystemExit(f"{case}, {query!r}: the old code finds {before}, the new one {now}")
    turns = {case: cycle(queries) for case in CASES}
    for _ in range(pairs):
        for case, count in CASES.items():
            asked = list(islice(turns[case], count))
            order = [0, 1] if rng.random() < 0.5 else [1, 0]
            spent = {place: sides[place].ask(case=case, queries=asked)["spent"] for place in order}
            ratios[case].append(float(np.log(spent[1] / spent[0])))
    return ratios


def trimmed_mean(values: list[float]) -> float:
    """The mean without the lowest and the highest."""
    cut = int(TRIMMED * len(values))
    return float(np.mean(np.sort(values)[cut : len(values) - cut]))


def interval(blocks: list[float]) -> tuple[float, float, float]:
    """The ratio with its 95% interval, by Student's t over the blocks' means."""
    from scipy.stats import t

    middle = float(np.mean(blocks))
    half = float(t.ppf(0.975, len(blocks) - 1)) * float(np.std(blocks, ddof=1)) / len(blocks) ** 0.5
    ratio, low, high = np.exp([middle, middle - half, middle + half]).tolist()
    return ratio, low, high


def compare(old: Path, new: Path, blocks: int, pairs: int, core: int) -> dict[str, tuple[float, float, float]]:
    """The ratio of every case."""
    rng = random.Random(0)
    means: dict[str, list[float]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        make_index(old, index)
        lines = (old / "suwen" / "sample" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        queries = [json.loads(line)["text"] for line in lines][:24]
        for number in range(blocks):
            # Whoever starts first may get the better place in memory: they take turns at that, too.
            sources = [old, new] if number % 2 else [new, old]
            started = [Side(source, index, old / "suwen" / "models" / "default", core) for source in sources]
            sides = started if number % 2 else started[::-1]
            try:
                for case, ratios in block(sides, queries, pairs, rng).items():
                    means[case].append(trimmed_mean(ratios))
            finally:
                for side in sides:
                    side.close()
            so_far = ", ".join(f"{case} {np.exp(np.mean(values)):.3f}" for case, values in means.items())
            print(f"block {number + 1} of {blocks}: {so_far}", file=sys.stderr, flush=True)
    return {case: interval(values) for case, values in means.items()}


def source_of(checkout: str) -> Path:
    """The folder that ``suwen`` is imported from."""
    for place in (Path(checkout) / "src", Path(checkout)):
        if (place / "suwen" / "__init__.py").is_file():
            return place.resolve()
    raise SystemExit(f"{checkout} holds no suwen: name a checkout, or its src folder")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old")
    parser.add_argument("--new")
    parser.add_argument("--blocks", type=int, default=12, help="times both processes are started")
    parser.add_argument("--pairs", type=int, default=120, help="pairs of bursts of each case in a block")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="where both run; -1: anywhere")
    parser.add_argument("--other-hits", action="store_true", help="the two rank otherwise: hold them to a bar of 1.15")
    parser.add_argument("--one-encoder", action="store_true", help="the sample alone, without copies by another tier")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--pair", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.pair, given.core)
        return
    if not given.old or not given.new or given.blocks < 2:
        parser.error("give --old, --new and at least two --blocks")
    ratios = compare(source_of(given.old), source_of(given.new), given.blocks, given.pairs, given.core)
    print("| query | CPU time, new over old | 95% interval |\n|---|---|---|")
    for case, (ratio, low, high) in ratios.items():
        print(f"| {case} | {ratio:.3f} | {low:.3f} to {high:.3f} |")
    if given.out:
        given.out.write_text(json.dumps(ratios, indent=1) + "\n", encoding="utf-8")
    bar = OTHER_BAR if OTHER_HITS else BAR
    if over := [case for case in HELD if ratios[case][2] > bar]:
        raise SystemExit(f"over the bar of {bar}: {', '.join(over)}")
    print(f"the upper end of every interval of the default tier is at most {bar}", file=sys.stderr)


if __name__ == "__main__":
    main()
