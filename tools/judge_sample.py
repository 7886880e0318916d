"""Judge the bundled sample with small local models, end to end: index, pool, judge, consensus, report, numbers.

The three judges are two models and two prompts: a small one with the Chinese prompt, a larger one of the same family
with the Chinese prompt, and the small one with the English prompt. They are **not independent**: it is a trial of the
tool and a lesson about weak judges, no way to make a benchmark. Needs ``pip install 'suwen[curate]' xllamacpp``.
Stop it (Ctrl-C) and run it again: only what is missing is asked. Example::

    python tools/judge_sample.py --small qwen2.5-coder-0.5b-instruct-q4_k_m.gguf \
        --large qwen2.5-coder-1.5b-instruct-q4_k_m.gguf --out judged
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suwen.corpora.collection import Collection
from suwen.corpora.sample_collection import sample_path
from suwen.jury import jury_report as reporting
from suwen.jury.agreement import ratings
from suwen.jury.consensus import Rule, consensus
from suwen.jury.judge_batches import JudgingSettings
from suwen.jury.judging import Judged, Jury
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import PooledQuery, pool_collection, read_pool
from suwen.jury.texts import Texts
from suwen.jury.verdicts import GRADES, POSITIVE, VALUES, Judge, Verdict, write_verdicts
from suwen.jury.votes import Votes
from suwen.llm.client import LLM
from suwen.llm.config import load_config
from suwen.llm.ledger import Progress
from suwen.llm.reply_cache import Cache

Pair = tuple[str, str]
SERVER = Path(__file__).with_name("serve_gguf.py")
RETRIEVERS = ("lexical", "dense")
#: Each judge has a model entry of its own, so that the ledger tells what each one took.
JUDGES = (Judge("small-zh", "small-zh"), Judge("small-en", "small-en", "en"), Judge("large-zh", "large-zh"))


@dataclass(frozen=True)
class Model:
    """A GGUF file: what it is called, its digest, and the judges it gives."""

    name: str
    file: Path
    digest: str
    judges: tuple[Judge, ...]


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", type=Path, required=True, help="the GGUF file of the small model")
    parser.add_argument("--large", type=Path, required=True, help="the GGUF file of the larger model")
    parser.add_argument("--out", type=Path, required=True, help="the folder of all files; run again to go on")
    parser.add_argument("--pool", type=Path, help="a pool.jsonl to judge; without it the sample is pooled again")
    parser.add_argument("--queries", type=int, default=20, help="the first so many queries (%(default)s)")
    parser.add_argument("--passages", type=int, default=10, help="passages of each (%(default)s)")
    parser.add_argument("--again", type=float, default=0.25, help="share of queries judged twice (%(default)s)")
    parser.add_argument("--batch", type=int, default=5, help="passages judged at once (%(default)s)")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="of each server")
    return parser.parse_args()


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def pool(folder: JuryFolder, collection: Collection, queries: int, passages: int) -> None:
    """Pool the first queries by words and by meaning, and keep the best of both lists, with who found what."""
    pool_collection(folder, collection, RETRIEVERS, depth=passages, queries=queries)
    best = [_best(pooled, passages) for pooled in read_pool(folder.pool)]
    folder.pool.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in best), encoding="utf-8")


def take_pool(folder: JuryFolder, collection: Collection, pool: Path) -> None:
    """Judge a pool that was made before, of the same collection."""
    with Texts(folder.texts, create=True) as store:
        store.want(one.passage_id for pooled in read_pool(pool) for one in pooled.candidates)
        store.fill(collection.documents())
    shutil.copyfile(pool, folder.pool)


def _best(pooled: PooledQuery, passages: int) -> dict[str, Any]:
    # Python's sort is stable: of two with one best rank, the first retriever's goes first.
    chosen = sorted(pooled.candidates, key=lambda one: min((place.rank for place in one.found), default=0))[:passages]
    candidates = [{"passage_id": one.passage_id, "found": [f._asdict() for f in one.found]} for one in chosen]
    return {"query_id": pooled.id, "query": pooled.text, "candidates": candidates}


def configure(path: Path, models: Sequence[Model], ports: Mapping[str, int], batch: int) -> None:
    """Write the configuration; replies are kept by the model's digest, so the ports may change from run to run."""
    parts = []
    for model in models:
        parts.append(
            f'[llm.endpoints.{model.name}]\nbase_url = "http://127.0.0.1:{ports[model.name]}/v1"\n'
            f"concurrency = {len(model.judges)}\n"
            f'timeout = 3600\njson_mode = "schema"\nidentity = "gguf {model.digest}"\n'
        )
        parts += [
            f'[llm.models.{judge.model}]\nendpoint = "{model.name}"\nmodel = "{model.name}"\ncontext = 4096\n'
            f"max_tokens = {20 * batch}\nseed = 0\n"
            for judge in model.judges
        ]
    path.write_text("\n".join(parts), encoding="utf-8")


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(model: Model, port: int, threads: int, log: Path) -> Iterator[None]:
    """Serve a model for as long as the block lasts."""
    command = [sys.executable, str(SERVER), str(model.file), "--name", model.name, "--port", str(port)]
    # A slot for each judge: a server keeps what it has read of a prompt whose beginning stays the same.
    command += ["--threads", str(threads), "--parallel", str(len(model.judges))]
    with log.open("w", encoding="utf-8") as errors:
        # A session of its own: Ctrl-C must reach the jury alone, which lets the call in flight finish.
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        assert server.stdout is not None
        try:
            if not any(line.startswith(f"{model.name} at ") for line in server.stdout):
                raise SystemExit(f"{model.file} cannot be served: see {log}")
            yield
        finally:
            server.terminate()
            server.wait()


