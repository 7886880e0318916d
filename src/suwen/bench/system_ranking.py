"""Whether a jury ranks systems as experts do: scores of runs under both labels, and Kendall's tau. Runs no system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from suwen.bench.retrieval_metrics import MetricError, judge, score
from suwen.corpora.run_files import named_run, read_ranking, read_trec_qrels
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.review_store import Reviews
from suwen.jury.sampling import read_sample
from suwen.jury.verdicts import read_verdicts

#: Grades by query and passage.
Qrels = Mapping[str, Mapping[str, int]]
Run = Mapping[str, Sequence[tuple[str, float]]]


class SystemScores(NamedTuple):
    """A system's score under the jury's labels and under the experts'."""

    name: str
    jury: float
    experts: float


@dataclass(frozen=True)
class SystemRanking:
    """How far two sets of labels rank systems alike.

    Attributes:
        metric: What was measured.
        pairs: Pairs that both labelled; nothing else was counted.
        queries: Their queries.
        systems: The scores, best first by the jury.
        tau: Kendall's tau-b of the two rankings; NaN where one ranks all systems alike.
        p_value: How often a tau as far from 0 comes by chance.
    """

    metric: str
    pairs: int
    queries: int
    systems: list[SystemScores]
    tau: float
    p_value: float


def compare_rankings(runs: Mapping[str, Run], jury: Qrels, experts: Qrels, metric: str = "ndcg@10") -> SystemRanking:
    """Score runs under both labels, over the pairs that both have, and compare the rankings.

    What only one side labelled is taken out of the runs (Sakai's condensed lists): otherwise a system would be held to
    how many pairs were labelled, not to how.

    Args:
        runs: The hits of each system.
        jury: The jury's labels.
        experts: The experts' labels.
        metric: One of :data:`suwen.bench.retrieval_metrics.RANKING`, with a cut.
    """
    if len(runs) < 2:
        raise MetricError("a ranking needs at least two systems: name more runs (--run)")
    both = {
        query: kept for query, own in jury.items() if (kept := [id_ for id_ in own if id_ in experts.get(query, {})])
    }
    if not both:
        raise MetricError("no pair has both a jury's and an expert's label: have experts label pairs that were judged")
    sides = [
        {query: {id_: given[query][id_] for id_ in ids} for query, ids in both.items()} for given in (jury, experts)
    ]
    scored = []
    for name, run in runs.items():
        condensed = {
            query: {id_: value for id_, value in run.get(query, ()) if id_ in side} for query, side in sides[0].items()
        }
        if not any(condensed.values()):
            raise MetricError(f"the run {name!r} finds none of the labelled pairs: is it of another collection?")
        means = [float(score(judge(condensed, side), [metric])[metric].mean()) for side in sides]
        scored.append(SystemScores(name, *means))
    tau, p_value = _tau([one.jury for one in scored], [one.experts for one in scored])
    ranked = sorted(scored, key=lambda one: (-one.jury, one.name))
    return SystemRanking(metric, sum(map(len, both.values())), len(both), ranked, tau, p_value)


def _tau(left: Sequence[float], right: Sequence[float]) -> tuple[float, float]:
    try:
        from scipy.stats import kendalltau
    except ImportError:
        raise MetricError("Kendall's tau needs scipy: pip install 'suwen[curate]'") from None
    found = kendalltau(left, right)
    return float(found.statistic), float(found.pvalue)


def rank_folder(
    folder: JuryFolder, runs: Sequence[str], metric: str = "ndcg@10", qrels: Path | None = None
) -> SystemRanking:
    """Compare rankings of systems under the verdicts of a jury's folder and under experts' labels.

    Args:
        folder: The jury's folder; its experts' labels are those of its review.
        runs: ``NAME=FILE`` or ``FILE``, see :mod:`suwen.corpora.run_files`.
        metric: What is measured.
        qrels: A file of experts' judgements in place of the review's labels; where its grades go beyond 1, the jury's
            are on the same scale of 0 to 3.
    """
    named = dict(named_run(spec) for spec in runs)
    if len(named) < len(runs):
        raise MetricError("two runs have one name: write NAME=FILE for one of them")
    experts = read_trec_qrels(qrels) if qrels is not None else _reviewed(folder)
    graded = any(grade > 1 for own in experts.values() for grade in own.values())
    return compare_rankings(
        {name: read_ranking(path) for name, path in named.items()}, jury_qrels(folder, graded=graded), experts, metric
    )


def jury_qrels(folder: JuryFolder, *, graded: bool = False, final: bool = False) -> dict[str, dict[str, int]]:
    """The decided pairs of a folder's verdicts: 1 and 0, or 0 to 3.

    Args:
        folder: The jury's folder.
        graded: Whether on TREC's scale of 0 to 3.
        final: Whether experts' labels stand in place of the jury's own, as ``consensus --reviewed`` put them there.
    """
    qrels: dict[str, dict[str, int]] = {}
    for verdict in read_verdicts(folder.verdicts):
        one = verdict if final else verdict.by_the_jury
        grade = one.grade if graded else {"positive": 1, "negative": 0}.get(one.label)
        if grade is not None:
            qrels.setdefault(one.query_id, {})[one.passage_id] = grade
    return qrels


def _reviewed(folder: JuryFolder) -> dict[str, dict[str, int]]:
    sample = {one.pair: one for one in read_sample(folder.sample)}
    experts: dict[str, dict[str, int]] = {}
    with Reviews(folder.reviews) as reviews:
        for pair, label in reviews.settled().items():
            if label is not None and pair in sample:
                experts.setdefault(sample[pair].query_id, {})[sample[pair].passage_id] = int(label == "positive")
    return experts
