"""Workers that encode shards, each with an encoder of its own, and what happens when one dies. Ray is in ``ray_crew``.

A worker that dies costs the shards it had in hand: they go to the others, and another takes its place.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from suwen.encoders.document import DescribedEncoder, DocumentEncoder
from suwen.encoders.shards import Shard, VectorsError, write_shard
from suwen.errors import SuwenError

#: Shards a worker has in hand: while it encodes one, the next is on its way.
IN_HAND = 2
#: A shard that was in hand when this many workers died is not tried again: it is what kills them.
_MOST_DEATHS = 3
#: Workers in a row that died before they were ready.
_MOST_FAILED_STARTS = 3


class Worker(ABC):
    """One worker: it loads its encoder, then encodes shards one after the other."""

    @abstractmethod
    def start(self) -> Future[Any]:
        """Load the encoder and hold it against space and probe; done when the worker can begin."""

    @abstractmethod
    def encode(self, shard: Shard, folder: Path) -> Future[Any]:
        """Encode a shard into its file."""

    @abstractmethod
    def end(self) -> None:
        """Let the worker go, whatever it is doing."""


class Crew(ABC):
    """Who encodes the shards of a folder.

    Attributes:
        size: How many workers.
        lost: The errors that say that a worker has died; any other is raised.
    """

    size: int
    lost: tuple[type[BaseException], ...]

    @abstractmethod
    def hire(self, number: int, encoder: DescribedEncoder) -> Worker:
        """A new worker for the place of this number; it has not started."""

    def close(self) -> None:  # noqa: B027  # processes share nothing
        """Let go of what all workers share."""


class _Place:
    """A place in the crew: who holds it, whether it can begin, and what it has in hand."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.ready = worker, False
        self.in_hand: list[Shard] = []


def encode_by(crew: Crew, shards: Iterator[Shard], encoder: DescribedEncoder, folder: Path) -> Iterator[int]:
    """Have a crew encode shards into a folder; gives the number of texts of each shard as it is finished."""
    work = _Work(crew, shards, encoder, folder)
    try:
        yield from work.run()
    finally:
        for place in work.places:
            place.worker.end()
        crew.close()


class _Work:
    def __init__(self, crew: Crew, shards: Iterator[Shard], encoder: DescribedEncoder, folder: Path) -> None:
        self.crew, self.encoder, self.folder = crew, encoder, folder
        self.places: list[_Place] = []
        self._shards, self._again = shards, deque[Shard]()
        self._running: dict[Future[Any], tuple[_Place, Shard | None]] = {}
        self._deaths: Counter[int] = Counter()
        self._failed_starts = 0

    def run(self) -> Iterator[int]:
        if (first := self._next()) is None:
            return
        self._again.append(first)
        for number in range(self.crew.size):
            self._fill(number)
        self._hand_out()
        # Who is still starting, or waits for a machine, holds nothing up: what counts is what is in hand or came back.
        while self._again or any(place.in_hand for place in self.places):
            for future in wait(self._running, return_when=FIRST_COMPLETED).done:
                # What a dead worker had in hand was forgotten with it.
                if future in self._running and (count := self._take(future)):
                    yield count
            self._hand_out()

    def _fill(self, number: int) -> None:
        place = _Place(self.crew.hire(number, self.encoder))
        self.places[number : number + 1] = [place]
        self._running[place.worker.start()] = (place, None)

    def _hand_out(self) -> None:
        """Give every worker who has begun a shard, then every one a second."""
        for depth in range(IN_HAND):
            for place in self.places:
                if place.ready and len(place.in_hand) == depth and (shard := self._next()) is not None:
                    place.in_hand.append(shard)
                    self._running[place.worker.encode(shard, self.folder)] = (place, shard)

    def _next(self) -> Shard | None:
        return self._again.popleft() if self._again else next(self._shards, None)

    def _take(self, future: Future[Any]) -> int:
        """The texts of a shard that is finished; 0 of anything else."""
        place, shard = self._running.pop(future)
        problem = future.exception()
        if isinstance(problem, self.crew.lost):
            self._replace(place)
            return 0
        if problem is not None:
            raise problem
        if isinstance(refused := future.result(), Refused):
            raise VectorsError(f"a worker on {refused.host} gave up: {refused.why}; finished shards are kept")
        if shard is None:
            place.ready, self._failed_starts = True, 0
            return 0
        place.in_hand.remove(shard)
        return len(shard.ids)

    def _replace(self, place: _Place) -> None:
        if not place.ready:
            self._failed_starts += 1
            if self._failed_starts >= _MOST_FAILED_STARTS:
                raise VectorsError(
                    f"{_MOST_FAILED_STARTS} workers in a row died while they loaded the encoder (out of memory?): run "
                    f"it again with fewer workers; finished shards are kept"
                )
        for future in [one for one, (whose, _) in self._running.items() if whose is place]:
            del self._running[future]
        # Only the first was being encoded; the others waited.
        for shard in place.in_hand[:1]:
            self._deaths[shard.number] += 1
            if self._deaths[shard.number] >= _MOST_DEATHS:
                raise VectorsError(
                    f"{_MOST_DEATHS} workers died over shard {shard.number} (out of memory?): run it again with fewer "
                    f"workers, or a smaller --shard-size into another folder; finished shards are kept"
                )
        self._again.extend(place.in_hand)
        place.worker.end()
        self._fill(self.places.index(place))


