"""Make the numbers of a results page by one command: its trainings and measures, in their order, some side by side.

    python tools/make_results.py sl-hyde OUT --data DATA --dev DEV --base BASE --small M3E
    python tools/make_results.py reranker OUT --data DATA --dev DEV --base BASE

DATA is made by make_training_data.py and DEV by make_dev_collections.py; BASE is Qwen2.5-Coder-1.5B-Instruct, a folder
or a GGUF file, and M3E the folder of m3e-small. Steps that are done are kept: start it again to go on. What a step says
is in OUT/log/STEP.txt, its seconds are in OUT/steps.jsonl. A step that fails ends those that need it; the others go on.
`--list` prints the commands, and runs nothing.
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
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import product
from pathlib import Path

log = logging.getLogger("make-results")
TOOLS = Path(__file__).parent
SUWEN = [sys.executable, "-c", "from suwen.cli.main import run; run()"]
#: The stages of sl-hyde-mini up to its first tuned retriever.
FIRST_ROUND = ("queries", "start", "chosen", "generator", "written", "retriever")
CHINESE = ("consultation", "cmedir", "cmedqa")
#: Ways to put a query and its documents together (Table 5 of AutoMIR), beside the one of all other rows.
FUSIONS = {
    "alike": "weight=1",
    "three": "weight=3",
    "five": "weight=5",
    "of-four": "n=4,weight=4",
    "document": "fusion=documents",
    "one-text": "fusion=concatenation",
}
#: Of a query beside four documents, for the default pair.
PAIR_WEIGHTS = (6, 8, 12, 20)


@dataclass(frozen=True)
class Step:
    """A command, the steps that must be done before it, and whether nothing may run beside it."""

    name: str
    command: Sequence[str]
    after: Sequence[str] = ()
    alone: bool = False


@dataclass(frozen=True)
class Wanted:
    """What was asked for."""

    out: Path
    data: Path
    dev: Path
    base: str
    small: str
    sets: Sequence[str]
    share: float
    #: How often hypothetical documents are drawn, each with a seed of its own; five in the paper.
    draws: int = 5

    def train(self, recipe: str, *more: str) -> list[str]:
        """A training; what is finished of it is kept."""
        own = [one.removeprefix(f"{recipe}:") for one in self.sets if one.startswith(f"{recipe}:")]
        extra = [word for one in own for word in ("--set", one)]
        return [*SUWEN, "train", recipe, "--resume", "--out", str(self.out / "runs"), *more, *extra]

    def bench(self, *systems: str) -> list[str]:
        """Measures on the smaller development collections."""
        named = [word for one in systems for word in ("-s", one)]
        named += [word for one in (*CHINESE, "nfcorpus") for word in ("--task", one)]
        return [*SUWEN, "bench", "run", str(self.out / "dev" / "dev.toml"), "--out", str(self.out / "results"), *named]

    def compare(self, a: str, b: str) -> list[str]:
        """Two systems, paired over the queries of the Chinese tasks."""
        tasks = [word for one in CHINESE for word in ("--task", one)]
        return [*SUWEN, "bench", "compare", str(self.out / "results"), *tasks, "--most", "0", "--a", a, "--b", b]


# -- SL-HyDE ----------------------------------------------------------------------------------------------------------


def sl_hyde(wanted: Wanted) -> Iterator[Step]:
    """From m3e-small and from an encoder without labels: both rounds, ablations, seeds; then the default pair.

    What others wait for comes first, and of the rest what says most.
    """
    texts = wanted.out / "unlabelled"
    made = [sys.executable, str(TOOLS / "make_unlabelled_data.py")]
    yield Step("texts", [*made, "texts", str(wanted.data), str(texts), "--share", str(wanted.share)])
    yield Step("dev", [*made, "measure", str(wanted.dev), str(wanted.out / "dev")])
    yield Step("own", wanted.train("sl-hyde-unlabelled", "--set", f"data.root={texts}"), ["texts"])
    own = str(wanted.out / "runs" / "sl-hyde-unlabelled" / "s0" / "crops" / "model")
    bases = [_Base(wanted, "own", own, texts), _Base(wanted, "m3e", wanted.small, texts)]
    pair = list(_sl_hyde_pair(wanted, texts))
    trainings = [list(base.training()) for base in bases]
    yield from (steps[0] for steps in trainings)
    # The pair's four drawn documents of each query hold the one of all other rows.
    yield from pair[:3]
    for base in bases:
        yield from base.measures()
    yield from (steps[1] for steps in trainings)
    for base in bases:
        yield from base.second_measures()
    yield from pair[3:]
    for base in bases:
        yield from base.ablations()
    for base in bases:
        yield base.fusions()
        yield base.timed()
        yield from _comparisons(wanted, base.name)


def _sl_hyde_pair(wanted: Wanted, texts: Path) -> Iterator[Step]:
    """The default pair, which has seen labels, over its document encoder's documents."""
    train = wanted.train("sl-hyde-pair", "--set", f"data.root={texts}", "--set", f"base={wanted.base}")
    yield Step("pair-train", train, ["texts"])
    how, systems = "tokens=128,timed=0,n=4", {"before": ["pair-base=pair:default"], "after": list[str]()}
    # Weights side by side: what was encoded for one serves the next.
    for seed, weight in product(range(wanted.draws), PAIR_WEIGHTS):
        for step, label, model in (("before", "hyde", "raw"), ("after", "sl", "pair-1")):
            said = f"{how},weight={weight},seed={seed}"
            systems[step].append(f"pair-{label}-{weight}-s{seed}=hyde:{model},{said}:pair:default")
    for step, named in systems.items():
        after = ["dev", *(["pair-train"] if step == "after" else [])]
        yield Step(f"pair-{step}", ["env", f"SUWEN_BASE={wanted.base}", *wanted.bench(*named)], after)
    for weight in PAIR_WEIGHTS:
        for label in ("hyde", "sl"):
            told = wanted.compare(f"pair-{label}-{weight}-s*", "pair-base")
            yield Step(f"compare-pair-{label}-{weight}", told, ["pair-before", "pair-after"])


