"""What precise mode gains over hybrid search, over rerankers and hits read: nDCG@10, and CPU milliseconds a query.

    python benchmarks/precise_mode.py DEV RERANKER [RERANKER ...] [--vectors FOLDER] [--pair PAIR --tier TIER]
        [--hits 5 10 20 50] [--queries 200] [--length 128] [--record]
    python benchmarks/precise_mode.py DEV --trained RUN/l6 [RUN/l4 ...] [--device cuda] [the same options]
    python benchmarks/precise_mode.py DEV --teacher RUN/teacher --base BASE [--device cuda] [the same options]
    python benchmarks/precise_mode.py DEV --encoder document-alone --base BASE [the same options]

DEV is a folder that tools/make_dev_collections.py wrote; RERANKER is the model folder of an `export-reranker` stage. A
hybrid ranking is the shipped one, over exact search, both sides by one tier of a pair, or over ready vectors: see
benchmarks/hybrid_fusion.py. What a hybrid score counts beside the reranker's is chosen on the even queries, and all is
told of the odd ones: differences are paired, with 95% intervals by bootstrap over queries. CPU time is that of reading
alone, in one thread. With --teacher, the large cross-encoder that a `cross` stage left is measured as well: the
ceiling of what learns from it; with --encoder, so is a tier of the pair, or its document encoder, by cosines (what the
recipe's variant `by-cosine` learns from), and with both options their mean, too; with --trained, what `reranker`
stages left, by torch and before it is exported. With --record, the weight and the gains at 20 hits are written into
each reranker.json: where it loses, precise mode does not use it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from hybrid_fusion import TASKS, Task, legs_of, mean_interval, read_legs, vectors_of

from suwen.bench.dense_systems import PairSystem
from suwen.bench.exact_search import Ranks
from suwen.bench.reranked import HITS, Reading, gains, ndcg, read_again, reordered
from suwen.bench.suite_tasks import load_suite
from suwen.bench.task_data import Ranked
from suwen.bench.task_loading import load_data
from suwen.durable import write_json
from suwen.encoders.reranker import DESCRIPTION, Reranker, joined
from suwen.encoders.who_encodes import Maker
from suwen.retrieve.fuse import fuse_hybrid


def hybrid(task: Task, depth: int) -> Ranks:
    """The shipped fusion of a task's legs."""
    weights = {"dense": task.share, "lexical": 1 - task.share}
    fused = [fuse_hybrid(legs_of(query), depth, weights, vectors=query.vectors) for query in task.queries]
    rows = np.full((len(fused), depth), -1, np.int64)
    scores = np.full((len(fused), depth), -np.inf)
    for number, one in enumerate(fused):
        rows[number, : len(one.rows)], scores[number, : len(one.rows)] = one.rows, one.scores
    return Ranks(rows, scores)


def cut(data: Ranked, queries: Any, most: int | None) -> tuple[Ranked, Any]:
    """A task with its first queries alone."""
    if most is None or len(data.queries) <= most:
        return data, queries
    ids = data.query_ids[:most]
    # Judgements too: a query that is judged and not asked would count as one that found nothing.
    judged = {one: data.qrels[one] for one in ids if one in data.qrels}
    kept = {"query_ids": ids, "queries": data.queries[:most], "qrels": judged}
    return Ranked(**{**vars(data), **kept}), queries[:most]


def tell(reranker: Any, tasks: Mapping[str, Reading], hits: int, cpu_ms: float) -> None:
    """One line: the reranker with so many hits read."""
    less = {name: task._replace(read=[one[:hits] for one in task.read]) for name, task in tasks.items()}
    weight, _ = gains(less)
    before = [ndcg(task, task.ranks)[1::2] for task in less.values()]
    after = [ndcg(task, reordered(task.ranks, task.read, weight))[1::2] for task in less.values()]
    gap, low, high = mean_interval(after, before)
    cells = [f"{one.mean():.2f} → {other.mean():.2f}" for one, other in zip(before, after, strict=True)]
    layers = reranker.manifest.layers if isinstance(reranker, Reranker) else reranker.layers
    about = [reranker.name, str(layers), str(hits), f"{weight:g}"]
    print(f"| {' | '.join([*about, *cells, f'{gap:+.2f} ({low:+.2f} to {high:+.2f})', f'{cpu_ms:.0f}'])} |", flush=True)


class Trained:
    """What a stage has trained, with a reranker's face.

    Args:
        stage: The folder of a `cross` or a `reranker` stage.
        base: The language model that it was trained on, where it was.
        device: Where it reads.
    """

    def __init__(self, stage: Path, base: str | None, device: str) -> None:
        from suwen.encoders.base_model import load_base
        from suwen.encoders.side import Side, load_model
        from suwen.training.cross_encoders import CrossEncoder

        said = json.loads((stage / "config.json").read_text(encoding="utf-8"))
        if base is None:
            model = load_model(stage / "model", device=device)[0].float()
        else:
            kind: Any = "bf16" if device == "cuda" else "fp32"
            large = load_base(base, device=device, dtype=kind, max_length=said["max_length"], normalise=False)
            model = CrossEncoder.read(large, stage / "model").model
        self._side, self._length = Side(model.eval(), "document"), said["max_length"]
        self._template, self._characters = said["template"], said["query_characters"]
        self.name, self.layers = f"{stage.name}, torch", model[0].model.config.num_hidden_layers

    def scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """A score of each document."""
        import torch

        with torch.inference_mode():
            texts = [joined(self._template, query, one, self._characters) for one in documents]
            ids = self._side.ids(texts, max_length=self._length)
            made: list[float] = self._side.embed(ids)[:, 0].float().tolist()
        return made


