"""The indexes of a process that reads beside the one that writes: those that it serves, as far as they are open here.

What an alias means is read from a file that the writing process keeps (see :mod:`.indexes`), looked at for every
request: whoever asks after a switch was answered gets the new index, whichever process it is.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path

from suwen.index.opening import index_exists
from suwen.service.holder import Holder
from suwen.service.index_readers import FILE, Reading
from suwen.service.indexes import NOW, Indexes, read_aliases
from suwen.service.serve_settings import NAMES, IndexEntry, ServeSettings
from suwen.service.served_index import ServedIndex

log = logging.getLogger("suwen.service")
#: Seconds between two looks at the folder, and before an index that could not be opened is tried again.
_LOOK, _AGAIN = 0.5, 10.0


def for_reading(settings: ServeSettings) -> ServeSettings:
    """The settings of a process that only reads; what belongs to the writing process alone is asked of it."""
    entries = {name: entry.model_copy(update={"read_only": True}) for name, entry in settings.indexes.items()}
    mine = {"read_only": True, "reviews": None, "document_encoder": None, "folder": None, "indexes": entries}
    return settings.model_copy(update=mine)


class FollowedIndexes(Indexes):
    """Every index of a reading process.

    Args:
        first: The one that the settings name first.
        folder: The writing process's folder of further indexes.
    """

    def __init__(self, first: Holder, folder: Path | None) -> None:
        super().__init__(first)
        self._folder = folder
        self._known: tuple[int, int] | None = None
        self._reading: dict[str, Reading] = {}
        #: When an index could not be opened here.
        self._failed: dict[str, float] = {}
        self._following: asyncio.Task[None] | None = None

    def here(self, name: str) -> ServedIndex | None:
        """The index that a name or an alias means now, where it is open here: the writing process has every one."""
        self._follow_aliases()
        served = self._served.get(self._aliases.get(name, name))
        if served is None or not served.holder.ready:
            return None
        reading = self._reading.get(served.holder.name)
        return served if reading is None or reading.wanted() else None

    async def start(self) -> None:
        """Begin to open every index, and to follow the writing process."""
        await super().start()
        if self._folder is not None or self.settings.indexes:
            await self._look()
            self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Close every index."""
        if self._following is not None:
            self._following.cancel()
        await super().stop()
        for reading in self._reading.values():
            reading.close()

    def _follow_aliases(self) -> None:
        if self._folder is None:
            return
        try:
            found = (self._folder / NOW).stat()
        except OSError:
            return
        mark = (found.st_ino, found.st_mtime_ns)
        if mark != self._known:
            self._aliases, self._known = read_aliases(self._folder / NOW), mark

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            try:
                await self._look()
            except Exception:
                log.exception("the indexes of the writing process cannot be followed")

    async def _look(self) -> None:
        """Let go of what is going or could not be opened, and open what is new, or may be opened by now."""
        for served in self:
            holder, reading = served.holder, self._reading.get(served.holder.name)
            going = holder.failure is not None or (reading is not None and not reading.wanted())
            if going and not holder.visitors and holder is not self.first:
                await self._let_go(holder)
        for name, entry in (self.settings.indexes | self._in_folder()).items():
            if name not in self._served and time.monotonic() >= self._failed.get(name, 0.0) + _AGAIN:
                await self._take(name, entry)

    def _in_folder(self) -> dict[str, IndexEntry]:
        """What the writing process serves of its folder, by name."""
        if self._folder is None or not self._folder.is_dir():
            return {}
        found = [one for one in sorted(self._folder.iterdir()) if re.fullmatch(NAMES, one.name)]
        return {one.name: IndexEntry(index=one) for one in found if (one / FILE).exists() and index_exists(one)}

    async def _take(self, name: str, entry: IndexEntry) -> None:
        if name not in self.named:
            try:
                self._reading[name] = Reading(entry.index)
            except OSError:
                return  # It went just now.
        await self._put(Holder(self.settings.of(entry), self.shared, name)).holder.start()

    async def _let_go(self, holder: Holder) -> None:
        if holder.failure is not None:
            self._failed[holder.name] = time.monotonic()
        del self._served[holder.name]
        await holder.stop()
        if (reading := self._reading.pop(holder.name, None)) is not None:
            reading.close()
        self.shared.metrics.forget(holder.name)
