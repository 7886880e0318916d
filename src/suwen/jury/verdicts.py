"""What a jury's parts pass around: grades, judges, votes, verdicts, and verdicts as JSON lines. Decides nothing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

from suwen.corpora.tabular import records
from suwen.durable import write_lines
from suwen.errors import SuwenError
from suwen.llm.asker import MARKS

Grade = Literal["S", "A", "B", "C", "D"]
Label = Literal["positive", "negative", "undecided"]
#: Why a judge gave no grade: its reply was cut at max_tokens, it said nothing, it refused, or what it said of the
#: passage is no grade.
Abstention = Literal["cut", "empty", "refused", "malformed"]
#: What stores written by 0.2.0 call them.
_OLD_ABSTENTIONS: Mapping[str | None, Abstention] = {
    "refusal": "refused",
    "invalid": "malformed",
    "missing": "malformed",
}
#: From best to worst.
GRADES: tuple[Grade, ...] = get_args(Grade)
LABELS: tuple[Label, ...] = get_args(Label)
#: The grades as numbers, for means: S is 4, D is 0.
VALUES: Mapping[str, int] = {grade: value for value, grade in enumerate(reversed(GRADES))}
#: The grades on TREC's scale of relevance, as UMBRELA gives it.
GAINS: Mapping[str, int] = {"S": 3, "A": 2, "B": 1, "C": 0, "D": 0}
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
        digest: Twelve digits that change with the query and the passage that were judged, see :func:`text_digest`.
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


def text_digest(query: str, passage: str) -> str:
    """Twelve digits that change with what a judge is shown: the query's text and the whole passage."""
    return _digits(f"{query}\0{passage}")


class Cast(Protocol):
    """What of a vote tells the text it was cast on."""

    @property
    def digest(self) -> str:
        """Of the texts."""

    @property
    def cut(self) -> bool:
        """Whether the passage was cut."""


def is_on(vote: Cast, query: str, passage: str) -> bool:
    """Whether a vote was cast on these texts, and not on others that the same ids had then.

    Votes of 0.2.0 know the passage alone, as it was shown: cut anywhere and marked, where it was cut.
    """
    if vote.digest in (text_digest(query, passage), _digits(passage)):
        return True
    return vote.cut and any(vote.digest == digits for digits in _cut_digits(passage))


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def _cut_digits(passage: str) -> Iterator[str]:
    seen = hashlib.sha256()
    for at, character in enumerate(passage):
        seen.update(character.encode("utf-8", "replace"))
        if at + 1 < len(passage) and not character.isspace():
            for mark in MARKS.values():
                ended = seen.copy()
                ended.update(mark.encode())
                yield ended.hexdigest()[:12]


def known_abstention(vote: Vote) -> Vote:
    """The vote with its abstention under the name it has now."""
    return vote._replace(abstained=_OLD_ABSTENTIONS.get(vote.abstained, vote.abstained))


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

    @property
    def ruling(self) -> Mapping[str, Any]:
        """What the jury itself decided, whatever experts said later: its label, rule and judges; empty without one."""
        return next((event for event in reversed(self.history) if event.get("by") == "jury"), {})

    @property
    def jury_label(self) -> Label:
        """The jury's own label."""
        label: Label = self.ruling.get("label", self.label)
        return label

    @property
    def by_the_jury(self) -> Verdict:
        """The verdict with the jury's own label."""
        return replace(self, label=self.jury_label)

    @property
    def rule(self) -> str:
        """How the jury's label came about, in words: the rule and whose votes were counted."""
        said, judges = self.ruling.get("rule", ""), self.ruling.get("judges", ())
        return rule_in_words(said, judges) if said else ""

    @property
    def _worst(self) -> str:
        """The worst grade that the jury's rule calls positive; it ends in "S and A positive"."""
        words = self.ruling.get("rule", "").split()
        return words[-2] if len(words) > 1 and words[-2] in GRADES else "A"

    @property
    def grade(self) -> int | None:
        """The label on TREC's scale, 0 to 3: the lower median of the judges' grades, on the label's side of the cut.

        None for an undecided pair. S is 3, A is 2, B is 1, C and D are 0.
        """
        if self.label == "undecided":
            return None
        values = sorted(GAINS[vote.grade] for vote in self.main if vote.grade is not None)
        middle = values[(len(values) - 1) // 2] if values else None
        least = GAINS[self._worst]
        if self.label == "positive":
            return max(least if middle is None else middle, least)
        return min(0 if middle is None else middle, max(least - 1, 0))

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can carry it."""
        votes = [dict(zip(Vote._fields[2:], vote[2:], strict=True)) for vote in self.votes]
        return {
            "query_id": self.query_id,
            "passage_id": self.passage_id,
            "label": self.label,
            "grade": self.grade,
            "votes": votes,
            "history": [dict(event) for event in self.history],
        }


def rule_in_words(rule: str, judges: Iterable[str]) -> str:
    """A rule with the judges it was applied to."""
    return f"{rule}; by {', '.join(judges)}"


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
        votes = tuple(known_abstention(Vote(query, passage, **vote)) for vote in record["votes"])
        history = tuple(record.get("history", ()))
    except (KeyError, TypeError) as problem:
        raise JuryProblem(f"{place}: this is no verdict ({problem!r}): take a file of `suwen jury consensus`") from None
    if label not in LABELS:
        raise JuryProblem(f"{place}: the label {label!r} is unknown: use one of {', '.join(LABELS)}")
    return Verdict(query, passage, label, votes, history)
