"""What a judge is asked: order, batches, cutting to the context, the request, and reading grades out of a reply.

Sends nothing and stores nothing. The order of a query's passages is fixed by seed, query and judge, and only passages
without a vote are batched. Votes of a batch are stored together and only the last batch is short, so a run that was cut
off builds the batches it had not finished exactly as it would have built them the first time.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from suwen.jury.verdicts import GRADES, Abstention, Grade, Judge, JuryProblem, text_digest
from suwen.llm.asker import Drafter, label_schema, labelled
from suwen.llm.config import LLMConfig
from suwen.llm.replies import answer, extract
from suwen.llm.requests import Request

#: Tokens a judge needs for one passage: the label, a short reason, the grade.
_REPLY_TOKENS = {True: 40, False: 12}
#: A batch is asked once, and for what is left without a grade once more.
DRAWS_OF_A_TRY = 2
_GRADE = re.compile(r"(?:GRADE|等级|级别|评级)?[\s:]*([SABCD])\s*(?:级|等|等级)?[.。]?")
_LABEL = re.compile(r"[\W_]*(?:PASSAGE|段)?[\W_]*P?(\d+)[\W_]*")
_ENTRY = re.compile(r'"(P\d+)"\s*:\s*(\{[^{}]*\})')


@dataclass(frozen=True)
class JudgingSettings:
    """How a jury is asked.

    Attributes:
        batch: Passages judged at once.
        seed: Of the order of passages, and of which queries are judged again.
        again: The share of queries judged a second time, in the opposite order, to measure position effects.
        reasons: Whether a judge gives a short reason with each grade; without, replies are shorter.
    """

    batch: int = 10
    seed: int = 0
    again: float = 0.0
    reasons: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= 100:
            raise JuryProblem(f"a batch of {self.batch} passages: give 1 to 100")
        if not 0 <= self.again <= 1:
            raise JuryProblem(f"a share of {self.again} of the queries cannot be judged again: give 0 to 1")


class Shown(NamedTuple):
    """A passage as the judge sees it, with the digest of what it is cut from and of the query."""

    id: str
    text: str
    cut: bool
    digest: str = ""


class Batch(NamedTuple):
    """Passages that one judge grades in one request."""

    judge: Judge
    round: int
    query_id: str
    query: str
    passages: tuple[Shown, ...]
    #: How often its passages were asked about before and got an abstention.
    tries: int = 0

    @property
    def key(self) -> str:
        """Names the batch within a run: no passage is in two batches of one judge and round."""
        return json.dumps([self.query_id, self.judge.name, self.round, self.passages[0].id], ensure_ascii=False)


class Graded(NamedTuple):
    """What a reply says of one passage: a grade, or why there is none."""

    grade: Grade | None
    abstained: Abstention | None
    reason: str


def draw(*parts: object) -> int:
    """A number that depends on the parts alone: the same on every machine and in every run."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).digest()[:8])


def order(ids: Sequence[str], settings: JudgingSettings, query: str, judge: str) -> list[str]:
    """The passages of a query in the order in which a judge meets them."""
    return sorted(ids, key=lambda id_: (draw(settings.seed, query, judge, id_), id_))


