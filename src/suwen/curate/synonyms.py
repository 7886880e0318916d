"""Synonym STS (CARE section 3.1, Table 24): questions rewritten with a synonym, and pairs drawn from them.

Of each query a model writes one question of the same meaning with the synonym, one of another meaning with the synonym,
and one of another meaning with the term itself. The rules they must meet are in ``synonym_terms``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from suwen.corpora.records import Query
from suwen.corpora.tabular import records
from suwen.corpora.training_rows import TrainingRow, write_training_rows
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut
from suwen.curate.splitting import refuse_duplicates, split_queries
from suwen.curate.synonym_terms import Case, Dictionary, complaint
from suwen.durable import write_json, write_lines
from suwen.llm.asker import Asker
from suwen.llm.requests import Request

#: CARE's published rows call the symmetric ones so.
ROW_TYPE = "symmetric_sts"
_WINDOW = 2000


class Sample(NamedTuple):
    """A case with its three rewritten questions."""

    case: Case
    same: str
    other_with_synonym: str
    other_with_term: str


class SentencePair(NamedTuple):
    """Two sentences; the score is 1 where they mean the same, else 0."""

    sentence1: str
    sentence2: str
    score: float


@dataclass(frozen=True)
class StsSettings:
    """How an STS is drawn.

    Attributes:
        train: The share of cases that becomes training rows instead of test pairs.
        positive_share: How often the pair of a query is the positive one; the paper's test set has 0.48.
        near_duplicate: See :class:`suwen.curate.near_duplicates.Near`.
        seed: Of every draw.
    """

    train: float = 0.0
    positive_share: float = 0.5
    near_duplicate: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.positive_share < 1:
            raise CurateError(f"a share of {self.positive_share} positive pairs: give more than 0 and less than 1")


def find_cases(queries: Sequence[Query], dictionary: Dictionary, seed: int = 0) -> list[Case]:
    """The queries that have a term to replace; queries that come twice, and finding none, are errors."""
    if not queries:
        raise CurateError("there are no queries to rewrite: give a collection with queries.jsonl")
    refuse_duplicates({query.id: query.text for query in queries})
    cases = [case for query in queries if (case := dictionary.case(query, seed)) is not None]
    if not cases:
        raise CurateError(
            f"none of {len(queries)} queries uses a term of the dictionary that can be replaced: give more queries, or "
            "a dictionary of the terms they use"
        )
    return cases


def rewrite(cases: Iterable[Case], asker: Asker) -> Iterator[Sample]:
    """Have the cases rewritten, a window at a time; one whose rewriting breaks a rule twice is left out."""
    stream = iter(cases)
    while window := {case.id: case for case in islice(stream, _WINDOW)}:
        requests = [_request(case, asker) for case in window.values()]
        rewritten = asker.ask("rewrite", requests, dict[str, str], lambda request: _stand_in(window[request.key]))
        yield from (Sample(case, **rewritten[id_]) for id_, case in window.items() if id_ in rewritten)


def _request(case: Case, asker: Asker) -> Request:
    shortest, longest = case.bounds
    values: dict[str, str | int | float] = {
        "query": case.query,
        "swapped": case.swapped,
        "term": case.term,
        "synonym": case.synonym,
        "shortest": shortest,
        "longest": longest,
    }
    return asker.request("synonym-pairs", values, key=case.id, check=lambda data: complaint(data, case))


def _stand_in(case: Case) -> dict[str, str]:
    return {"same": case.swapped, "other_with_synonym": case.swapped, "other_with_term": case.query}


def draw_pair(sample: Sample, settings: StsSettings) -> SentencePair:
    """The pair of a sample: the positive one as often as asked for, else one of the two negatives."""
    draw = random.Random(f"{settings.seed}:pair:{sample.case.id}")
    if draw.random() < settings.positive_share:
        return SentencePair(sample.case.query, sample.same, 1.0)
    return SentencePair(sample.case.query, draw.choice([sample.other_with_synonym, sample.other_with_term]), 0.0)


def training_row(sample: Sample) -> TrainingRow:
    """A row with the positive and both negatives."""
    negatives = (sample.other_with_synonym, sample.other_with_term)
    return TrainingRow(sample.case.query, (sample.same,), negatives, type=ROW_TYPE)


def make_sts(
    queries: Sequence[Query], dictionary: Dictionary, asker: Asker, out: Path, settings: StsSettings
) -> dict[str, int]:
    """Make ``test.jsonl`` (pairs), ``samples.jsonl`` (everything written), ``funnel.json`` and the training rows.

    Queries about one dictionary entry, and near-duplicates, are on one side of the split. Nothing is written in a dry
    run. Gives what became of the queries.
    """
    cases = find_cases(queries, dictionary, settings.seed)
    divided = split_queries(
        {case.id: case.query for case in cases},
        settings.train,
        seed=settings.seed,
        near_duplicate=settings.near_duplicate,
        links={case.id: case.entry for case in cases},
    )
    samples = {sample.case.id: sample for sample in rewrite(cases, asker)}
    pairs = [draw_pair(samples[id_], settings) for id_ in divided.test if id_ in samples]
    rows, leaking = _safe_rows([samples[id_] for id_ in divided.train if id_ in samples], pairs)
    funnel = {
        "queries": len(queries),
        "ambiguous_names_left_out": len(dictionary.ambiguous),
        "with_a_term": len(cases),
        "rewritten": len(samples),
        "rejected_or_unanswered": len(cases) - len(samples),
        "test_pairs": len(pairs),
        "positive_pairs": sum(pair.score > 0 for pair in pairs),
        "training_rows": len(rows),
        "dropped_for_leaking": leaking,
    }
    if asker.dry_run:
        return funnel
    if not samples:
        raise CurateError(f"none of {len(cases)} queries could be rewritten; the first problem: {asker.problem}")
    out.mkdir(parents=True, exist_ok=True)
    written = (sample.case._asdict() | sample._asdict() for sample in samples.values())
    write_lines(out / "samples.jsonl", ({key: value for key, value in one.items() if key != "case"} for one in written))
    write_lines(out / "test.jsonl", (pair._asdict() for pair in pairs))
    if rows:
        write_training_rows(out / "train.jsonl.gz", rows)
    write_json(out / "funnel.json", funnel)
    return funnel


def _safe_rows(samples: Sequence[Sample], pairs: Sequence[SentencePair]) -> tuple[list[TrainingRow], int]:
    held_out = HeldOut(text for pair in pairs for text in pair[:2])
    rows = [training_row(sample) for sample in samples]
    kept = [row for row in rows if not held_out.hits((row.query, *row.pos, *row.neg))]
    return kept, len(rows) - len(kept)


def read_pairs(path: Path) -> Iterator[SentencePair]:
    """Read sentence pairs."""
    for place, record in records(path, "jsonl"):
        try:
            yield SentencePair(str(record["sentence1"]), str(record["sentence2"]), float(record["score"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise CurateError(
                f"{place}: this is no pair ({problem!r}); take a file of `suwen curate synonyms`"
            ) from None