# -- processes of this machine ------------------------------------------------------------------------------------


class Processes(Crew):
    """Processes of this machine, on GPUs of their own where there are several.

    Args:
        size: How many.
    """

    lost = (BrokenProcessPool,)

    def __init__(self, size: int) -> None:
        self.size = size

    def hire(self, number: int, encoder: DescribedEncoder) -> Worker:
        """A process that has not started."""
        return _Process(number, self.size, encoder)


class _Process(Worker):
    def __init__(self, number: int, workers: int, encoder: DescribedEncoder) -> None:
        context = multiprocessing.get_context("spawn")  # fork is not safe once torch or CUDA has threads
        # A pool of one each: when one of several processes dies, a pool ends the others too.
        self._pool = ProcessPoolExecutor(1, context)
        self._given = (number, workers, encoder)

    def start(self) -> Future[Any]:
        return self._pool.submit(_start_process, *self._given)

    def encode(self, shard: Shard, folder: Path) -> Future[Any]:
        try:
            return self._pool.submit(encode_shard, shard, folder)
        except BrokenProcessPool as problem:  # it died with nothing in hand
            failed: Future[Any] = Future()
            failed.set_exception(problem)
            return failed

    def end(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


_own: DocumentEncoder | None = None


class Refused(NamedTuple):
    """What a worker says instead of raising it: errors of ours do not all travel between processes."""

    host: str
    why: str


def _start_process(number: int, workers: int, encoder: DescribedEncoder) -> int | Refused:
    import torch

    device = encoder.settings.device
    if device in (None, "cuda") and torch.cuda.device_count() > 1:
        device = f"cuda:{number % torch.cuda.device_count()}"
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    return load_own(encoder, device)


def load_own(encoder: DescribedEncoder, device: str | None) -> int | Refused:
    """Load this process's encoder; one of another space, or that fails the probe, is refused.

    Returns:
        The number of this process.
    """
    global _own
    settings = encoder.settings._replace(device=device)
    try:
        _own = DocumentEncoder.load_as(settings, space=encoder.space.id, name=encoder.name)
    except SuwenError as problem:
        return Refused(socket.gethostname(), str(problem))
    return os.getpid()


def encode_shard(shard: Shard, folder: Path) -> int | Refused:
    """Encode a shard with this process's encoder, into its file; gives the number of texts."""
    manifest, host = folder.parent / "manifest.json", socket.gethostname()
    if _own is None:
        return Refused(host, "it has no encoder: this function is for the workers of a crew")
    if not manifest.is_file():
        return Refused(host, f"it sees no {manifest}: --out has to be a folder that all machines share, by one path")
    try:
        write_shard(shard.file(folder), _own.encode(shard.texts))
    except SuwenError as problem:
        return Refused(host, str(problem))
    return len(shard.ids)
