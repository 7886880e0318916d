"""The trainings and measures of a results page, as steps that make_results.py runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from suwen.bench.published_tables import instructions

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
    """A command, the steps that must be done before it, whether nothing may run beside it, and its good exit codes."""

    name: str
    command: Sequence[str]
    after: Sequence[str] = ()
    alone: bool = False
    good: Sequence[int] = (0,)


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
        return [*SUWEN, "train", recipe, "--resume", "--out", str(self.out / "runs"), *more, *self.changed(recipe)]

    def changed(self, recipe: str) -> list[str]:
        """The keys of a recipe that were given by hand."""
        own = [one.removeprefix(f"{recipe}:") for one in self.sets if one.startswith(f"{recipe}:")]
        return [word for one in own for word in ("--set", one)]

    def bench(self, *systems: str) -> list[str]:
        """Measures on the smaller development collections."""
        tasks = [word for one in (*CHINESE, "nfcorpus") for word in ("--task", one)]
        return [*self.measured(str(self.out / "dev" / "dev.toml"), *systems), *tasks]

    def measured(self, suite: str, *systems: str) -> list[str]:
        """Measures on all tasks of a suite."""
        named = [word for one in systems for word in ("-s", one)]
        return [*SUWEN, "bench", "run", suite, "--out", str(self.out / "results"), *named]

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


def language_models(wanted: Wanted) -> str:
    """The models of ``suwen.toml``: the base as it writes and as it asks, and with the adapters of SL-HyDE's rounds."""
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
    asks = "context = 2048\nmax_tokens = 96\ntemperature = 0.7\n"
    return "\n".join([*parts, f'[llm.models.asks]\nendpoint = "here"\nmodel = "{wanted.base}"\n{asks}'])


# -- a reranker -------------------------------------------------------------------------------------------------------


def reranker(wanted: Wanted) -> Iterator[Step]:
    """Rerankers of three sizes that learn from cosines, then from a cross-encoder too; what each teacher is worth."""
    script = str(TOOLS.parent / "benchmarks" / "precise_mode.py")
    precise = [sys.executable, script, str(wanted.dev), "--queries", "300", "--hits", "5", "10", "20"]
    encoder = ["--encoder", "document-alone", "--base", wanted.base]
    yield Step("ceiling", [*precise, *encoder])
    keys = [word for one in (f"data.root={wanted.data}", f"base={wanted.base}") for word in ("--set", one)]
    for variant, taught in (("by-cosine", []), ("both", ["--only", "teacher"])):
        train = wanted.train("reranker-mini", *keys, "--variant", variant)
        run = wanted.out / "runs" / f"reranker-mini.{variant}" / "s0"
        yield Step(f"{variant}-scores", [*train, "--only", "large", *taught, "--only", "scores"])
        if taught:
            ceiling = [*precise, *encoder, "--teacher", str(run / "teacher"), "--device", "cuda"]
            yield Step(f"{variant}-ceiling", ceiling, [f"{variant}-scores"])
        for name in ("l3", "l4", "l6"):
            yield Step(f"{variant}-{name}", [*train, "--only", name], [f"{variant}-scores"])
            measured = [*precise, "--trained", str(run / name)]
            yield Step(f"{variant}-{name}-measured", measured, [f"{variant}-{name}"])


# -- BMRetriever ------------------------------------------------------------------------------------------------------

#: Of the ablations: so small that three seeds of all of them take minutes.
SMALL = (
    "stages.pretrain.training={steps: 30, batch: 128, learning_rate: 2e-4, precision: bf16, token_budget: 24000}",
    "stages.finetune.training={steps: 40, batch: 256, learning_rate: 3e-4, precision: bf16, token_budget: 24000}",
    "stages.pretrain.max_length=128",
    "stages.finetune.max_length=128",
)


