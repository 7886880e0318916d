"""Looks at every file of an index now and then, so that damage is told before a request meets it. Repairs nothing."""

from __future__ import annotations

import logging
import threading

from suwen.index.engine import DamagedIndex
from suwen.retrieve.retriever import Index
from suwen.service.holder import Holder

log = logging.getLogger("suwen.service")
#: Seconds from the opening of an index to the first look, where looks are further apart than that.
_FIRST = 60.0
#: Problems that are told; there may be one for each passage.
_TOLD = 3


class _Halt(Exception):
    """The server stops."""


class Soundness:
    """The background check of one index.

    Args:
        holder: Told of what is found: ``/readyz`` and the log say it.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, index: Index) -> None:
        """Begin, once the index is open."""
        if self._holder.settings.check_seconds and index.engine.abilities.upkeep:
            self._thread = threading.Thread(target=self._run, args=(index,), name="suwen-check", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End at the next step."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(max(0.0, 0.9 * self._holder.seconds_left()))

    def _run(self, index: Index) -> None:
        pause = self._holder.settings.check_seconds
        if self._ending.wait(min(pause, _FIRST)):
            return
        while True:
            try:
                self.look(index)
            except _Halt:
                return
            except Exception:
                log.exception("the index %s could not be checked", self._holder.name)
            if self._ending.wait(pause):
                return

    def look(self, index: Index) -> list[str]:
        """Read everything once, and tell what is wrong."""
        problems = self._problems(index)
        if problems:
            # Another process may have switched to new files meanwhile: what is damaged is so a second time.
            problems = self._problems(index)
        if problems:
            more = f" (and {len(problems) - _TOLD} more)" if len(problems) > _TOLD else ""
            found = DamagedIndex(f"{self._holder.settings.index}: {'; '.join(problems[:_TOLD])}{more}")
            if self._holder.damage is None or str(self._holder.damage) != str(found):
                log.error("the index %s is damaged, which /readyz tells: %s", self._holder.name, found)
            self._holder.damage = found
        elif self._holder.damage is not None:
            log.info("the index %s is in order again", self._holder.name)
            self._holder.damage = None
        return problems

    def _problems(self, index: Index) -> list[str]:
        try:
            return index.engine.verify(self._step)
        except DamagedIndex as problem:
            return [str(problem)]

    def _step(self, done: int, total: int) -> None:
        if self._ending.is_set() or self._holder.ending:
            raise _Halt
        self._holder.give_way()
