"""What a judge is asked: order, batches, cutting to the context, the request, and reading grades out of a reply.

Sends nothing and stores nothing. The order of a query's passages is fixed by seed, query and judge, and only passages
without a vote are batched. Votes of a batch are stored together and only the last batch is short, so a run that was cut
off builds the batches it had not finished exactly as it would have built them the first time.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from suwen.jury.verdicts import GRADES, Abstention, Grade, Judge, JuryProblem
from suwen.llm.config import LLMConfig
from suwen.llm.prompts import Prompt, load_prompt
from suwen.llm.replies import extract
from suwen.llm.requests import Request, cache_key, estimate, identity
from suwen.llm.token_estimate import estimate_tokens, fit

#: Less than this of a long passage cannot be judged fairly.
LEAST_TOKENS = 64
#: Tokens a judge needs for one passage: the label, a short reason, the grade.
_REPLY_TOKENS = {True: 40, False: 12}
_MARKS = {"zh": "〔下文从略〕", "en": " [rest left out]"}
_ENTRY = re.compile(r'"(P\d+)"\s*:\s*(\{[^{}]*\})')


@dataclass(frozen=True)
class Settings:
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
    """A passage as the judge sees it."""

    id: str
    text: str
    cut: bool

    @property
    def digest(self) -> str:
        """Twelve digits that change with the text."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()[:12]


class Batch(NamedTuple):
    """Passages that one judge grades in one request."""

    judge: Judge
    round: int
    query_id: str
    query: str
    passages: tuple[Shown, ...]

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


def order(ids: Sequence[str], settings: Settings, query: str, judge: str) -> list[str]:
    """The passages of a query in the order in which a judge meets them."""
    return sorted(ids, key=lambda id_: (draw(settings.seed, query, judge, id_), id_))


def again(queries: Sequence[str], settings: Settings) -> set[str]:
    """The queries that are judged a second time."""
    count = -(-len(queries) * round(settings.again * 10_000) // 10_000)
    return set(sorted(queries, key=lambda id_: (draw(settings.seed, "again", id_), id_))[:count])


class Asker:
    """Makes one judge's requests. Raises where the prompt, the model or the batch cannot work."""

    def __init__(self, judge: Judge, config: LLMConfig, settings: Settings, folder: Path | None = None) -> None:
        self.judge, self._settings = judge, settings
        self.prompt: Prompt = load_prompt(judge.prompt, judge.language, folder)
        self.model, self._endpoint = config.model(judge.model), config.endpoint(judge.model)
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
        return [self._batch(query, {id_: texts[id_] for id_ in part}, round_) for part in parts]

    def _batch(self, query: tuple[str, str], texts: Mapping[str, str], round_: int) -> Batch:
        shown = self._fitted(query, texts)
        # The opposite order moves every passage as far as possible, among the same neighbours.
        return Batch(self.judge, round_, *query, tuple(reversed(shown) if round_ else shown))

    def _fitted(self, query: tuple[str, str], texts: Mapping[str, str]) -> list[Shown]:
        bare = Batch(self.judge, 0, *query, tuple(Shown(id_, "", False) for id_ in texts))
        room = self.model.context - sum(estimate(self.request(bare), self.model))
        lengths = sorted(estimate_tokens(text) for text in texts.values())
        share = _share(lengths, room)
        if share < min(LEAST_TOKENS, lengths[-1]):
            raise JuryProblem(
                f"query {query[0]!r} with {len(texts)} passages does not fit the {self.model.context} tokens of "
                f"{self.judge.model!r} (about {max(share, 0)} would be left for each): take a smaller batch, or a "
                f"model with a larger context"
            )
        mark = _MARKS.get(self.judge.language, _MARKS["en"])
        fitted = {id_: fit(text, share, mark) for id_, text in texts.items()}
        return [Shown(id_, text, text != texts[id_]) for id_, text in fitted.items()]

    def request(self, batch: Batch, sample: int = 0) -> Request:
        """The request of a batch; another ``sample`` is another draw."""
        labels = [f"P{number}" for number in range(1, len(batch.passages) + 1)]
        item = self._item()
        blocks = [f"【{label}】\n{shown.text}" for label, shown in zip(labels, batch.passages, strict=True)]
        schema = {
            "type": "object",
            "properties": dict.fromkeys(labels, item),
            "required": labels,
            "additionalProperties": False,
        }
        values: dict[str, str | int | float] = {
            "count": len(labels),
            "query": batch.query,
            "passages": "\n\n".join(blocks),
            "form": _form(item),
        }
        return Request.of(self.prompt, self.judge.model, values, key=batch.key, schema=schema, sample=sample)

    def reply_key(self, request: Request) -> str:
        """Where the reply is kept in the cache of replies."""
        return cache_key(identity(request, self.model, self._endpoint))

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


def _share(lengths: Sequence[int], room: int) -> int:
    """The most tokens a passage may have so that all fit: what short ones leave over, long ones take."""
    left, share = room, 0
    for number, length in enumerate(lengths):
        share = left // (len(lengths) - number)
        if length > share:
            return share
        left -= length
    return max(share, lengths[-1])


def read_grades(text: str, batch: Batch, data: Any = None) -> dict[str, Graded]:
    """The grades of a reply, by passage id, as far as they can be used; a reply cut off in the middle has some too.

    What is not named, or has a grade that is none, is an abstention.

    Args:
        text: What the judge wrote.
        batch: What it was asked.
        data: The reply as JSON, where it is good.
    """
    said = _entries(text) if data is None else data
    grades: dict[str, Graded] = {}
    for number, shown in enumerate(batch.passages, 1):
        entry = said.get(f"P{number}")
        if entry is None:
            grades[shown.id] = Graded(None, "missing", "the reply does not name this passage")
        elif not isinstance(entry, dict) or entry.get("grade") not in GRADES:
            grades[shown.id] = Graded(None, "invalid", f"the reply says: {json.dumps(entry, ensure_ascii=False)[:200]}")
        else:
            grades[shown.id] = Graded(entry["grade"], None, str(entry.get("reason", ""))[:500])
    return grades


def _entries(text: str) -> dict[str, Any]:
    """What a reply that is no good holds all the same."""
    try:
        data = extract(text)
        if isinstance(data, dict):
            return data
    except (ValueError, RecursionError):
        pass
    entries: dict[str, Any] = {}
    for label, entry in _ENTRY.findall(text):
        try:
            entries[label] = json.loads(entry)
        except ValueError:
            continue
    return entries