def again(queries: Sequence[str], settings: JudgingSettings) -> set[str]:
    """The queries that are judged a second time."""
    count = -(-len(queries) * round(settings.again * 10_000) // 10_000)
    return set(sorted(queries, key=lambda id_: (draw(settings.seed, "again", id_), id_))[:count])


class JudgeRequests:
    """One judge's batches and requests. Raises where the prompt, the model or the batch cannot work."""

    def __init__(self, judge: Judge, config: LLMConfig, settings: JudgingSettings, folder: Path | None = None) -> None:
        self.judge, self._settings = judge, settings
        self._drafter = Drafter(config, judge.model, judge.language, folder)
        self.prompt, self.model = self._drafter.prompt(judge.prompt), self._drafter.config
        self.reply_key = self._drafter.reply_key
        needed = settings.batch * _REPLY_TOKENS[settings.reasons]
        if needed > self.model.max_tokens:
            raise JuryProblem(
                f"judge {judge.name!r} may reply with {self.model.max_tokens} tokens, and grading {settings.batch} "
                f"passages takes about {needed}: set max_tokens of [llm.models.{judge.model}], or a smaller batch"
            )

    @property
    def prompt_name(self) -> str:
        """Name, language and version of the prompt."""
        return f"{self.prompt.name}/{self.prompt.language}/{self.prompt.version}"

    def batches(self, query: tuple[str, str], texts: Mapping[str, str], ids: Sequence[str], round_: int) -> list[Batch]:
        """Cut ordered passages into batches, each fitted into the model's context."""
        size = self._settings.batch
        parts = [ids[start : start + size] for start in range(0, len(ids), size)]
        return [self._batch(query, part, [texts[id_] for id_ in part], round_) for part in parts]

    def _batch(self, query: tuple[str, str], ids: Sequence[str], texts: Sequence[str], round_: int) -> Batch:
        bare = Batch(self.judge, round_, *query, tuple(Shown(id_, "", False) for id_ in ids))
        fitted = self._drafter.fitted(texts, self.request(bare))
        shown = [
            Shown(id_, text, text != whole, text_digest(query[1], whole))
            for id_, text, whole in zip(ids, fitted, texts, strict=True)
        ]
        # The opposite order moves every passage as far as possible, among the same neighbours.
        return bare._replace(passages=tuple(reversed(shown) if round_ else shown))

    def request(self, batch: Batch, sample: int = 0) -> Request:
        """The request of a batch; another ``sample`` is another draw, as is every try."""
        sample += DRAWS_OF_A_TRY * batch.tries
        item, texts = self._item(), [shown.text for shown in batch.passages]
        values: dict[str, str | int | float] = {
            "count": len(texts),
            "query": batch.query,
            "passages": labelled(texts),
            "form": _form(item),
        }
        schema = label_schema(len(texts), item)
        more: dict[str, Any] = {"schema": schema, "sample": sample, "tidy": tidied}
        return self._drafter.request(self.judge.prompt, values, key=batch.key, **more)

    def _item(self) -> dict[str, Any]:
        item = (self.prompt.schema or {}).get("additionalProperties")
        if not isinstance(item, dict) or "grade" not in item.get("properties", {}):
            raise JuryProblem(
                f"prompt {self.prompt.name!r} has no schema of a grade: its additionalProperties must be an object "
                "with a property grade"
            )
        if self._settings.reasons:
            return item
        kept = {name: rule for name, rule in item["properties"].items() if name != "reason"}
        return item | {"properties": kept, "required": list(kept)}


def _form(item: Mapping[str, Any]) -> str:
    # No grade is shown: weak judges give every passage the one that is, and recite a list of them in its order.
    example = ", ".join(f'"{name}": "…"' for name in item["properties"])
    return f'{{"P1": {{{example}}}, …}}'


def grade_of(value: Any) -> Any:
    """A grade as it is written here, whatever its width, case and unit; anything else as it is.

    >>> [grade_of(said) for said in ("Ａ", "b", "S级", "等级：C", "A+", 3)]
    ['A', 'B', 'S', 'C', 'A+', 3]
    """
    said = unicodedata.normalize("NFKC", value).strip().upper() if isinstance(value, str) else ""
    match = _GRADE.fullmatch(said)
    return match[1] if match else value


def tidied(data: Any) -> Any:
    """A reply with its labels and grades as the schema asks for them, where only the writing differs."""
    if not isinstance(data, dict):
        return data
    tidy: dict[str, Any] = {}
    for label, entry in data.items():
        match = _LABEL.fullmatch(unicodedata.normalize("NFKC", label).upper())
        named = f"P{int(match[1])}" if match else label
        good = isinstance(entry, dict) and "grade" in entry
        tidy.setdefault(named, entry | {"grade": grade_of(entry["grade"])} if good else entry)
    return tidy


def read_grades(text: str, batch: Batch, data: Any = None, lacking: Abstention = "malformed") -> dict[str, Graded]:
    """The grades of a reply, by passage id, as far as they can be used; a reply cut off in the middle has some too.

    What is not named, or has a grade that is none, is an abstention.

    Args:
        text: What the judge wrote.
        batch: What it was asked.
        data: The reply as JSON, where it is good.
        lacking: Why a passage is not named.
    """
    said = tidied(_entries(answer(text)) if data is None else data)
    grades: dict[str, Graded] = {}
    for number, shown in enumerate(batch.passages, 1):
        entry = said.get(f"P{number}")
        if entry is None:
            grades[shown.id] = Graded(None, lacking, "the reply does not name this passage")
        elif not isinstance(entry, dict) or entry.get("grade") not in GRADES:
            told = f"the reply says: {json.dumps(entry, ensure_ascii=False)[:200]}"
            grades[shown.id] = Graded(None, "malformed", told)
        else:
            grades[shown.id] = Graded(entry["grade"], None, str(entry.get("reason", ""))[:500])
    return grades


def _entries(text: str) -> dict[str, Any]:
    """What a reply that is no good holds all the same."""
    with suppress(ValueError, RecursionError):
        data = extract(text)
        if isinstance(data, dict):
            return data
    entries: dict[str, Any] = {}
    for label, entry in _ENTRY.findall(text):
        with suppress(ValueError):
            entries[label] = json.loads(entry)
    return entries