@dataclass(frozen=True)
class _Base:
    """The steps of a retriever that SL-HyDE begins with: a folder, or a model of the hub."""

    wanted: Wanted
    name: str
    start: str
    texts: Path

    def training(self) -> Iterator[Step]:
        """The first round; then the second and the distilled encoder, beside which the first is measured."""
        first = self._train(*(word for one in (*FIRST_ROUND, "round-1") for word in ("--only", one)))
        yield Step(f"{self.name}-first", first, ["texts", *self._made])
        yield Step(f"{self.name}-train", self._train(), [f"{self.name}-first"])

    def measures(self) -> Iterator[Step]:
        """The rows of the page's table: as it is, HyDE, and the first round."""
        wanted, name, first = self.wanted, self.name, self._run("") / "retriever" / "model"
        raw = [f"{name}-base=st:{self.start}", *self._drawn("hyde", "raw", self.start)]
        yield Step(f"{name}-before", wanted.bench(*raw), ["dev", *self._made])
        tuned = [
            *self._drawn("sl", f"{name}-1", first),
            *self._drawn("untuned-retriever", f"{name}-1", self.start),
            f"{name}-sl-query=st:{first}",
        ]
        yield Step(f"{name}-after", wanted.bench(*tuned), ["dev", f"{name}-first"])

    def second_measures(self) -> Iterator[Step]:
        """The distilled encoder, and the second round."""
        wanted, name, run = self.wanted, self.name, self._run("")
        # Its documents are the retriever's that the rounds ended with.
        distilled = f"{name}-distilled=st:{run / 'distilled-joint' / 'model'}+{run / 'round-2' / 'model'}"
        yield Step(f"{name}-distilled", wanted.bench(distilled), ["dev", f"{name}-train"])
        # Apart: where the first round's gain is not passed, there is no second.
        second = run / "retriever-2" / "model"
        again = [*self._drawn("sl2", f"{name}-2", second), f"{name}-sl2-query=st:{second}"]
        yield Step(f"{name}-after-2", wanted.bench(*again), ["dev", f"{name}-train"])

    def ablations(self) -> Iterator[Step]:
        """Without a part of the training, and the retriever's training with other seeds."""
        wanted, name = self.wanted, self.name
        variants = ("without-generator-tuning", "query-only")
        for variant in variants:
            yield Step(f"{name}-{variant}", self._train("--variant", variant), [f"{name}-first"])
        untuned, alone = (self._run(f".{one}") / "retriever" / "model" for one in variants)
        ablated = [*self._drawn("untuned-generator", "raw", untuned), f"{name}-rows-alone=st:{alone}"]
        yield Step(f"{name}-ablated", wanted.bench(*ablated), ["dev", *(f"{name}-{one}" for one in variants)])
        for seed in (1, 2):
            # What it learns from is the run's above; only the retriever learns again.
            other = [f"name={name}-seed-{seed}", f"stages.retriever.training.seed={seed}"]
            stages = [word for one in FIRST_ROUND for word in ("--only", one)]
            again = self._train(*(word for one in other for word in ("--set", one)), *stages)
            yield Step(f"{name}-seed-{seed}", again, [f"{name}-first"])
            folder = self._run(f"-seed-{seed}") / "retriever" / "model"
            measured = wanted.bench(
                *self._drawn(f"sl-training-{seed}", f"{name}-1", folder, 1), f"{name}-query-training-{seed}=st:{folder}"
            )
            yield Step(f"{name}-seed-{seed}-measured", measured, ["dev", f"{name}-seed-{seed}"])

    def fusions(self) -> Step:
        """Other ways to put a query and its documents together, before and after the first round."""
        first = self._run("") / "retriever" / "model"
        fused = [*self._fused("hyde", "raw", self.start), *self._fused("sl", f"{self.name}-1", first)]
        return Step(f"{self.name}-fusions", self.wanted.bench(*fused), ["dev", f"{self.name}-first"])

    def timed(self) -> Step:
        """With the time that a query takes, its writing in it: by itself, for what runs beside it is in it too."""
        first = self._run("") / "retriever" / "model"
        timed = f"{self.name}-timed=hyde:{self.name}-1,tokens=128,weight=2,seed=0:st:{first}"
        return Step(f"{self.name}-timed", self.wanted.bench(timed), ["dev", f"{self.name}-first"], alone=True)

    @property
    def _made(self) -> list[str]:
        """What makes the folder that it begins with."""
        return ["own"] if self.name == "own" else []

    def _run(self, tail: str) -> Path:
        return self.wanted.out / "runs" / f"{self.name}{tail}" / "s0"

    def _train(self, *more: str) -> list[str]:
        keys = [f"name={self.name}", f"data.root={self.texts}", f"base={self.wanted.base}"]
        keys.append(f"students.retriever.base={self.start}")
        return self.wanted.train("sl-hyde-mini", *(word for one in keys for word in ("--set", one)), *more)

    def _drawn(
        self, label: str, model: str, encoder: Path | str, count: int | None = None, how: str = "weight=2"
    ) -> list[str]:
        seeds, said = range(self.wanted.draws if count is None else count), "tokens=128,timed=0"
        return [f"{self.name}-{label}-s{seed}=hyde:{model},{said},{how},seed={seed}:st:{encoder}" for seed in seeds]

    def _fused(self, label: str, model: str, encoder: Path | str) -> Iterator[str]:
        for way, how in FUSIONS.items():
            yield from self._drawn(f"{label}-{way}", model, encoder, 1, how)