def tell(made: Progress) -> None:
    """Say how far the judges are."""
    eta = "" if made.eta is None else f", {made.eta / 60:.0f} min to go"
    say(f"{made.done} of {made.total} batches{eta}")


def judge(given: argparse.Namespace, folder: JuryFolder, models: Sequence[Model]) -> Judged:
    """Let the judges vote, query by query: whenever it is stopped, the first queries have all their votes."""
    config, ports = given.out / "suwen.toml", {model.name: free_port() for model in models}
    configure(config, models, ports, given.batch)
    with ExitStack() as stack:
        texts, votes = stack.enter_context(Texts(folder.texts)), stack.enter_context(Votes(folder.votes))
        llm = stack.enter_context(LLM.open(load_config(config), folder.replies, progress=tell))
        settings = JudgingSettings(given.batch, 0, given.again, reasons=False)
        jury = Jury(JUDGES, folder.pool, texts, votes, llm, settings)
        for model in models if jury.plan().calls else ():
            say(f"starting {model.file.name}")
            stack.enter_context(serving(model, ports[model.name], given.threads, given.out / f"{model.name}.log"))
        return jury.judge()


def scored(chosen: set[Pair], truth: set[Pair]) -> dict[str, float | int | None]:
    """Precision and recall of chosen pairs."""
    right = len(chosen & truth)
    return {
        "chosen": len(chosen),
        "right": right,
        "precision": round(right / len(chosen), 4) if chosen else None,
        "recall": round(right / len(truth), 4) if truth else None,
    }