def bmretriever(wanted: Wanted) -> Iterator[Step]:
    """Questions that the base writes, the document encoder beside its rivals, its light side, and the ablations."""
    out, papers = wanted.out, str(wanted.data / "en" / "nfcorpus" / "corpus.jsonl.gz")
    written, kept, data, suite = (
        str(out / one) for one in ("written.jsonl.gz", "kept.jsonl.gz", "data", "dev/bmretriever.toml")
    )
    made = [sys.executable, str(TOOLS / "make_dev_collections.py"), str(wanted.data)]
    yield Step("dev", [*made, str(out / "dev"), "--suite", "bmretriever"])
    yield Step("short", [*made, str(out / "short"), "--suite", "bmretriever-short"])
    yield Step("papers", [*SUWEN, "index", str(out / "papers"), papers])
    # Pre-training reads nothing that is written: it runs beside the writing.
    plain, rows = str(out / "plain"), [sys.executable, str(TOOLS / "make_bmretriever_data.py"), str(wanted.data)]
    yield Step("plain", [*rows, plain])
    # Small pieces, several of a paper: so many questions of it.
    asked = ["--dataset", "nfcorpus", "--instruction", instructions("bmretriever")["NFCorpus"], "-m", "asks"]
    asked += ["--language", "en", "--size", "120"]
    # 3: some reply was of no use, as of a small model some always is.
    yield Step("written", [*SUWEN, "curate", "synthesise", written, "--from", papers, *asked], good=(0, 3))
    keys, early = (
        [word for one in (f"data.root={root}", f"base={wanted.base}") for word in ("--set", one)]
        for root in (data, plain)
    )
    sides = [*keys, *(["--set", f"base=sentence-transformers/all-MiniLM-L6-v2={wanted.small}"] if wanted.small else [])]
    first = [word for one in ("pretrain", "finetune", "freeze") for word in ("--only", one)]
    yield Step("pretrain", wanted.train("bmretriever-light", *early, *first[:2]), ["plain"])
    found = [*SUWEN, "curate", "round-trip", written, str(out / "papers"), kept]
    yield Step("kept", found, ["papers", "written"])
    # A question whose passage was not found again is still one that the query side may be asked.
    yield Step("data", [*rows, data, "--like", plain, "--synthetic", kept, "--asked", written], ["plain", "kept"])
    yield Step("train", wanted.train("bmretriever-light", *keys, *first), ["pretrain", "data"])
    run = out / "runs" / "bmretriever-light" / "s0"
    bench = ["env", f"SUWEN_BASE={wanted.base}", *SUWEN, "bench", "run", suite, "--out", str(out / "results")]
    rivals = ["default-document=pair:default#document-alone", "bm25=bm25:lucene"]
    rivals += [f"minilm=st:{wanted.small}"] if wanted.small else []
    for name, systems in (("measured", [f"mini=pair:{run / 'freeze' / 'model'}#document"]), ("rivals", rivals)):
        after = ["dev", *(["train"] if name == "measured" else [])]
        yield Step(name, [*bench, *(word for one in systems for word in ("-s", one))], after)
    yield Step("light", wanted.train("bmretriever-light", *sides), ["train"])
    tiers = [f"light-{tier}=pair:{run / 'export' / 'model'}#{tier}" for tier in ("l6", "static", "document")]
    yield Step("light-measured", [*bench, *(word for one in tiers for word in ("-s", one))], ["dev", "light"])
    for rival in ("default-document", "bm25"):
        told = [*SUWEN, "bench", "compare", str(out / "results"), "--most", "0", "--a", "mini", "--b", rival]
        yield Step(f"compare-{rival}", told, ["measured", "rivals"])
    told = [*SUWEN, "bench", "compare", str(out / "results"), "--most", "0", "--a", "light-l6", "--b", "mini"]
    yield Step("compare-light", told, ["measured", "light-measured"])
    short = str(out / "short" / "bmretriever-short.toml")
    small = [word for one in (*SMALL, f"data.measure={short}") for word in ("--set", one)]
    small += wanted.changed("bmretriever-mini")
    for table in ("figure-3", "5", "figure-4"):
        swept = [*SUWEN, "sweep", "bmretriever-mini", "--table", table, "--workers", "3", "--out", str(out / "runs")]
        # 3: of Figure 3 there is no row without general data, for there are no such rows.
        yield Step(f"sweep-{table}", [*swept, *keys, *small], ["data", "short"], good=(0, 3))


# -- a specialist of cardiology ---------------------------------------------------------------------------------------

HEART = ("medquad-heart", "toyhom-heart")


