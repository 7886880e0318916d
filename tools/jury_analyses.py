"""Why judges disagree, and how hard the queries are: CARE's Tables 12 and 13 for the folder of a jury.

Without a model it counts what votes and texts show: how far apart the judges are on pairs that they put on two sides,
who stands alone, and how many words of a query its easiest positive has. With ``--model`` a sample of these pairs and
queries is put to a model of ``suwen.toml``, with the prompts ``jury-disagreement`` and ``query-difficulty``. Replies
are kept in the folder: the same command asks nothing twice. Needs the verdicts of ``suwen jury consensus``. Example::

    python tools/jury_analyses.py work
    python tools/jury_analyses.py work --model large --sample 100
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from suwen.bench.published_tables import published
from suwen.durable import write_json
from suwen.jury.judge_batches import draw
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.pooling import read_pool
from suwen.jury.sampling import difficulty, disagreement
from suwen.jury.texts import Texts
from suwen.jury.verdicts import VALUES, Verdict, read_verdicts
from suwen.llm.asker import Asker
from suwen.llm.client import LLM
from suwen.llm.config import load_config

#: How the rows of the paper's tables are called here.
KINDS = {"boundary": "Boundary relevance", "mistake": "LLM hallucination", "noise": "Noise"}
LEVELS = {"lexical": "L1: Lexical", "semantic": "L2: Semantic", "inference": "L3: Hard"}
#: From easy to hard.
SHARED = ("words shared", "some shared", "few shared")


class Positive(NamedTuple):
    """A query, and of its positives the first of those that share most of its words."""

    query_id: str
    query: str
    passage: str
    shared: str


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("work", type=Path, help="the jury's folder")
    parser.add_argument(
        "--worst", choices=("S", "A", "B", "C"), default="A", help="the worst positive grade (%(default)s)"
    )
    parser.add_argument("--model", help="a model of the configuration, to classify a sample")
    parser.add_argument("--config", type=Path, help="the configuration (SUWEN_CONFIG, suwen.toml)")
    parser.add_argument("--language", choices=("zh", "en"), default="zh", help="of the prompts (%(default)s)")
    parser.add_argument("--sample", type=int, default=100, help="pairs, and queries, put to the model (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (%(default)s)")
    return parser.parse_args(arguments)


def positives(verdicts: Iterable[Verdict], queries: Mapping[str, str], texts: Texts) -> list[Positive]:
    """Every query with a positive, and the easiest of its positives by words."""
    found: dict[str, Positive] = {}
    for verdict in verdicts:
        if verdict.label != "positive":
            continue
        query, passage = queries[verdict.query_id], texts.get([verdict.passage_id])[verdict.passage_id]
        one = Positive(verdict.query_id, query, passage, difficulty(query, passage))
        best = found.get(one.query_id)
        if best is None or SHARED.index(one.shared) < SHARED.index(best.shared):
            found[one.query_id] = one
    return list(found.values())


def two_sides(verdict: Verdict, worst: str) -> tuple[list[str], list[str]]:
    """The judges who find that a passage answers, and those who do not; abstentions are on neither side."""
    graded = [(vote.judge, VALUES[vote.grade]) for vote in verdict.main if vote.grade is not None]
    cut = VALUES[worst]
    return [judge for judge, value in graded if value >= cut], [judge for judge, value in graded if value < cut]


def counted(split: Sequence[Verdict], found: Sequence[Positive], worst: str) -> dict[str, dict[str, int]]:
    """What needs no model: how far apart judges are, who stands alone, how many words positives share."""
    alone: Counter[str] = Counter()
    for verdict in split:
        fewer, more = sorted(two_sides(verdict, worst), key=len)
        if len(fewer) == 1 < len(more):
            alone[fewer[0]] += 1
    return {
        "pairs on two sides": dict(Counter(map(disagreement, split))),
        "judge alone on its side": dict(alone),
        "queries by their easiest positive": dict(Counter(one.shared for one in found)),
    }


def votes_shown(verdict: Verdict) -> str:
    """The votes as a model sees them: no judge's name, which might sway it."""
    votes = enumerate(verdict.main, 1)
    return "\n".join(f"{number}. {vote.grade or vote.abstained}: {vote.reason}" for number, vote in votes)


