"""Scoring one system on one task's loaded data: the numbers and what a reader wants to see of each query. No files."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from suwen.bench.dense_systems import encode_side, rank_densely, similarity_of
from suwen.bench.exact_search import PairScores, Ranks, RunView, without
from suwen.bench.retrieval_metrics import (
    RANKING,
    Floats,
    Run,
    judge,
    pair_similarities,
    parse,
    pearson,
    score,
    spearman,
)
from suwen.bench.suite_tasks import Task
from suwen.bench.systems import NotApplicable, Ranker, RankingContext, Setting, System, is_dense
from suwen.bench.task_data import Data, Paired, Ranked

#: The depth of a run for a metric without a cutoff, as is usual with trec_eval.
DEEP = 1000
_SHALLOWEST = 100
_SHOWN, _CHARACTERS = 3, 300
#: Enough for a histogram.
_MOST_SIMILARITIES = 20_000


class Scored(NamedTuple):
    """A task's metrics, a record per query (or pair), and what they were made of."""

    metrics: dict[str, float]
    rows: list[dict[str, Any]]
    ranks: Ranks | None
    similarity: str | None
    similarities: dict[str, Any] | None
    notes: list[str]


class _Sample(NamedTuple):
    """Pairs for a histogram: which are relevant, and where the others come from."""

    pairs: PairScores
    relevant: Any
    negatives: str


def ranking_metrics(task: Task) -> list[str]:
    """The metrics of a task that score a ranking."""
    return [name for name in task.metrics if parse(name)[0] in RANKING]


def default_depth(task: Task) -> int:
    """How many hits the metrics of a task need: the deepest cutoff and at least 100, or 1,000 where one has none."""
    cutoffs = [parse(name)[1] for name in ranking_metrics(task)]
    return max([_SHALLOWEST, *(DEEP if cutoff is None else cutoff for cutoff in cutoffs)])


def score_task(system: System, data: Data, setting: Setting, context: RankingContext) -> Scored:
    """Run a system on a task and score it.

    Raises:
        NotApplicable: The system cannot do this kind of task.
        SuwenError: It failed, or what it gave cannot be scored.
    """
    if isinstance(data, Paired):
        return _score_pairs(system, data, setting, context)
    return _score_ranking(system, data, setting, context)


def _score_pairs(system: System, data: Paired, setting: Setting, context: RankingContext) -> Scored:
    """Sentence pairs. Both are put as queries, since neither answers the other; MTEB treats them alike too."""
    if not is_dense(system):
        raise NotApplicable(f"{system.name} ranks passages and gives no similarity of two sentences; use an encoder")
    both = encode_side(system, [*data.left, *data.right], setting, context)
    similarity = similarity_of(system, setting)
    values = pair_similarities(both[: len(data.left)], both[len(data.left) :], similarity)
    known = {"pearson": pearson, "spearman": spearman}
    metrics = {name: known[name](values, data.scores) for name in setting.task.metrics}
    pairs = zip(data.left, data.right, data.scores, values.tolist(), strict=True)
    rows = [
        {"query": str(number), "text": one, "other": other, "gold": gold, "metrics": {"similarity": value}}
        for number, (one, other, gold, value) in enumerate(pairs)
    ]
    # The middle of the range, not the median: half the labels of a 0/1 set may be one of the two.
    high = np.asarray(data.scores) > (min(data.scores) + max(data.scores)) / 2
    histogram = _histogram(similarity, values[high], values[~high], "pairs in the lower half of the gold scores")
    return Scored(metrics, rows, None, similarity, histogram, [])


