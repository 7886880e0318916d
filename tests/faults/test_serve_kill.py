"""SIGKILL, with and without a power cut, of the real server under mixed load: what it acknowledged is there, once."""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest
from kill_harness import HERE, SOURCE, Bench, Outcome, Point, draw_points, strata, summary
from power_loss import LOSSES, Change, Disk, changes, killed_at
from serve_clients import (
    WRITERS,
    Reader,
    Writer,
    new_client,
    problems_of,
    text_of,
    wait_until_encoded,
)
from serve_worker import VERBS
from workload import State

from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.encoders.document import DocumentEncoder
from suwen.retrieve.retriever import Index

SEED: State = {f"kept-{number}": 0 for number in range(4)}
PATIENCE = 300.0


@dataclass
class Life:
    """A running server."""

    pid: int
    address: str
    log: Path
    program: subprocess.Popen[str]
    ended: bool = False

    def end(self) -> int:
        """Wait for its end; the exit status."""
        assert self.program.stdout is not None
        self.ended = True
        return int(self.program.stdout.readline())

    def terminate(self) -> None:
        """Ask it to end, if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


class Site(NamedTuple):
    """What all points share: programs that fork servers, an index to begin with, its encoder's base, the shim."""

    programs: queue.Queue[subprocess.Popen[str]]
    template: Path
    base: Path
    encoder: DocumentEncoder
    shim: Path

    @contextmanager
    def serving(self, bench: Bench, *, fault: str | None = None, build: str = "") -> Iterator[Life]:
        """Start a server of the bench's index, under the shim unless ``fault`` is None; it must end in the block."""
        program = self.programs.get()
        life = self._start(program, bench, fault, build)
        try:
            self._wait_until_ready(life)
            yield life
        finally:
            if not life.ended:  # what comes next would wait for this one's end, for ever
                with suppress(ProcessLookupError):
                    os.kill(life.pid, signal.SIGKILL)
                life.end()
            self.programs.put(program)

    def _start(self, program: subprocess.Popen[str], bench: Bench, fault: str | None, build: str) -> Life:
        bench.trash.mkdir(parents=True, exist_ok=True)
        address, log = bench.folder / "address", bench.folder / "log"
        address.unlink(missing_ok=True)
        watch = {"SHIM_ROOT": bench.root, "SHIM_LOG": bench.folder / "journal", "SHIM_TRASH": bench.trash}
        job = {
            "index": str(bench.root),
            "base": str(self.base),
            "log": str(log),
            "address": str(address),
            "build": build,
            "shim": "" if fault is None else str(bench.shim),
            "watch": {name: str(value) for name, value in watch.items()} | {"SHIM_FAULT": fault or ""},
        }
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(json.dumps(job) + "\n")
        program.stdin.flush()
        return Life(int(program.stdout.readline()), "", log, program)

    def _wait_until_ready(self, life: Life) -> None:
        address, deadline = life.log.with_name("address"), time.monotonic() + PATIENCE
        while not address.exists():
            assert time.monotonic() < deadline and _alive(life.pid), life.log.read_text(encoding="utf-8")[-3000:]
            time.sleep(0.01)
        life.address = address.read_text(encoding="utf-8")
        # The background may come to the point where it is struck before anybody has seen that the server is ready.
        with new_client(life.address) as client, suppress(httpx.TransportError):
            while client.get("/readyz").status_code != 200:
                assert time.monotonic() < deadline, life.log.read_text(encoding="utf-8")[-3000:]
                time.sleep(0.01)

    def bench(self, folder: Path) -> Bench:
        """A bench with an index of its own."""
        bench = Bench(self.shim, folder)
        shutil.copytree(self.template, bench.root)
        return bench


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def site(shim: Path, adapter_pair: Path, base_folder: Path) -> Iterator[Site]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "serve_worker.py")]
    programs: queue.Queue[subprocess.Popen[str]] = queue.Queue()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    running = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for program in running:
        programs.put(program)
    with folder_in_memory() as folder:
        template = folder / "template"
        with Index.create(template, pair=adapter_pair) as index:
            index.add([Document(id_, text_of(id_, version)) for id_, version in SEED.items()])
        encoder = DocumentEncoder.load(adapter_pair, base=base_folder, device="cpu")
        yield Site(programs, template, base_folder, encoder, shim)
    for program in running:
        program.communicate()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


# -- one point ------------------------------------------------------------------------------------------------------