def asked(
    asker: Asker, split: Sequence[Verdict], found: Sequence[Positive], queries: Mapping[str, str], texts: Texts
) -> dict[str, dict[str, str]]:
    """What a model makes of the sampled pairs and queries, by their ids."""
    pairs = (
        asker.request(
            "jury-disagreement",
            {
                "query": queries[verdict.query_id],
                "passage": texts.get([verdict.passage_id])[verdict.passage_id],
                "votes": votes_shown(verdict),
            },
            key=f"{verdict.query_id} {verdict.passage_id}",
            long=("passage",),
        )
        for verdict in split
    )
    hard = (
        asker.request(
            "query-difficulty", {"query": one.query, "passage": one.passage}, key=one.query_id, long=("passage",)
        )
        for one in found
    )
    return {
        "kinds": asker.ask("kinds", pairs, lambda data: str(data["kind"]), lambda _: "boundary"),
        "levels": asker.ask("levels", hard, lambda data: str(data["level"]), lambda _: "semantic"),
    }


def sampled(items: Iterable[Any], size: int, *keys: Any) -> list[Any]:
    """A random sample that stays the same however the items are ordered."""
    return sorted(items, key=lambda item: draw(*keys, *item))[:size]


def shares(answers: Mapping[str, str], names: Mapping[str, str], table: int) -> list[str]:
    """Lines of a table: our share beside the paper's, in per cent."""
    counts = Counter(answers.values())
    theirs = {figure.row: figure.value for figure in published("care", table) if figure.column == "Ratio"}
    lines = [f"| CARE's Table {table} | here (N={len(answers)}) | the paper (N=100) |", "|---|---:|---:|"]
    for name, row in names.items():
        ours = f"{100 * counts[name] / len(answers):.0f}" if answers else "-"
        lines.append(f"| {row} | {ours} | {theirs[row]} |")
    return lines


def analyse(arguments: argparse.Namespace) -> dict[str, Any]:
    """Do what the command line asks; what came of it is in ``analyses.json`` of the folder too."""
    folder = JuryFolder(arguments.work)
    queries = {pooled.id: pooled.text for pooled in read_pool(folder.pool)}
    verdicts = list(read_verdicts(folder.verdicts))
    split = [verdict for verdict in verdicts if all(two_sides(verdict, arguments.worst))]
    with Texts(folder.texts) as texts:
        found = positives(verdicts, queries, texts)
        made: dict[str, Any] = {"counted": counted(split, found, arguments.worst)}
        if arguments.model:
            by_pair = {(one.query_id, one.passage_id): one for one in split}
            by_query = {(one.query_id,): one for one in found}
            pairs = [by_pair[key] for key in sampled(by_pair, arguments.sample, arguments.seed)]
            some = [by_query[key] for key in sampled(by_query, arguments.sample, arguments.seed)]
            with LLM.open(load_config(arguments.config), folder.replies) as llm:
                asker = Asker(llm, arguments.model, arguments.language)
                made |= asked(asker, pairs, some, queries, texts) | {"model": arguments.model, "failed": asker.failed}
    write_json(folder.root / "analyses.json", made)
    return made


def told(made: Mapping[str, Any]) -> list[str]:
    """The analyses as Markdown."""
    lines = []
    for title, counts in made["counted"].items():
        lines += [f"{title}:", *(f"- {name}: {count}" for name, count in sorted(counts.items())), ""]
    if "kinds" in made:
        lines += [*shares(made["kinds"], KINDS, 12), "", *shares(made["levels"], LEVELS, 13)]
        lines += [f"{made['failed']} requests got no usable reply: run it again"] if made["failed"] else []
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(told(analyse(options()))) + "\n")
