"""Synthetic training rows (BMRetriever section 3.3, appendix A): queries for passages, examples of thought-up tasks.

Prompts and the attributes that are drawn are files; replies are held to their schemas by ``llm/``, which also keeps
them, so that a run that was stopped goes on. What a row must be is in ``screening``; whether its passage is found for
its query is for ``round_trip`` in ``row_files``.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from suwen.choices import WRITTEN_FOR
from suwen.corpora.passages import split_document
from suwen.corpora.readers import read_documents
from suwen.corpora.record_fields import TEXT_REMEDY
from suwen.corpora.records import Document
from suwen.corpora.training_rows import TrainingRow
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.near_duplicates import Near
from suwen.curate.screening import Screen, check_output, draw
from suwen.llm.asker import Asker
from suwen.llm.schema import fault
from suwen.llm.token_estimate import estimate_tokens
from suwen.text.clean import clean

#: The paper's instructions for queries written for the passages of its two data sets (appendix B.2).
INSTRUCTIONS = {
    "pubmed": "Given a question, retrieve Pubmed passages that answer the question",
    "meadow": "Given a query on COVID-19, retrieve COVID-19 related articles that answer the query",
}
_AT_ONCE, _WINDOW = 20, 4096
_COUNTED = (
    *("unreadable", "passages", "tasks_asked_for", "tasks", "tasks_repeated", "tasks_malformed"),
    *("calls_for_tasks_unanswered", "unanswered", "copied_from_the_prompt", "passages_too_short"),
)
#: After so many rounds without a new task the model has no more.
_IDLE_ROUNDS = 3
_TEMPERATURE = 1.0
_NUMBER = re.compile(r"\d+")
_REMEDY = "call the one that is meant text"


def synthesise_rows(
    to: Path,
    asker: Asker,
    *,
    source: Path | None = None,
    dataset: str = "",
    instruction: str = "",
    tasks: int = 0,
    count: int | None = None,
    size: int = WRITTEN_FOR,
    seed: int = 0,
    held_out: HeldOut | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Counter[str]:
    """Write synthetic rows: a query for each passage of a source, or an example of each of so many tasks.

    Args:
        to: The rows; a dry run writes none.
        asker: The model.
        source: The documents; longer ones are cut into passages.
        dataset: What the source is called in the prompt.
        instruction: What rows of the source get; the paper's for the data sets of :data:`INSTRUCTIONS`.
        tasks: How many tasks to think of, in place of a source.
        count: Draw so many passages of the source; all unless given.
        size: The most estimated tokens of a passage.
        seed: Of every draw.
        held_out: What must not be trained on.
        tell: Called with the reason why the first record that cannot be read cannot.
    """
    check_output(to, *([source] if source else []))
    if (source is None) == (tasks < 1):
        raise CurateError("name a source of passages, or how many tasks to think of: one of the two")
    if source is not None and not (dataset and (told := instruction or INSTRUCTIONS.get(dataset.lower(), ""))):
        raise CurateError(f"no instruction for the data set {dataset!r}: name it and give its instruction")
    screen = Screen(*_COUNTED, held_out=held_out, by_model=True)
    counts, made = screen.counts, examples(tasks, asker, screen.counts, seed)
    counts["tasks_asked_for"] = tasks
    if source is not None:

        def skipped(why: str) -> None:
            screen.unreadable(why)
            if counts["unreadable"] == 1:
                tell(why)

        every = passages(source, size, skipped)
        made = queries(every if count is None else iter(draw(every, count, seed)), asker, counts, dataset, told)
    if asker.dry_run:
        deque(made, 0)
    else:
        screen.write(to, made)
    return counts


def passages(source: Path, size: int = WRITTEN_FOR, on_skip: Callable[[str], None] | None = None) -> Iterator[str]:
    """The documents of a source, longer ones cut into passages of so many estimated tokens.

    A record that cannot be used is told to ``on_skip``, or raises where there is none.
    """
    for document in readable(source, on_skip):
        for part in split_document(document, lambda texts: [estimate_tokens(text) for text in texts], size, 0):
            yield part.content


def readable(source: Path, on_skip: Callable[[str], None] | None = None) -> Iterator[Document]:
    """The documents of a source, for verbs that take no names of fields; ``on_skip`` as of :func:`passages`."""
    if on_skip is None:
        return read_documents(source)
    return read_documents(source, on_skip=lambda why: on_skip(why.replace(TEXT_REMEDY, _REMEDY)))


def queries(
    texts: Iterator[str], asker: Asker, counts: Counter[str], dataset: str, instruction: str
) -> Iterator[TrainingRow]:
    """A query for each passage, a window of them at a time."""
    while window := list(islice(texts, _WINDOW)):
        requests = (
            asker.request("synthetic-query", {"dataset": dataset, "passage": text}, key=str(number), long=("passage",))
            for number, text in enumerate(window)
        )
        written = asker.ask("queries", requests, lambda data: str(data["query"]), lambda request: request.key)
        counts.update(passages=len(window), unanswered=len(window) - len(written))
        yield from (TrainingRow(query, (window[int(key)],), (), instruction) for key, query in written.items())


def examples(tasks: int, asker: Asker, counts: Counter[str], seed: int = 0) -> Iterator[TrainingRow]:
    """An example of each of so many tasks, with the task as the row's instruction."""
    file = Path(__file__).with_name("synthetic_attributes.toml")
    attributes = tomllib.loads(file.read_text(encoding="utf-8"))[asker.language]
    stream = think_of_tasks(tasks, asker, counts, attributes["tasks"], seed)
    while window := list(islice(stream, _WINDOW)):
        drawn = [_one_each(attributes["example"], seed, task) for task in window]
        requests = [
            asker.request("synthetic-example", {"task": task, **drawn[at]}, key=str(at))
            for at, task in enumerate(window)
        ]
        written = asker.ask(
            "examples", requests, dict[str, str], lambda _: dict.fromkeys(("query", "positive", "negative"), "")
        )
        counts.update(tasks=len(window), unanswered=len(window) - len(written))
        for key, said in written.items():
            least = int(_NUMBER.findall(drawn[int(key)]["words"])[0])
            short = sum(_length(said[name], asker.language) < least for name in ("positive", "negative"))
            counts["passages_too_short"] += short
            # Small models give the directions back where they should follow them.
            if comparable(said["query"]) in comparable(requests[int(key)].messages[-1].content):
                counts["copied_from_the_prompt"] += 1
            else:
                yield TrainingRow(said["query"], (said["positive"],), (said["negative"],), window[int(key)])


