"""Make the numbers of a results page by one command: its trainings and measures, in their order, some side by side.

    python tools/make_results.py sl-hyde OUT --data DATA --dev DEV --base BASE --small M3E
    python tools/make_results.py reranker OUT --data DATA --dev DEV --base BASE
    python tools/make_results.py bmretriever OUT --data FILES --base BASE --small MINILM
    python tools/make_results.py cardioembed OUT --data WORK --dev DEV --base BASE --small MINILM

WORK is made by make_cardio_data.py, DATA by make_training_data.py and DEV by make_dev_collections.py, all three from
FILES, public ones that they name; BASE is Qwen2.5-Coder-1.5B-Instruct, a folder or a GGUF file, M3E the folder of
m3e-small, MINILM that of all-minilm-l6-v2. Steps that are done are kept: start it again to go on. What a step says
is in OUT/log/STEP.txt, its seconds are in OUT/steps.jsonl. A step that fails ends those that need it; the others go on.
`--list` prints the commands, and runs nothing.

BMRetriever's ablations may be of a smaller base, Qwen2.5-Coder-0.5B-Instruct: `bmretriever … --base SMALL --only sweep`
with `--set bmretriever-mini:dimension=768` and the widths that it has, `--set
'bmretriever-mini:stages.pretrain.dimensions=[896, 768, 512, 256]'`, and the same of `finetune`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter
from pathlib import Path

from result_steps import PAGES, Step, Wanted, language_models

log = logging.getLogger("make-results")


class Runner:
    """Runs steps, each once those before it are done; of those that could run, the first.

    Args:
        out: Where the log and what is done are kept.
        steps: In any order that has each after what it needs.
        workers: Steps side by side.
    """

    def __init__(self, out: Path, steps: Sequence[Step], workers: int) -> None:
        self._out, self._steps, self._workers = out, steps, workers
        self._failed: set[str] = set()
        self._writing = threading.Lock()

    def run(self) -> list[str]:
        """Run what is not done; the names of the steps that failed, or whose steps before them did."""
        (self._out / "log").mkdir(parents=True, exist_ok=True)
        order = TopologicalSorter({step.name: step.after for step in self._steps})
        order.prepare()
        ready, running = set[str](), dict[Future[bool], Step]()
        with ThreadPoolExecutor(self._workers) as pool:
            while order.is_active():
                ready |= set(order.get_ready())
                while (step := self._next(ready, list(running.values()))) is not None:
                    ready.remove(step.name)
                    running[pool.submit(self._one, step)] = step
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    step = running.pop(future)
                    self._failed |= set() if future.result() else {step.name}
                    order.done(step.name)
        return [step.name for step in self._steps if step.name in self._failed]

    def _next(self, ready: Set[str], running: Sequence[Step]) -> Step | None:
        """The step to start now, the first that may; None where there is none, or no room for it."""
        if len(running) >= self._workers or any(step.alone for step in running):
            return None
        return next((step for step in self._steps if step.name in ready and not (step.alone and running)), None)

    def _one(self, step: Step) -> bool:
        return not self._failed & set(step.after) and (self._is_done(step) or self._ran(step))

    def _ran(self, step: Step) -> bool:
        began, file = time.time(), self._out / "log" / f"{step.name}.txt"
        log.info("%s …", step.name)
        with file.open("w", encoding="utf-8") as told:
            # With a base in the environment the default pair's documents would be by its document encoder.
            environment = {key: value for key, value in os.environ.items() if key != "SUWEN_BASE"}
            environment["SUWEN_CONFIG"] = str(self._out / "suwen.toml")
            code = subprocess.run(
                step.command, stdout=told, stderr=subprocess.STDOUT, cwd=self._out, env=environment, check=False
            ).returncode
        seconds = round(time.time() - began, 1)
        # 3 of a bench: some task has no result, which the log names.
        log.info("%s: %s; %s s", step.name, f"exit code {code}, see {file}" if code else "done", seconds)
        said = {"step": step.name, "seconds": seconds, "code": code, "command": shlex.join(step.command)}
        with self._writing, (self._out / "steps.jsonl").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(said) + "\n")
        return code in step.good

    def _is_done(self, step: Step) -> bool:
        file = self._out / "steps.jsonl"
        known = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
        return any(one["code"] in step.good and one["command"] == shlex.join(step.command) for one in known)


def main() -> None:
    """Read the command line and run what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dev", type=Path)
    parser.add_argument("--base", required=True)
    parser.add_argument("--small", default="")
    parser.add_argument("--workers", type=int, default=2, help="steps side by side on the device")
    parser.add_argument(
        "--set", dest="sets", action="append", default=[], metavar="RECIPE:KEY=VALUE", help="for a smaller run; repeat"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the unlabelled documents, for a smaller run")
    parser.add_argument("--draws", type=int, default=5, help="seeds that hypothetical documents are drawn with")
    parser.add_argument(
        "--only", action="append", help="a step, or all whose names begin so, and what they need; repeat"
    )
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.page == "sl-hyde" and not options.small:
        parser.error("sl-hyde begins with m3e-small: say --small FOLDER")
    if options.page != "bmretriever" and options.dev is None:
        parser.error("say where make_dev_collections.py wrote: --dev FOLDER")
    # Steps run in OUT, where replies are kept: what is a path here is one there. A model may also be an id of the hub.
    base, small = (
        str(Path(one).resolve()) if one and Path(one).exists() else one for one in (options.base, options.small)
    )
    out, data, dev = (one.resolve() for one in (options.out, options.data, options.dev or options.out / "dev"))
    wanted = Wanted(out, data, dev, base, small, options.sets, options.share, options.draws)
    steps = needed(list(PAGES[options.page](wanted)), options.only)
    if options.list:
        sys.stdout.write("".join(f"{step.name}: {shlex.join(step.command)}\n" for step in steps))
        return
    wanted.out.mkdir(parents=True, exist_ok=True)
    (wanted.out / "suwen.toml").write_text(language_models(wanted), encoding="utf-8")
    if failed := Runner(wanted.out, steps, options.workers).run():
        raise SystemExit(f"not done: {', '.join(failed)}; start it again to go on")


def needed(steps: Sequence[Step], only: Sequence[str] | None) -> list[Step]:
    """The steps that ``only`` names, or whose names begin with one where it names none; and all that they need."""
    if only is None:
        return list(steps)
    names = {step.name for step in steps}
    wanted = names & set(only)
    wanted |= {name for name in names if name.startswith(tuple(one for one in only if one not in names))}
    for step in reversed(steps):
        wanted |= set(step.after) if step.name in wanted else set()
    return [step for step in steps if step.name in wanted]


if __name__ == "__main__":
    main()
