"""Hypothetical documents for one search, within a time: the ``[hyde]`` section of suwen.toml names who writes them.

Without that section nothing is sent anywhere. What cannot be written in time, or is of no use, leaves the plain query.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from suwen.errors import SuwenError
from suwen.hyde.writing import Draws, Writer
from suwen.llm.client import LLM
from suwen.llm.config import load_config

_CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")


class RewritingProblem(SuwenError):
    """Hypothetical documents were asked for where none can be written."""


class RewriteSettings(BaseModel):
    """The ``[hyde]`` section.

    Attributes:
        model: A model of ``[llm.models]``, which so is sent the queries that ask for it.
        n: Documents of a query.
        weight: How many documents the query counts for.
        budget_ms: Milliseconds after which the plain query is searched with.
        temperature: Of the draws.
        max_tokens: The most tokens of a document.
        domain: What the documents are about; the language's word for medicine unless given.
        cache: The file of what was written, relative to the configuration's folder: no query is written for twice.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    n: int = Field(default=1, ge=1, le=16)
    weight: float = Field(default=2.0, gt=0)
    budget_ms: int = Field(default=2000, ge=1, le=600_000)
    temperature: float = Field(default=0.7, ge=0)
    max_tokens: int = Field(default=160, ge=8)
    domain: str = ""
    cache: Path = Path("hyde-replies.sqlite")


@dataclass(frozen=True)
class Rewritten:
    """What was written for a query in time: the documents, the query's weight among them, and what to say of it."""

    texts: tuple[str, ...]
    weight: float
    note: str
    milliseconds: float


def may_rewrite() -> bool:
    """Whether a model is named that may write hypothetical documents; :meth:`Rewriter.load` says what is wrong."""
    try:
        file, settings = _section(None)
        load_config(file).require([settings.model])
    except SuwenError:
        return False
    return True


def _section(path: Path | None) -> tuple[Path, RewriteSettings]:
    """The file and its ``[hyde]``."""
    file = Path(path or os.environ.get("SUWEN_CONFIG") or "suwen.toml")
    try:
        section = tomllib.loads(file.read_text(encoding="utf-8")).get("hyde")
    except FileNotFoundError:
        section = None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise RewritingProblem(f"{file} cannot be read as TOML: {problem}") from None
    if section is None:
        raise RewritingProblem(
            f"no model may write hypothetical documents here: name one of [llm.models] in {file}, as\n"
            '[hyde]\nmodel = "small"'
        )
    try:
        return file, RewriteSettings.model_validate(section)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RewritingProblem(f"{file}: [hyde] {where}: {first['msg']}; correct it") from None


class Rewriter:
    """Writes hypothetical documents for queries as they come. Made by :meth:`load`.

    Args:
        settings: Who writes, and how.
        llm: The client.
    """

    def __init__(self, settings: RewriteSettings, llm: LLM) -> None:
        self.settings, self._llm = settings, llm

    @classmethod
    def load(cls, path: Path | None = None) -> Rewriter:
        """Read the section, and open the cache.

        Args:
            path: The file; else ``SUWEN_CONFIG``, else ``suwen.toml`` in the current folder.

        Raises:
            RewritingProblem: There is no such section, or it is wrong.
        """
        file, settings = _section(path)
        config = load_config(file)
        config.require([settings.model])
        return cls(settings, LLM.open(config, file.parent / settings.cache))

    def close(self) -> None:
        """Let go of the cache."""
        self._llm.close()

    async def write(self, query: str, n: int | None = None, budget_ms: int | None = None) -> Rewritten:
        """Documents for a query; whatever happens, an answer within the time.

        Args:
            query: What the user typed.
            n: How many; as the section says where none is given.
            budget_ms: The time, likewise.
        """
        # Before the clock: importing a client takes as long as a small model does to answer.
        with contextlib.suppress(SuwenError):
            await self._llm.ready(self.settings.model)
        started, how = time.perf_counter(), self.settings
        count, budget = n or how.n, budget_ms or how.budget_ms
        texts: tuple[str, ...] = ()
        try:
            texts, problem = await asyncio.wait_for(self._written(query, count), budget / 1000)
        except TimeoutError:
            problem = f"none was written within {budget} ms"
        except SuwenError as error:
            problem = str(error)
        spent = 1000 * (time.perf_counter() - started)
        said = (
            f"searched with {len(texts)} hypothetical document{'s' * (len(texts) != 1)}"
            if texts
            else f"searched with the plain query: {problem}"
        )
        return Rewritten(texts, how.weight, said, round(spent, 3))

    def write_now(self, query: str, n: int | None = None, budget_ms: int | None = None) -> Rewritten:
        """The same where no event loop runs."""

        async def once() -> Rewritten:
            return await self.write(query, n, budget_ms)

        return asyncio.run(once())

    async def _written(self, query: str, count: int) -> tuple[tuple[str, ...], str]:
        """The documents of use, and what is wrong with the others."""
        how = self.settings
        language = "zh" if _CHINESE.search(query) else "en"
        writer = Writer(self._llm, how.model, language, how.domain)
        draws = Draws(how.temperature, max_tokens=how.max_tokens)
        requests = writer.document_requests([query], count if how.temperature > 0 else 1, "q2p", draws, None)
        replies: list[Any] = await asyncio.gather(*(self._one(writer, request) for request in requests))
        faults = ", ".join(
            f"{name} {number}" for name, number in writer.counts.items() if name not in ("asked", "kept")
        )
        return tuple(text for text in replies if text), f"what was written is of no use ({faults})"

    async def _one(self, writer: Writer, request: Any) -> str | None:
        return writer.kept(request, await self._llm.ask(request))