class ByCosine:
    """An encoder of a pair with a reranker's face: each text is encoded once.

    Args:
        pair: The pair.
        tier: Who encodes, as in ``pair:PAIR#TIER``.
        base: The language model of its document encoder, where that is not found by its name.
    """

    layers = "-"

    def __init__(self, pair: str, tier: str, base: str | None) -> None:
        if base is not None:
            os.environ["SUWEN_BASE"] = base
        self._system = PairSystem.open("pair", pair, tier)[0]
        self.name, self._known = f"cosine of {tier}", dict[str, Any]()

    def scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """A cosine of each document."""
        if new := [text for text in documents if text not in self._known]:
            self._known |= zip(new, self._system.encode(new, None, "document"), strict=True)
        asked = self._system.encode([query], None, "query")[0]
        return [float(self._known[text] @ asked) for text in documents]


class Both:
    """A large cross-encoder and a document encoder: the mean of their scores, as the recipe's variant ``both`` has it.

    Args:
        teacher: The one that reads both texts together.
        cosines: The other.
        temperature: What a cosine is divided by.
    """

    layers = "-"

    def __init__(self, teacher: Trained, cosines: ByCosine, temperature: float = 0.03) -> None:
        self._teacher, self._cosines, self._temperature = teacher, cosines, temperature
        self.name = f"mean of {teacher.name} and {cosines.name}"

    def scores(self, query: str, documents: Sequence[str]) -> list[float]:
        """A score of each document."""
        both = zip(self._teacher.scores(query, documents), self._cosines.scores(query, documents), strict=True)
        return [(read + cosine / self._temperature) / 2 for read, cosine in both]


def opened(options: argparse.Namespace) -> Iterator[tuple[Path | None, Any]]:
    """What is to be measured, one after the other."""
    for folder in options.rerankers:
        reranker = Reranker.load(folder)
        if options.length is not None:
            said = reranker.manifest.model_copy(update={"max_length": options.length})
            reranker = Reranker(folder, said)
        yield folder, reranker
    for folder in options.trained:
        yield None, Trained(folder, None, options.device)
    cosines = teacher = None
    if options.encoder is not None:
        yield None, (cosines := ByCosine(options.pair or "", options.encoder, options.base))
    if options.teacher is not None:
        yield None, (teacher := Trained(options.teacher, options.base, options.device))
    if cosines is not None and teacher is not None:
        yield None, Both(teacher, cosines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dev", type=Path)
    parser.add_argument("rerankers", type=Path, nargs="*")
    parser.add_argument("--trained", type=Path, nargs="+", default=[], help="folders of `reranker` stages")
    parser.add_argument("--teacher", type=Path, help="the folder of a `cross` stage")
    parser.add_argument("--encoder", help="a tier of the pair, document or document-alone, that reads by cosines")
    parser.add_argument("--base", help="the language model of --teacher or --encoder")
    parser.add_argument("--device", default="cpu", help="where --trained and --teacher read")
    parser.add_argument("--length", type=int, help="tokens of a query and a passage; the reranker's own where left out")
    parser.add_argument("--vectors", type=Path, help="a folder of ready vectors")
    parser.add_argument("--documents", choices=get_args(Maker), default="transformer", help="what made ready vectors")
    parser.add_argument("--pair", help="a pair's folder; the default pair where left out")
    parser.add_argument("--tier", help="who encodes both sides; the pair's default where left out")
    parser.add_argument("--hits", type=int, nargs="+", default=[5, 10, 20, 50])
    parser.add_argument("--queries", type=int, help="the first so many of each task; all where left out")
    parser.add_argument("--record", action="store_true", help="write the gain at 20 hits into reranker.json")
    options = parser.parse_args()
    system = None if options.vectors else PairSystem.open("pair", options.pair or "", options.tier)[0]
    maker = options.documents if system is None else system.maker
    suite = load_suite(options.dev / "dev.toml")
    found: dict[str, Task] = {}
    for task in suite.tasks:
        if task.name in TASKS:
            data = load_data(suite, task)
            assert isinstance(data, Ranked)
            queries, documents = vectors_of(task.name, data, options.vectors, system)
            data, queries = cut(data, queries, options.queries)
            found[task.name] = read_legs(data, queries, documents, maker)
    most = max(*options.hits, HITS)
    print(f"| reranker | layers | hits | weight | {' | '.join(found)} | mean gain | CPU ms |")
    print("|---|" + "---|" * (len(found) + 5))
    ranked = {name: hybrid(one, 2 * most) for name, one in found.items()}
    for folder, reranker in opened(options):
        reranker.scores("一", ["二"])  # what is loaded with the first text is no reading
        began, tasks = time.process_time(), {}
        for name, ranks in ranked.items():
            data = found[name].data
            tasks[name] = Reading(data, ranks, read_again(reranker, data, ranks, most))
        read = sum(len(one) for each in tasks.values() for one in each.read)
        each = 1000 * (time.process_time() - began) / max(1, read)
        for hits in sorted(options.hits):
            tell(reranker, tasks, hits, hits * each)
        if options.record and folder is not None:
            first = {name: each._replace(read=[one[:HITS] for one in each.read]) for name, each in tasks.items()}
            weight, measured = gains(first)
            said = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
            said |= {"hybrid_weight": weight, "measured": {name: one.model_dump() for name, one in measured.items()}}
            write_json(folder / DESCRIPTION, said)


if __name__ == "__main__":
    main()
