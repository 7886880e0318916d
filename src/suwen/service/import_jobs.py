"""Imports: more documents than a request may bring, taken in by a job that outlives the server. Speaks no HTTP.

A job is a folder beside the index: what was sent (``documents.jsonl``, or a book that becomes it) and what is known of
it (``job.json``), both written whole or not at all. It is checked first, all of it; only then are its documents stored,
a few at a time. How far it has come is kept in the index, in the step that stores them: after a kill it goes on where
it was, and stores nothing twice.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from suwen.corpora.book_pages import Limits
from suwen.corpora.books import BOOKS, kind_of, read_book
from suwen.corpora.files import BadRecord
from suwen.corpora.records import Document
from suwen.durable import new_folder, write_json, write_lines
from suwen.errors import SuwenError
from suwen.retrieve.ingest import Duplicates, IngestReport, OneStep
from suwen.retrieve.retriever import Index
from suwen.service.holder import Holder
from suwen.service.import_lines import batches, read_documents
from suwen.service.json_bounds import Bounds
from suwen.service.original_files import keep_original
from suwen.service.places import Shed
from suwen.service.problems import Problem, as_problem

log = logging.getLogger("suwen.service")
State = Literal["waiting", "checking", "storing", "done", "failed", "cancelled"]
_ENDED: tuple[State, ...] = ("done", "failed", "cancelled")
#: Where the index keeps how far the job under way has come.
_SETTING = "import"
#: Jobs that have ended and are still known.
_REMEMBERED = 100
_DOCUMENTS, _BOOK, _ABOUT = "documents.jsonl", "book", "job.json"
#: Of a book's pages that are left out so many are told.
_TOLD = 100
#: Characters of a title, as ``POST /documents`` takes it.
_TITLE = 2000
#: What reading one may take: less than a command may, since others wait for the server.
_LIMITS = Limits(memory=3 * 2**30, seconds=120, processes=2)
#: The beginning of the name of a file that is still being sent.
_COMING = "coming-"
_COUNTS = ("read", "added", "changed", "unchanged", "passages")
#: One document may have any number of passages.
_ANY = 2**62
#: Seconds between two looks for a job, and after a failure of the server's own.
_PAUSE, _AFTER_FAILURE = 0.5, 10.0


@dataclass(frozen=True)
class Job:
    """What is known of an import.

    Attributes:
        id: Its name.
        state: What it is at: it waits, is checked, is stored; or how it ended.
        duplicates: What to do with an id that comes twice.
        bytes: How long it is.
        created: When it came, in seconds since 1970.
        ended: When it ended.
        documents: How many it holds, once it is checked.
        read: How many of them were dealt with.
        added: Of these, those that are new; ``changed`` and ``unchanged`` are the others.
        passages: Passages that were stored.
        encoded: Passages encoded since the server was started: it moves within a long document too.
        error: Why it failed: a code and a message, and the line that is wrong.
        key: Whose it is, where the server has keys.
        name: Of a book that was sent: the path of its documents, with the ending that says what it is.
        left_out: Its pages that could not be read, and why: the first of them, and what is said of several at once.
        left_out_total: How many times something was left out.
        page: The last of its pages that was read, of ``pages``; these are 0 where it has none.
    """

    id: str
    duplicates: Duplicates
    bytes: int
    created: float
    state: State = "waiting"
    ended: float | None = None
    documents: int | None = None
    read: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    passages: int = 0
    encoded: int = 0
    error: dict[str, Any] | None = None
    key: str = ""
    name: str = ""
    left_out: tuple[dict[str, Any], ...] = ()
    left_out_total: int = 0
    page: int = 0
    pages: int = 0

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in _ENDED

    def after(self, report: IngestReport) -> Job:
        """The same, with what one step did."""
        counts = {name: getattr(self, name) + getattr(report, name) for name in _COUNTS}
        # Encoded anew, perhaps, and the same document.
        counts["unchanged"] += report.reencoded
        return replace(self, **counts, encoded=self.encoded + report.encoded)


class _Halt(Exception):
    """Ends a job between two steps: the server stops, or it was cancelled."""


class Imports:
    """The imports of one index: those that wait, the one at work, and the last that ended. Used from any thread.

    Args:
        holder: Whose index it is.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self.folder = holder.settings.spool
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._at_work = ""
        self._cancelled: set[str] = set()
        self._coming: list[str] = []
        self._changed, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # -- the life of the server ---------------------------------------------------------------------------------

    def start(self, index: Index) -> None:
        """Read what is there, and go on with what was not finished."""
        if self._holder.settings.read_only:
            return
        # What a kill left of imports that nobody was told were taken.
        for left in self.folder.glob(f"{_COMING}*"):
            left.unlink()
        for left in self.folder.glob(".*.tmp"):
            shutil.rmtree(left)
        for about in sorted(self.folder.glob(f"*/{_ABOUT}")):
            job = _read_job(about)
            if job is None:
                log.error("%s is not an import: it is left alone, look at it and remove its folder", about)
            else:
                self._jobs[job.id] = job if job.over else _as_stored(job, index)
        self._thread = threading.Thread(target=self._run, args=(index,), name="suwen-import", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the step under way; the rest is done after the next start."""
        self._ending.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join(max(0.0, 0.9 * self._holder.seconds_left()))

    # -- what callers do ----------------------------------------------------------------------------------------

    def coming(self, key: str) -> Path:
        """A file for an import that is about to be sent, which has a place from now on; ``gone`` gives it back.

        Raises:
            Shed: As many imports wait as the server takes, or as one key may have.
        """
        settings = self._holder.settings
        with self._lock:
            waiting = [job.key for job in self._jobs.values() if not job.over] + self._coming
            if len(waiting) >= settings.imports or (key and waiting.count(key) >= settings.share(settings.imports)):
                raise Shed(f"{len(waiting)} imports wait already")
            self._coming.append(key)
        self.folder.mkdir(exist_ok=True)
        return self.folder / f"{_COMING}{secrets.token_hex(8)}"

    def gone(self, file: Path, key: str) -> None:
        """Give the place of an import back that has come, or will not."""
        with self._lock:
            self._coming.remove(key)
        file.unlink(missing_ok=True)

    def accept(self, sent: Path, duplicates: Duplicates, key: str = "", name: str = "") -> Job:
        """Make a job of a file that has come whole; once this returns, a kill does not lose it."""
        id_ = f"{int(1000 * time.time()):013d}-{secrets.token_hex(4)}"
        job = Job(id_, duplicates, sent.stat().st_size, round(time.time(), 3), key=key, name=name)
        with new_folder(self.folder / id_) as folder:
            sent.replace(folder / (_BOOK if name else _DOCUMENTS))
            write_json(folder / _ABOUT, asdict(job))
        with self._lock:
            self._jobs[id_] = job
        self._changed.set()
        return job

    def known(self) -> list[Job]:
        """All that are known, oldest first."""
        with self._lock:
            return [self._jobs[id_] for id_ in sorted(self._jobs)]

    def find(self, id_: str) -> Job:
        """One of them.

        Raises:
            Problem: There is none of this id.
        """
        job = self._jobs.get(id_)
        if job is None:
            raise Problem("unknown_import", f"there is no import {id_!r}: GET /imports lists them", param="id")
        return job

    def cancel(self, id_: str) -> Job:
        """End a job, or let the one at work end at its next step: what it has stored stays. One that is over stays."""
        with self._lock:
            job = self.find(id_)
            if not job.over:
                self._cancelled.add(id_)
            if self._at_work != id_ and not job.over:
                self._end(job, "cancelled")
        return self.find(id_)

    # -- the work -----------------------------------------------------------------------------------------------

    def _run(self, index: Index) -> None:
        while not self._holder.ready and not self._ending.wait(0.05):
            pass
        while not self._ending.is_set():
            self._changed.clear()
            job = self._next()
            if job is None:
                self._changed.wait(_PAUSE)
                continue
            try:
                self._work(index, job)
            except Exception:
                # A full disk, say: the job stays as it is, and goes on when there is room again.
                log.exception("the import %s cannot go on; trying again in %g seconds", job.id, _AFTER_FAILURE)
                self._ending.wait(_AFTER_FAILURE)
            self._prune()

    def _next(self) -> Job | None:
        with self._lock:
            waiting = sorted(id_ for id_, job in self._jobs.items() if not job.over)
            self._at_work = waiting[0] if waiting and not self._holder.ending else ""
            return self._jobs.get(self._at_work)

    def _work(self, index: Index, job: Job) -> None:
        """Bring one job to its end, or up to a stop."""
        try:
            self._go_on(job)
            if job.documents is None:
                job = self._note(replace(job, state="checking"))
                if job.name:
                    self._read_book(job)
                    job = self._note(self._jobs[job.id])
                found = sum(1 for _ in self._documents(job))
                self._keep(job)
                job = self._note(replace(job, documents=found))
            job = self._note(replace(job, state="storing"))
            for batch in batches(islice(self._documents(job), job.read, None)):
                job = self._stored(index, job, batch)
            self._end(job, "done")
        except _Halt:
            if job.id in self._cancelled:
                self._end(self._jobs[job.id], "cancelled")
        except SuwenError as error:
            problem = as_problem(error)
            if problem.code != "stopping" and problem.status >= 500:
                raise
            if problem.code != "stopping":
                about = {"code": problem.code, "message": problem.message, "param": problem.param}
                self._end(replace(self._jobs[job.id], error=about), "failed")

    def _read_book(self, job: Job) -> None:
        """Make documents of a book, in a process with limits."""
        folder = self.folder / job.id
        if not (folder / _BOOK).is_file():
            return  # it was read before a restart
        write_lines(folder / _DOCUMENTS, self._pages(job, folder / _BOOK))

    def _keep(self, job: Job) -> None:
        """Keep the book of an import that is whole; of one that fails nothing stays, and nothing is replaced."""
        book, books = self.folder / job.id / _BOOK, self._holder.settings.books
        if books is not None and book.is_file() and kind_of(Path(job.name)) in BOOKS:
            keep_original(book, job.name, books)

    def _pages(self, job: Job, book: Path) -> Iterator[dict[str, Any]]:
        self._jobs[job.id] = replace(self._jobs[job.id], left_out=(), left_out_total=0)

        def tell(page: int, why: str) -> None:
            so_far = self._jobs[job.id]
            told = so_far.left_out
            if len(told) < _TOLD or not page:
                told = (*told, {"page": page, "why": why})
            self._jobs[job.id] = replace(so_far, left_out=told, left_out_total=so_far.left_out_total + 1)

        def progress(page: int, pages: int) -> None:
            self._go_on(job)
            self._jobs[job.id] = replace(self._jobs[job.id], page=page, pages=pages)

        kind, longest = kind_of(Path(job.name)) or "", self._holder.settings.text_characters
        how: dict[str, Any] = {"name": job.name, "limits": _LIMITS, "progress": progress, "longest": longest}
        try:
            for one in read_book(book, book.parent, kind, tell, **how):
                self._go_on(job)
                yield {"id": one.id, "title": one.title[:_TITLE], "text": one.text, "metadata": dict(one.metadata)}
        except BadRecord as bad:
            raise Problem("invalid_request", str(bad).replace(str(book), job.name), param="name") from None

    def _documents(self, job: Job) -> Iterator[Document]:
        settings = self._holder.settings
        bounds = Bounds(settings.body_bytes, settings.body_elements, settings.depth)
        file = self.folder / job.id / _DOCUMENTS
        longest, book = settings.text_characters, bool(job.name)
        for document in read_documents(file, bounds, longest, job.duplicates, book=book):
            self._go_on(job)
            yield document

    def _stored(self, index: Index, job: Job, batch: list[Document]) -> Job:
        """Store a few documents and how far the job has come, in one step."""

        def remember(report: IngestReport) -> dict[str, str]:
            later = job.after(report)
            return {_SETTING: json.dumps({"id": job.id, **{name: getattr(later, name) for name in _COUNTS}})}

        def progress(_: int, encoded: int) -> None:
            self._jobs[job.id] = replace(job, encoded=job.encoded + encoded)

        encoder = self._holder.encoder(index, lambda: self._go_on(job))
        step = OneStep(_ANY, remember)
        report = self._holder.noting(
            lambda index: index.add(batch, encoder=encoder, step=step, progress=progress), index
        )
        self._jobs[job.id] = later = job.after(report)
        return later

    def _go_on(self, job: Job) -> None:
        if self._ending.is_set() or self._holder.ending or job.id in self._cancelled:
            raise _Halt

    def _note(self, job: Job) -> Job:
        write_json(self.folder / job.id / _ABOUT, asdict(job))
        self._jobs[job.id] = job
        return job

    def _end(self, job: Job, state: State) -> None:
        self._note(replace(job, state=state, ended=round(time.time(), 3)))
        for file in (_DOCUMENTS, _BOOK):
            (self.folder / job.id / file).unlink(missing_ok=True)
        log.info(
            "import", extra={"line": {"id": job.id, "state": state, "documents": job.read, "key": job.key or None}}
        )

    def _prune(self) -> None:
        """Forget all but the last jobs that have ended."""
        with self._lock:
            ended = [id_ for id_ in sorted(self._jobs) if self._jobs[id_].over]
            for id_ in ended[:-_REMEMBERED]:
                shutil.rmtree(self.folder / id_, ignore_errors=True)
                del self._jobs[id_]
                self._cancelled.discard(id_)


def _read_job(file: Path) -> Job | None:
    names = {one.name for one in fields(Job)}
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        job = Job(**{name: value for name, value in about.items() if name in names})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    whole = job.over or any((file.parent / name).is_file() for name in (_DOCUMENTS, _BOOK))
    job = replace(job, left_out=tuple(job.left_out))
    return replace(job, encoded=0) if whole and job.id == file.parent.name else None


def _as_stored(job: Job, index: Index) -> Job:
    """A job with what the index knows of it: a kill may have come before anybody wrote it down."""
    kept = json.loads(str(index.engine.settings().get(_SETTING, "{}")))
    counts: dict[str, Any] = {name: int(kept[name]) for name in _COUNTS if name in kept}
    return replace(job, **counts) if kept.get("id") == job.id else job