def against_qrels(verdicts: Mapping[str, Sequence[Verdict]], qrels: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """How judges and consensus fare against the sample's own judgements, for what answers and for what at least helps.

    Args:
        verdicts: The verdicts of each rule, over the same pairs.
        qrels: 2 answers the query, 1 helps.
    """
    votes = [vote for verdict in next(iter(verdicts.values())) for vote in verdict.main]
    pairs = {(verdict.query_id, verdict.passage_id) for verdict in next(iter(verdicts.values()))}
    grade = {pair: qrels.get(pair[0], {}).get(pair[1], 0) for pair in pairs}
    found: dict[str, Any] = {}
    for name, least in (("answers", 2), ("helps", 1)):
        truth = {pair for pair in pairs if grade[pair] >= least}
        rows = {"every pair": scored(pairs, truth)}
        for one in JUDGES:
            chosen = {(v.query_id, v.passage_id) for v in votes if v.judge == one.name and v.grade in POSITIVE}
            rows[one.name] = scored(chosen, truth)
        for rule, decided in verdicts.items():
            rows[rule] = scored({(v.query_id, v.passage_id) for v in decided if v.label == "positive"}, truth)
        found[name] = rows
    found["grades"] = {
        one.name: {
            str(own): {
                g: sum(v.judge == one.name and v.grade == g and _own(v, grade) == own for v in votes) for g in GRADES
            }
            for own in (2, 1, 0)
        }
        for one in JUDGES
    }
    return found


def _own(vote: Any, grade: Mapping[Pair, int]) -> int:
    return grade[vote.query_id, vote.passage_id]


def ordered(verdicts: Sequence[Verdict], qrels: Mapping[str, Mapping[str, int]]) -> dict[str, float | None]:
    """How often a judge grades what answers above what is not judged relevant for the same query; a tie is half."""
    shares: dict[str, float | None] = {}
    for one in JUDGES:
        points, compared = 0.0, 0
        graded: dict[str, list[tuple[int, int]]] = {}
        for verdict in verdicts:
            for vote in verdict.main:
                if vote.judge == one.name and vote.grade is not None:
                    own = qrels.get(verdict.query_id, {}).get(verdict.passage_id, 0)
                    graded.setdefault(verdict.query_id, []).append((own, VALUES[vote.grade]))
        for rows in graded.values():
            for better in (value for own, value in rows if own == 2):
                for worse in (value for own, value in rows if own == 0):
                    points += 1.0 if better > worse else 0.5 if better == worse else 0.0
                    compared += 1
        shares[one.name] = round(points / compared, 4) if compared else None
    return shares


def write_grades(path: Path, verdicts: Sequence[Verdict], qrels: Mapping[str, Mapping[str, int]]) -> None:
    """Write what became of each pair in one short line: its label, the sample's own judgement, grades and places.

    Args:
        path: The file.
        verdicts: Of one rule.
        qrels: 2 answers the query, 1 helps.
    """
    lines = []
    for verdict in verdicts:
        given: dict[str, list[str]] = {}
        for vote in sorted(verdict.votes, key=lambda one: one.round):
            # Such as A2: an A, as the second passage of its batch. A judge asked twice has two.
            given.setdefault(vote.judge, []).append(f"{vote.grade or '-'}{vote.position}")
        row = {"query_id": verdict.query_id, "passage_id": verdict.passage_id, "label": verdict.label}
        own = qrels.get(verdict.query_id, {}).get(verdict.passage_id, 0)
        lines.append(json.dumps(row | {"own": own, "grades": given}, ensure_ascii=False) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def summarise(folder: JuryFolder, collection: Collection, models: Sequence[Model]) -> dict[str, Any]:
    """Write verdicts and report, and gather the numbers."""
    qrels, names = collection.qrels(), [one.name for one in JUDGES]
    cache = Cache(folder.replies)
    ledger = cache.ledger()
    cache.close()
    with Votes(folder.votes, create=False) as votes, Texts(folder.texts) as texts:
        present = [name for name in names if name in votes.judges()]
        verdicts = {mode: list(consensus(votes, Rule(mode), present)) for mode in ("unanimous", "majority")}
        write_verdicts(folder.verdicts, verdicts["unanimous"])
        write_grades(folder.verdicts.with_name("grades.jsonl"), verdicts["unanimous"], qrels)
        found = reporting.jury_report(folder.pool, votes, Rule(), present, ledger=ledger)
        title = "The sample, judged by small local models"
        reporting.write_report(folder.report, found, folder.pool, texts, verdicts["unanimous"], title)
        replies = {one.name: len({vote.reply_key for vote in votes if vote.judge == one.name}) for one in JUDGES}
        abstained = ratings(votes, present).absent.sum(axis=0).tolist()
    plain: dict[str, Any] = reporting.plain(found)
    # In a run that was stopped, judges are compared on what all of them have voted on.
    whole = {mode: [one for one in made if len(one.main) == len(present)] for mode, made in verdicts.items()}
    return {
        "independent": False,
        "models": {model.name: {"sha256": model.digest, "bytes": model.file.stat().st_size} for model in models},
        "judges": plain["judges"],
        "abstentions": dict(zip(present, abstained, strict=True)),
        # A reply more than there are first requests is a repair, or a second request for passages left out.
        "repairs": {row.model: row.replies - replies[row.model] for row in ledger},
        "funnel": plain["funnel"],
        "kappa": {name: plain["agreement"][name] for name in ("sides", "grades", "pairwise")},
        "severity": plain["agreement"]["severity"],
        "qrels": against_qrels(whole, qrels),
        "ordered": ordered(whole["unanimous"], qrels),
        "positions": plain["positions"],
        "ledger": plain["ledger"],
    }


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    if not file.is_file():
        raise SystemExit(f"there is no file {file}: name a GGUF file")
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def main() -> int:
    """Do all of it, or what is still missing."""
    given = options()
    models = (
        Model("small", given.small, digest(given.small), JUDGES[:2]),
        Model("large", given.large, digest(given.large), JUDGES[2:]),
    )
    folder, collection = JuryFolder(given.out), Collection.open(sample_path())
    given.out.mkdir(parents=True, exist_ok=True)
    if not folder.pool.is_file():
        if given.pool is not None:
            take_pool(folder, collection, given.pool)
        else:
            say("indexing and pooling")
            pool(folder, collection, given.queries, given.passages)
    done = judge(given, folder, models)
    summary = summarise(folder, collection, models) | {"complete": done.complete, "asked_again": done.asked_again}
    (given.out / "summary.json").write_text(json.dumps(summary, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    say(f"{'done' if summary['complete'] else 'not finished: run again'}; {folder.report}")
    return 0 if summary["complete"] else 3


if __name__ == "__main__":
    sys.exit(main())