def _score_ranking(system: System, data: Ranked, setting: Setting, context: RankingContext) -> Scored:
    task, notes = setting.task, list[str]()
    # As many more are ranked as may be taken out, so that a cut at k still has k.
    context = context._replace(depth=context.depth + max(map(len, data.excluded.values()), default=0))
    similarity: str | None = None
    histogram, means = None, None
    if is_dense(system):
        sample, similarity = _sample(data), similarity_of(system, setting)
        ranks = rank_densely(system, data, setting, context, sample.pairs)
        scores = sample.pairs.scores
        histogram = _histogram(similarity, scores[sample.relevant], scores[~sample.relevant], sample.negatives)
        means = _means(sample, len(data.queries))
    else:
        ranks = cast(Ranker, system).rank(data, setting, context)
    ranks = without(ranks, data.query_ids, data.document_ids, data.excluded)
    view = cast(Run, RunView(ranks, data.query_ids, data.document_ids))
    values = score(judge(view, data.qrels), ranking_metrics(task))
    if "positive_similarity" in task.metrics:
        if means is not None:
            values["positive_similarity"] = means
        else:
            notes.append(f"positive_similarity is left out: {system.name} has no vectors")
    if task.main not in values:
        raise NotApplicable(f"{system.name} has no vectors, so {task.main} cannot measure it; use an encoder")
    metrics = {name: float(values[name].mean()) for name in task.metrics if name in values}
    if "positive_similarity_deviation" in task.metrics and means is not None:
        metrics["positive_similarity_deviation"] = float(means.std())
    return Scored(metrics, _rows(data, ranks, values), ranks, similarity, histogram, notes)


def _sample(data: Ranked) -> _Sample:
    """Every relevant pair, and beside them pairs judged irrelevant, or else random ones, as many."""
    row_of = {document: row for row, document in enumerate(data.document_ids)}
    judged = [
        (number, row_of[document], grade > 0)
        for number, query in enumerate(data.query_ids)
        for document, grade in data.qrels[query].items()
    ]
    good = [pair for pair in judged if pair[2]]
    bad = [pair for pair in judged if not pair[2]][:_MOST_SIMILARITIES]
    negatives = "passages judged irrelevant" if bad else "random passages"
    if not bad:
        generator = np.random.default_rng(0)
        count = min(len(good), _MOST_SIMILARITIES)
        queries, documents = (generator.integers(len(side), size=count) for side in (data.queries, data.documents))
        drawn = zip(queries.tolist(), documents.tolist(), strict=True)
        bad = [
            (one, other, False)
            for one, other in drawn
            if data.document_ids[other] not in data.qrels[data.query_ids[one]]
        ]
    chosen = sorted(good + bad, key=lambda pair: pair[1])
    pairs = PairScores.of([pair[0] for pair in chosen], [pair[1] for pair in chosen])
    return _Sample(pairs, np.asarray([pair[2] for pair in chosen], bool), negatives)


def _histogram(similarity: str, positives: Any, negatives: Any, negatives_are: str) -> dict[str, Any]:
    return {
        "similarity": similarity,
        "positives": np.round(np.asarray(positives[:_MOST_SIMILARITIES], np.float64), 5).tolist(),
        "negatives": np.round(np.asarray(negatives[:_MOST_SIMILARITIES], np.float64), 5).tolist(),
        "negatives_are": negatives_are,
    }


def _means(sample: _Sample, count: int) -> Floats:
    """The mean similarity of each query with its relevant passages."""
    owners = sample.pairs.queries[sample.relevant]
    scores = sample.pairs.scores[sample.relevant].astype(np.float64)
    sums = np.bincount(owners, scores, minlength=count)
    return np.asarray(sums / np.maximum(np.bincount(owners, minlength=count), 1), np.float64)


def _rows(data: Ranked, ranks: Ranks, values: dict[str, Floats]) -> list[dict[str, Any]]:
    """Each query for a reader: what it asked, what came first, what should have come."""
    row_of = {document: row for row, document in enumerate(data.document_ids)}
    rows = []
    for number, query in enumerate(data.query_ids):
        grades = data.qrels[query]
        first = zip(ranks.rows[number, :_SHOWN].tolist(), ranks.scores[number, :_SHOWN].tolist(), strict=True)
        wanted = sorted((document for document, grade in grades.items() if grade > 0), key=lambda id_: -grades[id_])
        rows.append(
            {
                "query": query,
                "text": data.queries[number],
                "metrics": {name: float(value[number]) for name, value in values.items()},
                "hits": [_shown(data, row, grades) | {"score": value} for row, value in first if row >= 0],
                "relevant": [_shown(data, row_of[document], grades) for document in wanted[:_SHOWN]],
            }
        )
    return rows


def _shown(data: Ranked, row: int, grades: dict[str, int]) -> dict[str, Any]:
    document = data.document_ids[row]
    return {"id": document, "grade": grades.get(document), "text": data.documents[row][:_CHARACTERS]}
