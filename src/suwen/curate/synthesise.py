"""Synthetic training rows (BMRetriever section 3.3, appendix A): queries for passages, examples of thought-up tasks.

Prompts and the attributes that are drawn are files; replies are held to their schemas by ``llm/``, which also keeps
them, so that a run that was stopped goes on. What a row must be is in ``screening``; whether its passage is found for
its query is for ``round_trip`` in ``row_files``.
"""

from __future__ import annotations

import random
import tomllib
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from suwen.choices import WRITTEN_FOR
from suwen.corpora.passages import split_document
from suwen.corpora.readers import read_documents
from suwen.corpora.training_rows import TrainingRow
from suwen.curate import CurateError
from suwen.curate.leakage import HeldOut, comparable
from suwen.curate.near_duplicates import Near
from suwen.curate.screening import Screen, draw
from suwen.llm.asker import Asker
from suwen.llm.token_estimate import estimate_tokens
from suwen.text.clean import clean

#: The paper's instructions for queries written for the passages of its two data sets (appendix B.2).
INSTRUCTIONS = {
    "pubmed": "Given a question, retrieve Pubmed passages that answer the question",
    "meadow": "Given a query on COVID-19, retrieve COVID-19 related articles that answer the query",
}
_AT_ONCE, _WINDOW = 20, 4096
_COUNTED = ("passages", "tasks", "tasks_repeated", "unanswered", "copied_from_the_prompt")


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
    """
    if (source is None) == (tasks < 1):
        raise CurateError("name a source of passages, or how many tasks to think of: one of the two")
    if source is not None and not (dataset and (told := instruction or INSTRUCTIONS.get(dataset.lower(), ""))):
        raise CurateError(f"no instruction for the data set {dataset!r}: name it and give its instruction")
    screen = Screen(
        "passages", "tasks", "tasks_repeated", "unanswered", "copied_from_the_prompt", held_out=held_out, by_model=True
    )
    counts, made = screen.counts, examples(tasks, asker, screen.counts, seed)
    if source is not None:
        every = passages(source, size)
        made = queries(every if count is None else iter(draw(every, count, seed)), asker, counts, dataset, told)
    if asker.dry_run:
        deque(made, 0)
    else:
        screen.write(to, made)
    return counts


def passages(source: Path, size: int = WRITTEN_FOR) -> Iterator[str]:
    """The documents of a source, longer ones cut into passages of so many estimated tokens."""
    for document in read_documents(source):
        for part in split_document(document, lambda texts: [estimate_tokens(text) for text in texts], size, 0):
            yield part.content


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
        requests = [
            asker.request(
                "synthetic-example", {"task": task, **_one_each(attributes["example"], seed, task)}, key=str(at)
            )
            for at, task in enumerate(window)
        ]
        written = asker.ask(
            "examples", requests, dict[str, str], lambda _: dict.fromkeys(("query", "positive", "negative"), "")
        )
        counts.update(tasks=len(window), unanswered=len(window) - len(written))
        for key, said in written.items():
            # Small models give the directions back where they should follow them.
            if comparable(said["query"]) in comparable(requests[int(key)].messages[-1].content):
                counts["copied_from_the_prompt"] += 1
            else:
                yield TrainingRow(said["query"], (said["positive"],), (said["negative"],), window[int(key)])


def _one_each(attributes: Mapping[str, list[str]], seed: int, about: str) -> dict[str, str]:
    return {name: random.Random(f"{seed}:{name}:{about}").choice(values) for name, values in attributes.items()}


def think_of_tasks(
    wanted: int, asker: Asker, counts: Counter[str], attributes: Mapping[str, list[str]], seed: int
) -> Iterator[str]:
    """Tasks that are not nearly the same, until there are as many as wanted or the model has no new ones."""
    near, calls, before = Near(), 0, -1
    # The examples of the prompt come back as tasks, too.
    for line in asker.prompt("synthetic-tasks").user.splitlines():
        near.add(line, line)
    wanted += len(near)
    while before < len(near) < wanted:
        numbers = range(calls, calls - ((len(near) - wanted) // _AT_ONCE))
        calls, before = numbers.stop, len(near)
        requests = [
            asker.request(
                "synthetic-tasks", {"count": _AT_ONCE, **_one_each(attributes, seed, str(at))}, key=str(at), sample=at
            )
            for at in numbers
        ]
        # In a dry run, as many tasks as are asked for that have nothing in common.
        said = asker.ask(
            "tasks",
            requests,
            lambda data: list(data["tasks"]),
            lambda one: [random.Random(f"{one.key}:{number}").randbytes(16).hex() for number in range(_AT_ONCE)],
        )
        for task in map(clean, chain.from_iterable(said.values())):
            if near.find(task):
                counts["tasks_repeated"] += 1
            elif len(near) < wanted:
                near.add(task, task)
                yield task