def _comparisons(wanted: Wanted, name: str) -> Iterator[Step]:
    """Each way to search against another: paired over the queries of the Chinese tasks, seeds averaged."""
    pairs = {
        "hyde": ("hyde-s*", "base", "before"),
        "sl": ("sl-s*", "base", "after"),
        "sl-over-hyde": ("sl-s*", "hyde-s*", "after"),
        "sl-over-untuned-retriever": ("sl-s*", "untuned-retriever-s*", "after"),
        "sl-over-untuned-generator": ("sl-s*", "untuned-generator-s*", "ablated"),
        "sl-query": ("sl-query", "base", "after"),
        "sl2": ("sl2-s*", "base", "after-2"),
        "sl2-over-sl": ("sl2-s*", "sl-s*", "after-2"),
        "distilled": ("distilled", "base", "distilled"),
    }
    for label, (a, b, last) in pairs.items():
        after = dict.fromkeys(f"{name}-{one}" for one in ("before", "after", last))
        yield Step(f"compare-{name}-{label}", wanted.compare(f"{name}-{a}", f"{name}-{b}"), list(after))


def sl_hyde_models(wanted: Wanted) -> str:
    """The models of ``suwen.toml``: the language model as it is, and with the adapters that both rounds leave."""
    parts = ['[llm.endpoints.here]\nbase_url = "local"\nconcurrency = 2048\ntimeout = 3600\n']
    tuned = {
        f"{name}-{number}": f"runs/{name}/s0/generator{tail}"
        for name in ("m3e", "own")
        for number, tail in ((1, ""), (2, "-2"))
    }
    tuned["pair-1"] = "runs/sl-hyde-pair/s0/generator"
    for name, folder in {"raw": "", **tuned}.items():
        adapter = f'adapter = "{wanted.out / folder / "model" / "adapter"}"\n' if folder else ""
        parts.append(f'[llm.models.{name}]\nendpoint = "here"\nmodel = "{wanted.base}"\ncontext = 1024\n{adapter}')
    return "\n".join(parts)


