"""A program that asks a scripted server many things and is killed at it, again and again. No test lives here.

It loads the client once and then forks a child for each line on its standard input, so that a life costs milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

# Loaded before the first child is forked: it takes seconds.
import openai  # noqa: F401
from forked import fork_for_each_line

from suwen.llm.client import LLM
from suwen.llm.config import LLMConfig
from suwen.llm.prompts import Message
from suwen.llm.reply_cache import Cache, Call, Stored
from suwen.llm.requests import Reply, Request

REQUESTS = 171
SCHEMA = {
    "type": "object",
    "properties": {"grade": {"type": "integer"}, "draw": {"type": "integer"}},
    "required": ["grade", "draw"],
}


def config(url: str, concurrency: int) -> LLMConfig:
    """One endpoint and one model."""
    here = {"base_url": url, "concurrency": concurrency, "identity": "scripted"}
    return LLMConfig.model_validate({"endpoints": {"here": here}, "models": {"m": {"endpoint": "here", "model": "m"}}})


def requests() -> list[Request]:
    """The work."""
    return [Request("m", (Message("user", f"grade {n}"),), SCHEMA, key=str(n)) for n in range(REQUESTS)]


def late() -> None:
    """Wrong on purpose: replies are handed out at once and written ten at a time."""
    waiting: list[tuple[Any, ...]] = []
    put, get = Cache.put, Cache.get

    def later(self: Cache, key: str, request: str, reply: Stored, call: Call, line: int | None = None) -> Stored:
        waiting.append((key, request, reply, call, line))
        if len(waiting) == 10:
            for one in waiting:
                put(self, *one)
            waiting.clear()
        return reply

    def look(self: Cache, key: str) -> Stored | None:
        return next((reply for known, _, reply, *_ in waiting if known == key), None)

    Cache.put = later  # type: ignore[method-assign]
    Cache.get = lambda self, key: look(self, key) or get(self, key)  # type: ignore[method-assign]


def live(job: dict[str, Any]) -> None:
    """Do the work, from wherever the last life left it."""
    if job["late"]:
        late()
    used = os.open(job["used"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    done: dict[str, Any] = {}

    def handle(request: Request, reply: Reply) -> None:
        done[request.key] = reply.data
        os.write(used, (json.dumps([request.key, reply.data]) + "\n").encode())

    llm = LLM.open(config(job["url"], job["concurrency"]), job["cache"])
    llm.run(requests(), handle)
    llm.close()
    Path(job["out"]).write_text(json.dumps(done), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(asyncio.sleep(0))
    fork_for_each_line(live)