def load(life: Life, seed: int) -> tuple[list[Writer], list[str]]:
    """Writers and a reader at once, until all is written and encoded or the server is gone; and their complaints."""
    writers = [Writer(f"w{number}", random.Random(f"{seed}.{number}")) for number in range(WRITERS)]
    done = threading.Event()
    reader = Reader(life.address, done)
    reader.start()
    threads = [threading.Thread(target=writer.run, args=(life.address,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        with new_client(life.address) as client:
            problems = wait_until_encoded(client)
    except httpx.TransportError:  # whichever way a client learns that the server is no more
        problems = []
    life.terminate()
    done.set()
    reader.join()
    return writers, problems + reader.problems + [line for writer in writers for line in writer.problems]


def try_point(site: Site, folder: Path, seed: int, point: Point, build: str = "") -> Outcome:
    """Strike once under load, cut the power, start the server again, and look; then let the background finish."""
    bench = site.bench(folder)
    disk = Disk.scan(bench.root)
    with site.serving(bench, fault=point.fault, build=build) as life:
        writers, problems = load(life, seed)
        status = life.end()
    journal = bench.folder / "journal"
    hit = killed_at(journal)
    if status not in (0, -signal.SIGKILL) or problems:
        return Outcome(point, hit, [*problems, f"the server ended with {status}: {life.log.read_text()[-2000:]}"])
    if hit is None and point.number > 1:
        # How often the background comes to its turn is a matter of moments: take one that comes sooner.
        sooner = point._replace(number=point.number * 2 // 3)
        return try_point(site, folder / "sooner", seed, sooner, build)
    disk.replay(journal).lose(point.loss, bench.trash)
    return Outcome(point, hit, look(site, bench, writers))


def look(site: Site, bench: Bench, writers: list[Writer]) -> list[str]:
    """What is wrong after a restart, and after the background has finished; what the library finds wrong then."""
    try:
        with site.serving(bench) as life:
            try:
                with new_client(life.address) as client:
                    found = problems_of(client, writers, SEED)
                    found += wait_until_encoded(client) + problems_of(client, writers, SEED)
            finally:
                life.terminate()
                status = life.end()
        found += [] if status == 0 else [f"the second server ended with {status}: {life.log.read_text()[-2000:]}"]
        with Index.open(bench.root, write=True) as index:
            return found + index.engine.verify() + _vectors(site, index)
    except Exception as problem:  # whatever it is, a server that does not come back is what is looked for here
        return [f"{type(problem).__name__}: {problem}"]


def _vectors(site: Site, index: Index) -> list[str]:
    """Documents whose vectors are not those of the text they have now."""
    found = []
    for id_ in index.ids():
        stored = index.engine.stored_vectors(id_, index.freshness.own)
        made = site.encoder.encode_documents(list(stored))
        if not stored or np.abs(np.stack(list(stored.values())) - made).max() > 0.01:
            found.append(f"{id_} has vectors of another text")
    return found


def dry_run(site: Site, folder: Path, seed: int) -> list[Change]:
    """Every change of the calls when nothing strikes; all must be well then."""
    bench = site.bench(folder)
    with site.serving(bench, fault="") as life:
        writers, problems = load(life, seed)
        assert (problems, life.end()) == ([], 0), life.log.read_text(encoding="utf-8")[-3000:]
    assert all(writer.acknowledged == writer.intended for writer in writers)
    assert look(site, bench, writers) == []
    # When tantivy has merged files it removes some and renames its list, and whether that falls into a call is a matter
    # of moments. Calls that add or encode rename the list themselves; a delete does not.
    chance = {(verb, "unlink") for verb in VERBS} | {("delete", "rename")}
    made = changes(bench.folder / "journal")
    return [change for change in made if change.phase in VERBS and (change.phase, change.kind) not in chance]


def try_all(site: Site, folder: Path, seed: int, points: list[Point]) -> list[Outcome]:
    with ThreadPoolExecutor(2) as pool:
        tried = [
            pool.submit(try_point, site, folder / f"{seed}-{number}", seed, point)
            for number, point in enumerate(points)
        ]
        return [one.result() for one in tried]


def judge(outcomes: list[Outcome], made: list[Change]) -> None:
    bad = [
        f"{outcome.point} at {outcome.hit}:\n    " + "\n    ".join(outcome.problems[:4])
        for outcome in outcomes
        if outcome.problems
    ]
    assert not bad, f"{len(bad)} of {len(outcomes)} kill points:\n" + "\n".join(bad)
    assert not [outcome.point for outcome in outcomes if outcome.hit is None], "never reached"
    wanted = {stratum[:2] for stratum in strata(made)}
    assert {outcome.stratum[:2] for outcome in outcomes} == wanted
    assert {verb for verb, _ in wanted} == set(VERBS)
    assert {outcome.point.loss for outcome in outcomes} == set(LOSSES)


def test_nothing_acknowledged_is_lost_at_25_kill_points_of_the_server(
    site: Site, tmp_path: Path, report: Callable[[str], None]
) -> None:
    made = dry_run(site, tmp_path / "dry", 0)
    outcomes = try_all(site, tmp_path, 0, draw_points(made, 25, seed=0))
    report("the server: " + summary(outcomes))
    judge(outcomes, made)


@pytest.mark.long
def test_nothing_acknowledged_is_lost_at_200_kill_points_of_the_server(
    site: Site, tmp_path: Path, report: Callable[[str], None]
) -> None:
    outcomes: list[Outcome] = []
    made: list[Change] = []
    for seed in range(1, 5):
        made += (here := dry_run(site, tmp_path / f"dry-{seed}", seed))
        outcomes += try_all(site, tmp_path, seed, draw_points(here, 50, seed))
    report("the server: " + summary(outcomes))
    judge(outcomes, made)


def test_a_server_that_answers_before_the_disk_has_it_is_caught(site: Site, tmp_path: Path) -> None:
    for number in (120, 200, 300):
        point = Point("add", "write", number, loss="zeros")
        if try_point(site, tmp_path / str(number), 0, point, "truth_unsynced").problems:
            return
    pytest.fail("no kill point shows that this build is wrong")