# -- a reranker -------------------------------------------------------------------------------------------------------


def reranker(wanted: Wanted) -> Iterator[Step]:
    """What the document encoder's cosines are worth, rerankers of three sizes that learn from them, their curve."""
    precise = [
        sys.executable,
        str(TOOLS.parent / "benchmarks" / "precise_mode.py"),
        str(wanted.dev),
        "--queries",
        "300",
    ]
    ceiling = [*precise, "--encoder", "document-alone", "--base", wanted.base, "--hits", "5", "10", "20"]
    yield Step("ceiling", ceiling)
    keys = [f"data.root={wanted.data}", f"base={wanted.base}"]
    common = [word for one in keys for word in ("--set", one)] + ["--variant", "by-cosine"]
    yield Step("scores", wanted.train("reranker-mini", *common, "--only", "large", "--only", "scores"))
    run = wanted.out / "runs" / "reranker-mini.by-cosine" / "s0"
    for name in ("l3", "l4", "l6"):
        yield Step(name, wanted.train("reranker-mini", *common, "--only", name), ["scores"])
        yield Step(f"{name}-measured", [*precise, "--trained", str(run / name), "--hits", "5", "10", "20"], [name])


PAGES: dict[str, Callable[[Wanted], Iterator[Step]]] = {"sl-hyde": sl_hyde, "reranker": reranker}


# -- running ----------------------------------------------------------------------------------------------------------


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
        return code == 0

    def _is_done(self, step: Step) -> bool:
        file = self._out / "steps.jsonl"
        known = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
        return any(one["code"] == 0 and one["command"] == shlex.join(step.command) for one in known)


def main() -> None:
    """Read the command line and run what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", choices=PAGES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dev", type=Path, required=True)
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
    # Steps run in OUT, where replies are kept: what is a path here is one there. A model may also be an id of the hub.
    base, small = (str(Path(one).resolve()) if Path(one).exists() else one for one in (options.base, options.small))
    out, data, dev = (one.resolve() for one in (options.out, options.data, options.dev))
    wanted = Wanted(out, data, dev, base, small, options.sets, options.share, options.draws)
    steps = needed(list(PAGES[options.page](wanted)), options.only)
    if options.list:
        sys.stdout.write("".join(f"{step.name}: {shlex.join(step.command)}\n" for step in steps))
        return
    wanted.out.mkdir(parents=True, exist_ok=True)
    if options.page == "sl-hyde":
        (wanted.out / "suwen.toml").write_text(sl_hyde_models(wanted), encoding="utf-8")
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
