"""A program that lets a jury vote and is killed at it, again and again. No test lives here.

It loads everything once and then forks a child for each line on its standard input, so that a life costs milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

# Loaded before the first child is forked: it takes seconds.
import openai  # noqa: F401
from forked import fork_for_each_line

from suwen.corpora.records import Document
from suwen.jury.judge_batches import JudgingSettings
from suwen.jury.judging import Jury
from suwen.jury.jury_folder import JuryFolder
from suwen.jury.texts import Texts
from suwen.jury.verdicts import Judge, Vote
from suwen.jury.votes import Votes
from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig

QUERIES, PASSAGES, BATCH = 12, 11, 4
JUDGES = (Judge("one", "one"), Judge("two", "two"), Judge("two:en", "two", "en"))
#: Two rounds of a third of the queries: batches of 4, 4 and 3 passages.
BATCHES = (QUERIES + QUERIES // 3) * len(JUDGES) * 3
VOTES = (QUERIES + QUERIES // 3) * len(JUDGES) * PASSAGES


def config(url: str, concurrency: int) -> LLMConfig:
    """One endpoint and two models."""
    here = {"base_url": url, "concurrency": concurrency, "identity": "scripted", "backoff": 0.01}
    models = {name: {"endpoint": "here", "model": name} for name in ("one", "two")}
    return LLMConfig.model_validate({"endpoints": {"here": here}, "models": models})


def prepare(folder: Path) -> None:
    """The pool and its texts."""
    work = JuryFolder(folder)
    folder.mkdir(parents=True)
    ids = {f"q{q}": [f"q{q}-p{p}" for p in range(PASSAGES)] for q in range(QUERIES)}
    with work.pool.open("w", encoding="utf-8") as file:
        for query, passages in ids.items():
            candidates = [{"passage_id": id_, "found": []} for id_ in passages]
            file.write(json.dumps({"query_id": query, "query": f"query {query}", "candidates": candidates}) + "\n")
    with Texts(work.texts, create=True) as texts:
        texts.want(id_ for passages in ids.values() for id_ in passages)
        texts.fill(Document(id_, f"text {id_}") for passages in ids.values() for id_ in passages)


def piecemeal() -> None:
    """Wrong on purpose: the votes of a batch are stored one by one, and the kill comes after the first of a batch."""
    whole = Votes.add

    def one_by_one(self: Votes, votes: list[Vote]) -> int:
        whole(self, votes[:1])
        os.kill(os.getpid(), signal.SIGKILL)
        return 1

    Votes.add = one_by_one  # type: ignore[assignment, method-assign]


def live(job: dict[str, Any]) -> None:
    """One life: vote on what is missing."""
    if job["piecemeal"]:
        piecemeal()
    work = JuryFolder(Path(job["folder"]))
    settings = JudgingSettings(batch=BATCH, again=1 / 3)
    with Texts(work.texts) as texts, Votes(work.votes) as votes:
        llm = LLM.open(config(job["url"], job["concurrency"]), work.replies)
        done = Jury(JUDGES, work.pool, texts, votes, llm, settings).judge()
        llm.close()
    assert done.complete, done


if __name__ == "__main__":
    asyncio.run(asyncio.sleep(0))
    fork_for_each_line(live)
