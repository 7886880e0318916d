"""CPU seconds that commands take to start: help, version, wrong arguments and a first search, each in a fresh process.

    python benchmarks/command_start.py                          # this source tree
    python benchmarks/command_start.py --beside OTHER/src       # and another one, turn by turn, with the ratio

The least of several runs, user and system time together: other work on the machine only ever adds to it. Compiled
modules are kept, as they are where the package is installed. Beside them stands Python alone, which does nothing.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1] / "src"
RUN = "from suwen.cli.main import run; run()"
#: Seconds that help and wrong arguments may take, and a search.
QUICK, SEARCH = 0.35, 0.9


def spent(source: Path, compiled: Path, arguments: list[str], code: str = RUN) -> float:
    """The CPU seconds of one command with the package of a source tree."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(compiled)}
    environment = os.environ | kept | {"PYTHONPATH": str(source)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, help="the src folder of another source tree")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    trees = [HERE, *([options.beside] if options.beside else [])]
    with tempfile.TemporaryDirectory() as folder:
        index, compiled = str(Path(folder) / "demo"), Path(folder) / "compiled"
        spent(HERE, compiled, ["demo", index])
        verbs = [
            *("--version", "--help", "search --help", "index --help", "serve --help", "train --help", "bench --help"),
            *("bench run --help", "jury --help", "jury judge --help", "curate --help", "curate rows --help"),
            *("serach", "search", "index --nonsense", "bench run", "jury judge", "curate rows", "train", "serve"),
        ]
        commands = {
            **{verb: verb.split() for verb in verbs},
            "train care-tny": ["train", "care-tny"],
            "search --tier l5": ["search", index, "头痛吃什么药", "--tier", "l5"],
            "bench run cmrib": ["bench", "run", "cmrib", "-s", "bm25:words"],
            "bench run, without data": ["bench", "run", "cmirb", "-s", "bm25:words", "--data", folder],
            "search, hybrid": ["search", index, "头痛吃什么药"],
            "search, lexical": ["search", index, "头痛吃什么药", "--mode", "lexical"],
        }
        least = {name: [float("inf")] * len(trees) for name in commands}
        for _ in range(options.rounds):
            for name, arguments in commands.items():
                for place, tree in enumerate(trees):
                    least[name][place] = min(least[name][place], spent(tree, compiled, arguments))
    bare = min(spent(HERE, compiled, [], "pass") for _ in range(options.rounds))
    print(f"{'python -c pass':<30}{bare:>8.2f}")
    print(f"{'command':<30}{'CPU s':>8}" + (f"{'beside':>9}{'ratio':>8}" if options.beside else ""))
    for name, (ours, *other) in least.items():
        print(f"{name:<30}{ours:>8.2f}" + "".join(f"{its:>9.2f}{ours / its:>8.2f}" for its in other))
    slow = [name for name, (ours, *_) in least.items() if ours > (SEARCH if "," in name else QUICK)]
    print(f"over {QUICK} s, or {SEARCH} s for a search: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