def cardioembed(wanted: Wanted) -> Iterator[Step]:
    """A shelf's specialist beside the pair it goes on from: real questions of the heart, general sets, paraphrases."""
    out, data, work = wanted.out, wanted.data, wanted.out / "cardio-work"
    heart, general = str(data / "suites" / "cardio.toml"), str(out / "dev" / "dev.toml")
    yield Step(
        "dev", [sys.executable, str(TOOLS / "make_unlabelled_data.py"), "measure", str(wanted.dev), str(out / "dev")]
    )
    made = [*SUWEN, "adapt", str(data / "read"), "--out", str(out / "cardio"), "--work", str(work), "-m", "asks"]
    made += ["--base", wanted.base, "--general", str(data / "general"), "--set", "data.held_out=null"]
    # 3: no gain by its own measures; the pair is in its work folder all the same.
    yield Step("adapt", [*made, "--calls", "12000", "--measure", general], ["dev"], good=(0, 3))
    pairs = {"default": "default", "cardio": str(work / "runs" / "cardioembed-mini" / "s0" / "export" / "model")}
    over = ["env", f"SUWEN_BASE={wanted.base}"]
    small = [word for one in (*CHINESE, "nfcorpus") for word in ("--task", one)]
    for name, pair in pairs.items():
        after = ["dev", *(["adapt"] if name == "cardio" else [])]
        # Documents by the document encoder, queries by a tier or by it; `l6` on both sides is the same in both pairs.
        systems = [f"{name}-{tier}=pair:{pair}#{tier}" for tier in ("l6", "document")]
        for suite, tasks, label in ((heart, [], "heart"), (general, small, "general")):
            measured = wanted.measured(suite, *systems)
            yield Step(f"{name}-{label}", [*over, *measured, *tasks], after)
            if name == "default":
                both = wanted.measured(suite, f"{name}-sides=pair:{pair}")
                yield Step(f"{name}-{label}-sides", [*both, *tasks], after)
    rivals = ["bm25=bm25:words", *([f"minilm=st:{wanted.small}"] if wanted.small else [])]
    yield Step("rivals", wanted.measured(heart, *rivals))
    for side, (tasks, label) in product(("l6", "document"), ((HEART, "heart"), ((*CHINESE, "nfcorpus"), "general"))):
        told = [*SUWEN, "bench", "compare", str(out / "results"), *(word for one in tasks for word in ("--task", one))]
        after = [f"{name}-{label}" for name in pairs]
        yield Step(
            f"compare-{side}-{label}", [*told, "--most", "0", "--a", f"cardio-{side}", "--b", f"default-{side}"], after
        )
    yield from _paraphrases(wanted, work, pairs, rivals)


def _paraphrases(wanted: Wanted, work: Path, pairs: dict[str, str], rivals: Sequence[str]) -> Iterator[Step]:
    """The paper's own test, its method on this base among the systems, and its tables and figures."""
    keys = [f"data.root={work / 'data'}", "data.measure=null", f"base={wanted.base}"]
    only = [word for one in ("specialist", "average", "freeze") for word in ("--only", one)]
    train = wanted.train(
        "cardioembed-mini", "--variant", "paper", *(word for one in keys for word in ("--set", one)), *only
    )
    yield Step("paper", train, ["adapt"])
    frozen = wanted.out / "runs" / "cardioembed-mini.paper" / "s0" / "freeze" / "model"
    systems = [f"{name}-{tier}=pair:{pair}#{tier}" for name, pair in pairs.items() for tier in ("l6", "document")]
    # As the paper's own task: its tables and figures are drawn of that.
    test = wanted.measured("cardioembed", *rivals, *systems, f"paper=pair:{frozen}#document")
    own = ["--task", "Cardiology-Paraphrase", "--data", f"Cardiology-Paraphrase={work / 'triplets' / 'test.jsonl.gz'}"]
    yield Step("paraphrases", ["env", f"SUWEN_BASE={wanted.base}", *test, *own], ["paper"])
    report = [*SUWEN, "bench", "report", str(wanted.out / "results"), "--to", str(wanted.out / "report")]
    yield Step("report", report, ["paraphrases"])


PAGES: dict[str, Callable[[Wanted], Iterator[Step]]] = {
    "sl-hyde": sl_hyde,
    "reranker": reranker,
    "bmretriever": bmretriever,
    "cardioembed": cardioembed,
}
