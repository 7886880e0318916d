"""What a jury's parts pass around: grades, judges, votes, verdicts, and verdicts as JSON lines. Decides nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from suwen.corpora.tabular import records
from suwen.durable import write_lines
from suwen.errors import SuwenError

Grade = Literal["S", "A", "B", "C", "D"]
Label = Literal["positive", "negative", "undecided"]
#: Why a judge gave no grade: it refused, its grade was none of the five, or it left the passage out.
Abstention = Literal["refusal", "invalid", "missing"]
#: From best to worst.
GRADES: tuple[Grade, ...] = get_args(Grade)
LABELS: tuple[Label, ...] = get_args(Label)
#: The grades as numbers, for means: S is 4, D is 0.
VALUES: Mapping[str, int] = {grade: value for value, grade in enumerate(reversed(GRADES))}
POSITIVE: frozenset[str] = frozenset({"S", "A"})
_NAME = re.compile(r"[^\W_][\w.:-]*")


class JuryProblem(SuwenError):
    """Something a jury was given cannot be used."""


@dataclass(frozen=True)
class Judge:
    """One judge: a model with a prompt.

    Attributes:
        name: What its votes are kept under.
        model: The configured name of the model.
        language: The language of its prompt, ``zh`` or ``en``.
        prompt: The name of its prompt.
    """

    name: str
    model: str
    language: str = "zh"
    prompt: str = "grade"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise JuryProblem(f"a judge cannot be called {self.name!r}: use letters, digits, dots, colons and dashes")

    @classmethod
    def parse(cls, text: str) -> Judge:
        """Read ``[NAME=]MODEL[:LANGUAGE]``; the name is the model's, with its language where that is not ``zh``.

        >>> Judge.parse("large:en")
        Judge(name='large:en', model='large', language='en', prompt='grade')
        """
        name, _, rest = text.rpartition("=")
        model, _, language = rest.partition(":")
        if not model:
            raise JuryProblem(f"{text!r} names no judge: write MODEL, MODEL:en or NAME=MODEL:en")
        language = language or "zh"
        return cls(name or (model if language == "zh" else f"{model}:{language}"), model, language)


class Vote(NamedTuple):
    """What one judge said of one passage for one query, and where that comes from.

    Attributes:
        query_id: The query.
        passage_id: The passage, by its id in the collection.
        judge: The judge's name.
        round: 0 for the vote that counts; 1 for the second one, in another order, that measures position effects.
        grade: The grade; None for an abstention.
        abstained: Why there is no grade; None where there is one.
        reason: The judge's own words, or what was wrong with its reply.
        model: What the endpoint calls the model.
        prompt: The prompt's name, language and version, such as ``grade/zh/1``.
        fingerprint: Changes with every change of the prompt's text or schema.
        reply_key: The key of the reply in the cache of replies.
        position: The place in the batch, from 1.
        batch: The number of passages in the batch.
        cut: Whether the passage was cut to fit the model's context.
        digest: Twelve digits that change with the text that was judged.
        at: When, in seconds since 1970.
    """

    query_id: str
    passage_id: str
    judge: str
    round: int
    grade: Grade | None
    abstained: Abstention | None
    reason: str
    model: str
    prompt: str
    fingerprint: str
    reply_key: str
    position: int
    batch: int
    cut: bool
    digest: str
    at: float


@dataclass(frozen=True)
class Verdict:
    """What became of one pair of query and passage.

    Attributes:
        query_id: The query.
        passage_id: The passage, by its id in the collection.
        label: ``positive``, ``negative`` or ``undecided``.
        votes: Every vote on it.
        history: How the label came about, oldest first: the jury's rule, then each expert and what they changed.
    """

    query_id: str
    passage_id: str
    label: Label
    votes: tuple[Vote, ...] = ()
    history: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    @property
    def main(self) -> tuple[Vote, ...]:
        """The votes that count: those of the first round."""
        return tuple(vote for vote in self.votes if vote.round == 0)

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can carry it."""
        votes = [dict(zip(Vote._fields[2:], vote[2:], strict=True)) for vote in self.votes]
        return {
            "query_id": self.query_id,
            "passage_id": self.passage_id,
            "label": self.label,
            "votes": votes,
            "history": [dict(event) for event in self.history],
        }


def write_verdicts(path: Path | str, verdicts: Iterable[Verdict]) -> int:
    """Write verdicts as JSON lines, whole or not at all; gives their number."""
    return write_lines(Path(path), (verdict.as_dict() for verdict in verdicts))


def read_verdicts(path: Path | str) -> Iterator[Verdict]:
    """Read verdicts one at a time."""
    for place, record in records(Path(path), "jsonl"):
        yield _verdict(record, place)


def _verdict(record: Mapping[str, Any], place: str) -> Verdict:
    try:
        query, passage, label = record["query_id"], record["passage_id"], record["label"]
        votes = tuple(Vote(query, passage, **vote) for vote in record["votes"])
        history = tuple(record.get("history", ()))
    except (KeyError, TypeError) as problem:
        raise JuryProblem(f"{place}: this is no verdict ({problem!r}): take a file of `suwen jury consensus`") from None
    if label not in LABELS:
        raise JuryProblem(f"{place}: the label {label!r} is unknown: use one of {', '.join(LABELS)}")
    return Verdict(query, passage, label, votes, history)
