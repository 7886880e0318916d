"""The indexes of one server by their names, and the aliases that mean one of them. Opens and closes; speaks no HTTP.

A request is sent to an index once, when it comes in, and stays with it: an alias that is switched under it changes
nothing for it, and an index is closed when the last request that was sent to it has been answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from suwen.durable import write_json
from suwen.index.opening import index_exists
from suwen.service.holder import Holder
from suwen.service.index_readers import Leaving, invite
from suwen.service.problems import Problem
from suwen.service.serve_settings import DEFAULT, NAMES, IndexEntry
from suwen.service.served_index import ServedIndex

log = logging.getLogger("suwen.service")
_KEPT = "aliases.json"
#: What every alias means now, for the processes that read beside this one.
NOW = ".aliases-now.json"
#: The beginning of the name of a folder whose index is gone, and still being removed.
_GONE = ".gone-"
#: Indexes of one server: each has a few threads of its own.
_MOST = 64
#: Seconds between two looks at whether the last request has left an index.
_LOOK = 0.01


class Indexes:
    """Every index of a server. Used on the event loop alone, but for :meth:`find`.

    Args:
        first: The one that the settings name first; what all of them share is its own.
    """

    def __init__(self, first: Holder) -> None:
        self.first, self.shared, self.settings = first, first.shared, first.settings
        self._served: dict[str, ServedIndex] = {}
        self._aliases = {DEFAULT: first.name, **self.settings.aliases}
        self._changing = asyncio.Lock()
        self._put(first)
        for name, entry in self.settings.indexes.items():
            self._put(Holder(self.settings.of(entry), self.shared, name))
        #: Those that the settings name: they stay for as long as the server does.
        self.named = frozenset(self._served)

    # -- finding ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ServedIndex]:
        return iter(list(self._served.values()))

    def __len__(self) -> int:
        return len(self._served)

    @property
    def aliases(self) -> dict[str, str]:
        """What each alias means."""
        return dict(self._aliases)

    def find(self, name: str) -> ServedIndex:
        """The index that a name or an alias means now.

        Raises:
            Problem: None does.
        """
        served = self._served.get(self._aliases.get(name, name))
        if served is None:
            raise Problem(
                "unknown_index", f"this server has no index {name[:80]!r}: GET /indexes lists them", param="index"
            )
        return served

    def names(self, name: str) -> set[str]:
        """Every name of the index that a name or an alias means."""
        return self.called(self._aliases.get(name, name))

    def called(self, name: str) -> set[str]:
        """Every name of an index: its own, and its aliases."""
        return {name, *(alias for alias, meant in self._aliases.items() if meant == name)}

    def needed(self, holder: Holder) -> bool:
        """Whether the server is not ready without an index: one that is just being taken in keeps nobody waiting."""
        return holder.ready or holder.name in self.named or holder.name in self._aliases.values()

    def _put(self, holder: Holder) -> ServedIndex:
        served = self._served[holder.name] = ServedIndex(holder)
        holder.called = lambda: self.called(holder.name)
        return served

    # -- the life of the server ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to open every index; answers are given meanwhile."""
        if self.settings.folder is not None:
            self._look_around(self.settings.folder)
            try:
                await self._tell(self._aliases)
            except OSError as problem:
                log.error("the reading processes know the aliases of the settings alone: %s", problem)
        for served in self:
            await served.holder.start()

    async def stop(self) -> None:
        """Finish what was accepted, as far as there is time, then close every index."""
        self.shared.end()
        await asyncio.gather(*(served.holder.stop() for served in self if served.holder is not self.first))
        await self.first.stop()

    def _look_around(self, folder: Path) -> None:
        """Find the indexes of the folder, and the aliases that were switched before."""
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"{_GONE}*"):
            shutil.rmtree(left, ignore_errors=True)
        for found in sorted(folder.iterdir()):
            if re.fullmatch(NAMES, found.name) and found.name not in self.named and index_exists(found):
                self._put(self._holder_in(folder, found.name))
        for alias, meant in read_aliases(folder / _KEPT).items():
            if meant in self._served:
                self._aliases[alias] = meant
            else:
                log.error(
                    "the alias %s means the index %s, which is not there: it is left as the settings say", alias, meant
                )
        for alias, meant in list(self._aliases.items()):
            if meant not in self._served:
                log.error("the alias %s of the settings means the index %s, which is not there", alias, meant)
                del self._aliases[alias]
        self._aliases.setdefault(DEFAULT, self.first.name)

    def _holder_in(self, folder: Path, name: str) -> Holder:
        if self.settings.workers > 1:
            invite(folder / name)
        return Holder(self.settings.of(IndexEntry(index=folder / name)), self.shared, name)

    # -- changing -----------------------------------------------------------------------------------------------

    def place_for(self, name: str) -> Path:
        """The folder that an index of a new name would have.

        Raises:
            Problem: The server takes no further indexes, or not by this name.
        """
        folder = self.settings.folder
        if folder is None:
            raise Problem(
                "fixed_indexes", "this server has no folder for further indexes: set folder in [serve] and restart it"
            )
        if not re.fullmatch(NAMES, name):
            raise Problem(
                "invalid_request",
                f"{name[:80]!r} cannot name an index: use letters, digits, '.', '_' and '-', at most 64, no '.' first",
                param="name",
            )
        if name in self._aliases or name in self._served:
            raise Problem("index_exists", f"there is an index or an alias {name!r} already: choose another name")
        if len(self._served) >= _MOST:
            raise Problem("too_many", f"the server has {_MOST} indexes, and takes no more: delete one first")
        return folder / name

    async def open(self, name: str) -> ServedIndex:
        """Serve the index that lies under this name in the folder; it may still be opening on return."""
        async with self._changing:
            place = self.place_for(name)
            if not await asyncio.to_thread(index_exists, place):
                raise Problem(
                    "unknown_index",
                    f"there is no index {name!r} in the server's folder: make or restore one there first",
                )
            served = self._put(self._holder_in(place.parent, name))
            await served.holder.start()
            return served

    async def switch(self, alias: str, name: str) -> str | None:
        """Let an alias mean another index from now on, for good; what it meant before.

        Raises:
            Problem: There is no such index, or it is not ready: requests by the alias would fail.
        """
        async with self._changing:
            holder = self._to_switch(alias, name)
            _ = holder.index  # Raises while it is not open.
            if (trouble := holder.trouble()) is not None:
                raise trouble
            before = self._aliases.get(alias)
            await self._keep({**self._aliases, alias: holder.name})
            self._aliases[alias] = holder.name
            log.info("alias", extra={"line": {"alias": alias, "index": holder.name, "before": before}})
            return before

    def _to_switch(self, alias: str, name: str) -> Holder:
        if not re.fullmatch(NAMES, alias):
            raise Problem(
                "invalid_request", f"{alias[:80]!r} cannot name an alias: use letters and digits", param="alias"
            )
        if alias in self._served and alias != DEFAULT:
            raise Problem("index_exists", f"{alias!r} is the name of an index: choose another for the alias")
        if name not in self._served:
            raise Problem(
                "unknown_index", f"this server has no index {name[:80]!r}: GET /indexes lists them", param="index"
            )
        return self._served[name].holder

    async def forget_alias(self, alias: str) -> None:
        """Let an alias mean nothing any more."""
        async with self._changing:
            if alias == DEFAULT:
                raise Problem("index_in_use", "the alias 'default' stays: switch it to another index instead")
            if alias not in self._aliases:
                raise Problem("unknown_index", f"there is no alias {alias[:80]!r}: GET /aliases lists them")
            await self._keep({one: meant for one, meant in self._aliases.items() if one != alias})
            del self._aliases[alias]

    async def _keep(self, aliases: dict[str, str]) -> None:
        folder = self.settings.folder
        if folder is None:
            raise Problem(
                "fixed_indexes", "this server has no folder to keep aliases in: set folder in [serve] and restart it"
            )
        try:
            await asyncio.to_thread(write_json, folder / _KEPT, aliases)
            await self._tell(aliases)
        except OSError as problem:
            log.error("the aliases cannot be kept in %s: %s", folder / _KEPT, problem)
            raise Problem("index_failed", "the aliases could not be written: the server's log has the reason") from None

    async def _tell(self, aliases: dict[str, str]) -> None:
        """Tell the processes that read beside this one, before anybody is told that an alias was switched."""
        if self.settings.folder is not None and self.settings.workers > 1:
            await asyncio.to_thread(write_json, self.settings.folder / NOW, aliases)

    async def drop(self, name: str) -> None:
        """Close an index of the folder once nobody reads it any more, and remove its files."""
        async with self._changing:
            served = self.find(name)
            holder = served.holder
            if name != holder.name or name in self.named:
                raise Problem("index_in_use", f"{name!r} is an alias, or an index that the settings name: it stays")
            if len(called := self.called(name)) > 1:
                raise Problem("index_in_use", f"{name!r} is what {sorted(called - {name})} mean: switch them first")
            del self._served[name]
        while holder.visitors:
            await asyncio.sleep(_LOOK)
        await holder.stop()
        leaving = Leaving(holder.settings.index)
        # A process that reads lets go when its last request is answered, which takes no longer than one may.
        until = asyncio.get_running_loop().time() + self.settings.seconds
        while not leaving.over() and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(_LOOK)
        gone = holder.settings.index.with_name(f"{_GONE}{secrets.token_hex(4)}")
        await asyncio.to_thread(holder.settings.index.rename, gone)
        await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)
        self.shared.metrics.forget(name)


def read_aliases(file: Path) -> dict[str, str]:
    """The aliases that a file keeps; none where it is not there."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return {str(alias): str(meant) for alias, meant in kept.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as problem:
        log.error("%s cannot be read (%s): the aliases are those of the settings", file, problem)
        return {}