def _length(text: str, language: str) -> int:
    """How long a passage is, in what its length is asked for: characters of Chinese, else words."""
    return len("".join(text.split())) if language == "zh" else len(text.split())


def _one_each(attributes: Mapping[str, list[str]], seed: int, about: str) -> dict[str, str]:
    return {name: random.Random(f"{seed}:{name}:{about}").choice(values) for name, values in attributes.items()}


def think_of_tasks(
    wanted: int, asker: Asker, counts: Counter[str], attributes: Mapping[str, list[str]], seed: int
) -> Iterator[str]:
    """Tasks that are not nearly the same, until there are as many as wanted or the model has no new ones.

    No two calls are the same, even of a model that is not random: in a round each has another searcher and field in
    mind, and each is shown some of the tasks that earlier rounds found, so as not to repeat them.
    """
    near, calls, idle = Near(), 0, 0
    found: list[str] = []
    views = [dict(zip(attributes, one, strict=True)) for one in product(*attributes.values())]
    random.Random(f"{seed}:views").shuffle(views)
    # The examples of the prompt come back as tasks, too.
    for line in asker.prompt("synthetic-tasks").user.splitlines():
        near.add(line, line)
    while len(found) < wanted and idle < _IDLE_ROUNDS:
        before = len(found)
        numbers = range(calls, calls + min(-((before - wanted) // _AT_ONCE), len(views)))
        calls = numbers.stop
        for task in _brainstorm(asker, numbers, views, found, counts, seed):
            if near.find(task):
                counts["tasks_repeated"] += 1
            elif len(found) < wanted:
                near.add(task, task)
                found.append(task)
                yield task
        idle = 0 if len(found) > before else idle + 1


def _brainstorm(
    asker: Asker,
    numbers: range,
    views: Sequence[Mapping[str, str]],
    found: Sequence[str],
    counts: Counter[str],
    seed: int,
) -> Iterator[str]:
    """The tasks of one round of calls, as they are said; bad ones and calls without a reply are counted."""
    # Nobody who wants many tasks wants the likeliest ones alone: 0 is meant only where the user says so.
    more: dict[str, Any] = {} if "temperature" in asker.config.model_fields_set else {"temperature": _TEMPERATURE}
    rule = (asker.prompt("synthetic-tasks").schema or {})["properties"]["tasks"]
    bad: dict[str, int] = {}
    requests = []
    for at in numbers:
        shown = random.Random(f"{seed}:{at}:known").sample(found, min(len(found), _AT_ONCE))
        values: dict[str, str | int | float] = {
            "count": _AT_ONCE,
            "known": "\n".join(shown) or "—",
            **views[at % len(views)],
        }
        tidy = partial(_good_tasks, key=str(at), bad=bad, rule=rule)
        requests.append(asker.request("synthetic-tasks", values, key=str(at), sample=at, tidy=tidy, **more))
    # In a dry run, as many tasks as are asked for that have nothing in common.
    said = asker.ask(
        "tasks",
        requests,
        lambda data: list(data["tasks"]),
        lambda one: [random.Random(f"{one.key}:{number}").randbytes(16).hex() for number in range(_AT_ONCE)],
    )
    counts.update(calls_for_tasks_unanswered=len(requests) - len(said))
    counts.update(tasks_malformed=sum(bad.get(key, 0) for key in said))
    yield from map(clean, chain.from_iterable(said.values()))


def _good_tasks(data: Any, key: str, bad: dict[str, int], rule: Mapping[str, Any]) -> Any:
    """A reply with the tasks that are of the form asked for: one that is not must not cost the other nineteen."""
    if not isinstance(data, dict) or not isinstance(tasks := data.get("tasks"), list):
        return data
    good = [task for task in tasks if fault(task, rule["items"]) is None][: rule["maxItems"]]
    bad[key] = len(tasks) - len(good)
    return {**data, "tasks": good} if good else data
