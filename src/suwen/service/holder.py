"""One open index of a server, and who may touch it how: several threads read, one writes. Speaks no HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from suwen.encoders.query import Encoder
from suwen.encoders.space import DamagedPair
from suwen.errors import SuwenError
from suwen.index.address import shown
from suwen.index.engine import DamagedIndex
from suwen.retrieve.retriever import Index
from suwen.service.places import Kind
from suwen.service.problems import Problem, as_problem
from suwen.service.serve_settings import ServeSettings
from suwen.service.shared import Shared
from suwen.service.writer import InSteps, Writer, stopping

log = logging.getLogger("suwen.service")
T = TypeVar("T")
#: Seconds between two looks at whether all that was under way has ended.
_LOOK = 0.01
_LATE = "ask for less, or try again later"
#: Passages up to which a search computes for less than it calls.
_SMALL = 100_000


class Holder:
    """An index being served, alone or beside others.

    Args:
        settings: How it is served.
        shared: What it has in common with the others of its server; its own, where it is the only one.
        name: What requests call it; by default its folder's name.
    """

    def __init__(self, settings: ServeSettings, shared: Shared | None = None, name: str | None = None) -> None:
        self.settings = settings
        #: Whether what is shared ends with it.
        self.first = shared is None
        self.shared = shared or Shared(settings)
        self.name = name or settings.name
        self.keys, self.metrics, self.places = self.shared.keys, self.shared.metrics, self.shared.places
        #: Why the index could not be opened, and what was found damaged since.
        self.failure: SuwenError | None = None
        self.damage: SuwenError | None = None
        self.stopping, self.closed = False, False
        #: Whether the index was small when it was opened.
        self.small = False
        #: Called once the index is open, and before it is closed; in no particular thread.
        self.on_open: list[Callable[[Index], None]] = []
        self.on_failure: list[Callable[[], None]] = []
        self.on_close: list[Callable[[], None]] = []
        #: Every name of it: its own, and the aliases that mean it now.
        self.called: Callable[[], Collection[str]] = lambda: {self.name}
        #: Who encodes posted documents again, and how many of them are being worked on.
        self.workers: Callable[[], Mapping[str, Any]] = lambda: {"worker": "none", "leased": 0}
        #: Requests under way that were sent to this index: it is closed when there are none.
        self.visitors = 0
        self._index: Index | None = None
        #: What is being done for this index, in whatever thread.
        self._under_way: set[object] = set()
        self._writer = Writer()
        self.shared.on_late.append(self._writer.give_up.set)
        self.metrics.ready.labels(self.name).set(0)
        self._opening: asyncio.Future[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    # -- opening and closing ------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the index is open."""
        return self._index is not None and not self.stopping

    @property
    def index(self) -> Index:
        """The open index; before it is open, and once it is closed, the problem that says so."""
        if self.stopping:
            raise stopping()
        if self._index is not None:
            return self._index
        if self.failure is not None:
            raise as_problem(self.failure)
        raise Problem("loading", "the index is being opened: try again in a moment", headers={"Retry-After": "1"})

    def open(self) -> None:
        """Open the index, in whatever thread this is; a failure is kept, not raised."""
        settings, told = self.settings, shown(self.settings.index)
        try:
            index = Index.open(
                settings.index, pair=settings.pair, write=not settings.read_only, load=self.shared.load_pair
            )
            try:
                # The first search reads the vectors and the encoder, which may take seconds: no caller should wait.
                index.search("健康 health", k=1)
                with index.engine.snapshot() as snapshot:
                    self.small = snapshot.last_row <= _SMALL
                for begin in self.on_open:
                    begin(index)
            except BaseException:
                index.close()
                raise
            self._index = index
            self.metrics.ready.labels(self.name).set(1)
            return
        except OSError as problem:
            self.failure = DamagedIndex(
                f"{told} cannot be read ({problem}): run 'suwen verify {told}', or restore a backup"
            )
        except SuwenError as problem:
            self.failure = problem
        except Exception as problem:
            log.exception("the index cannot be opened")
            self.failure = SuwenError(f"{told} cannot be opened ({type(problem).__name__}: {problem})")
        log.error("the index cannot be served: %s", self.failure)
        for stop in self.on_failure:
            stop()

    async def start(self) -> None:
        """Begin to open the index; answers are given meanwhile."""
        if self._index is None:
            self._opening = asyncio.get_running_loop().run_in_executor(self._writer.pool, self.open)
        self._watching = asyncio.create_task(self._watch())

    def end(self) -> None:
        """Begin to stop, from any thread; see :meth:`Shared.end`."""
        self.shared.end()

    @property
    def ending(self) -> bool:
        """Whether a stop has begun: nothing is started that nobody waits for."""
        return self.stopping or self.shared.ending

    def seconds_left(self) -> float:
        """How long a stop may still take, at the most."""
        return self.shared.seconds_left() if self.shared.ending else self.settings.stop_seconds

    async def stop(self) -> None:
        """Finish what was accepted, as far as there is time, then close the index."""
        if self.first:
            self.end()
        self.stopping = True
        if self._watching is not None:
            self._watching.cancel()
        if self._opening is not None:
            await self._opening
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        for end in self.on_close:
            end()
        self._writer.pool.shutdown(wait=True)
        if not self.first:
            # The readers are the server's, and go on for others.
            while self._under_way:
                time.sleep(_LOOK)
        self.shared.on_late.remove(self._writer.give_up.set)
        if self.first:
            self.shared.close()
        if self._index is not None:
            self._index.close()
            self._index = None
        self.metrics.ready.labels(self.name).set(0)
        self.closed = True

    async def _watch(self) -> None:
        """Tell the log, once for each, of a write that does not end."""
        told = False
        while True:
            await asyncio.sleep(min(1.0, self.settings.stuck_seconds / 2))
            stuck = self._writer.busy_seconds() > self.settings.stuck_seconds
            if stuck and not told:
                log.error(
                    "a write has taken %.0f seconds and is at\n%s", self._writer.busy_seconds(), self._writer.at()
                )
            told = stuck

    # -- working ------------------------------------------------------------------------------------------------

    async def read(
        self,
        work: Callable[[Index], T],
        kind: str = "read",
        place: Kind = "read",
        *,
        taken: bool = False,
        short: bool = False,
    ) -> T:
        """Do something that changes nothing, in one of the reader threads.

        Args:
            work: Gets the index.
            kind: What it is, for the metrics.
            place: Whose places it takes one of.
            taken: Whether the caller has that place already, and may take as long as it needs.
            short: Whether it takes a few milliseconds, most of them in the interpreter: see :class:`Turns`.

        Raises:
            Shed: The server has as much work as it takes.
            Problem: It took too long, or there is no index to read.
        """
        if short:
            return await self._in_turn(work, kind)
        if taken:
            index = self.index
            future = self.shared.readers.submit(lambda: self.noting(work, index))
            self._under_way.add(future)
            future.add_done_callback(self._under_way.discard)
            return await asyncio.wrap_future(future)
        future = self._submit(self.shared.readers.submit, work, kind, place)
        # Work that has not begun when the time is up never begins.
        async with self.within_time(_LATE):
            return await asyncio.wrap_future(future)

    async def _in_turn(self, work: Callable[[Index], T], kind: str) -> T:
        index, places = self.index, self.places["read"]
        asker, asked = places.take(), time.perf_counter()

        def piece() -> T:
            self.metrics.waited(kind, time.perf_counter() - asked)
            return self.noting(work, index)

        def over() -> None:
            self._under_way.discard(over)
            places.give(asker)

        self._under_way.add(over)
        try:
            return await self.shared.turns.do(piece, self.settings.seconds, over)
        except TimeoutError:
            raise self.shared.late(_LATE) from None

    async def write(self, work: Callable[[Index], T]) -> T:
        """Change the index, one at a time in the writer's thread; what was accepted is done, whoever has left.

        Raises:
            Shed: The server has as much work as it takes.
            Problem: It took too long (and is done all the same), or there is no index to write.
        """
        self.check_writable()
        future = self._submit(self._writer.submit, work, "write", "write")
        done = asyncio.wrap_future(future)
        try:
            async with self.within_time("it is still being done; sending it again does no harm"):
                return await asyncio.shield(done)
        except asyncio.CancelledError:
            if not self.ending:
                raise
            # The time of a stop is up, and this was not begun, or does not end.
            raise stopping() if future.cancel() else stopping(begun=True) from None
        finally:
            if not done.done():
                done.add_done_callback(_tell_of_left)

    def check_writable(self) -> None:
        """Raise the problem of a server that only reads."""
        if self.settings.read_only:
            raise Problem(
                "read_only", "this server only reads: post to the one that writes, or start it without read_only"
            )

    def background(self, work: Callable[[Index], T]) -> Future[T]:
        """Change the index between the writes of requests, without taking one of their places."""
        index = self.index
        return self._writer.submit(lambda: self.noting(work, index))

    def encoder(self, index: Index, stop: Callable[[], None] | None = None) -> Encoder:
        """What encodes documents here: one at a time in all, in steps that a stop may end between.

        Args:
            index: Whose tier it is.
            stop: For work nobody waits for: raises to end it. It gives way to the rest.
        """

        def check() -> None:
            if self._writer.give_up.is_set():
                raise stopping()
            if stop is not None:
                stop()

        encoder = index.encoder_at_once()
        return InSteps(encoder, self.shared.encoding, check, give_way=self.give_way, breath=stop is not None)

    def give_way(self) -> None:
        """Wait a moment for searches under way to end."""
        self.shared.give_way()

    def within_time(self, fix: str) -> AbstractAsyncContextManager[None]:
        """End the block with the problem ``timeout`` when it takes longer than a request may."""
        return self.shared.within_time(fix)

    def _submit(
        self, submit: Callable[[Callable[[], T]], Future[T]], work: Callable[[Index], T], kind: str, place: Kind
    ) -> Future[T]:
        index, places = self.index, self.places[place]
        asker = places.take()
        asked = time.perf_counter()

        def job() -> T:
            self.metrics.waited(kind, time.perf_counter() - asked)
            return self.noting(work, index)

        try:
            future = submit(job)
        except BaseException:
            places.give(asker)
            raise
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        # The place is free when the thread is, not when the caller gives up: else work would pile up behind it.
        future.add_done_callback(lambda _: places.give(asker))
        return future

    def noting(self, work: Callable[[Index], T], index: Index) -> T:
        """Do something, and remember what was found damaged on the way."""
        try:
            return work(index)
        except (DamagedIndex, DamagedPair) as problem:
            if self.damage is None:
                log.error("the index is damaged, which /readyz tells until a restart: %s", problem)
            self.damage = problem
            raise

    # -- telling ------------------------------------------------------------------------------------------------

    def trouble(self) -> Problem | None:
        """What an operator must know: a damaged index, with the file and the fix, or a writer that is stuck."""
        found = self.failure or self.damage
        if isinstance(found, DamagedIndex | DamagedPair):
            # The file and the fix are told, the place of the index on this machine is not.
            said = str(found)
            for place in (self.settings.index.absolute().parent, self.settings.index.parent):
                said = said.replace(f"{place}/", "")
            return Problem("damaged_index", said)
        if (seconds := self._writer.busy_seconds()) > self.settings.stuck_seconds:
            return Problem(
                "writer_stuck",
                f"a write has taken {seconds:.0f} seconds: searches are answered, nothing is stored. The log says "
                "where it is; look at the disk, and restart the server if it does not end",
                headers={"Retry-After": "5"},
            )
        return None

    def freshness(self, index: Index) -> dict[str, Any]:
        """What waits for the document encoder, since when, and who works on it."""
        backlog = index.backlog()
        waited = 0.0 if backlog.oldest is None else max(0.0, time.time() - backlog.oldest)
        return {
            "fresh_passages": backlog.passages,
            "waiting_documents": backlog.documents,
            "oldest_seconds": round(waited, 3),
            **self.workers(),
        }


def _tell_of_left(done: asyncio.Future[Any]) -> None:
    """Tell the log of a write that failed when its caller had been told already that it took too long."""
    problem = None if done.cancelled() else done.exception()
    if problem is not None and not (isinstance(problem, Problem) and problem.code == "stopping"):
        log.error("a write that was answered with a timeout has failed: %s", problem, exc_info=problem)
