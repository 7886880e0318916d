"""Documents on their way into an index, as the verbs ``index`` and ``add`` send them, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from suwen.choices import Duplicates
from suwen.cli.output import about, counting, measuring, plural, say, show
from suwen.cli.source_notes import SourceNotes
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.corpora.records import Document
    from suwen.encoders.query import Encoder
    from suwen.encoders.who_encodes import Choice
    from suwen.retrieve.imported import ImportedVectors
    from suwen.retrieve.ingest import IngestReport
    from suwen.retrieve.questions import QuestionFile
    from suwen.retrieve.retriever import Index


@dataclass
class Take:
    """Documents on their way into an index, and what was asked for about them."""

    opened: Index
    tier: str | None
    document_encoder: str | None
    duplicates: Duplicates
    notes: SourceNotes
    ready: ImportedVectors | None = None
    size: int | None = None
    overlap: int | None = None
    questions: QuestionFile | None = None

    def run(self, documents: Iterator[Document], json: bool) -> None:
        """Add them, and say what was done."""
        choice = self.opened.choose_encoder(tier=self.tier, document_encoder=self.document_encoder)
        report = self._store(documents, choice.encoder, 0)
        _tell(self.opened, report, self.notes, choice.said, json)

    def mirror(
        self, documents: Iterator[Document], again: Callable[[], Iterator[Document]] | None, json: bool, prune: bool
    ) -> None:
        """Bring the index up to date; a large collection, where it can be read again, by two tiers in turn."""
        if self.ready is not None:
            with closing(self.ready):
                report = self._store(documents, None, 0, mirror=True, prune=prune)
            _tell(self.opened, report, self.notes, f"vectors come from {self.ready.file}", json)
            return
        choice = self.opened.choose_encoder(tier=self.tier, document_encoder=self.document_encoder, remember=True)
        tiers, total = self._plan(choice.name, again()) if again else ([choice.name], 0)
        report = self._by(tiers[0], choice, documents, total, prune)
        for tier in tiers[1:]:
            where = self.opened.engine.address
            say(f"{where}: can be searched now; from here on `{tier}` encodes it again; `suwen worker {where}` goes on")
            assert again is not None
            report = report.and_then(self._by(tier, choice, again(), total, prune))
            # Half of what the files hold is hidden now.
            self.opened.engine.compact()
        _tell(self.opened, report, self.notes, choice.said, json)
        if self.questions is not None:
            self._tell_of_questions(self.questions)

    def _tell_of_questions(self, questions: QuestionFile) -> None:
        """What of the file was of no use, so that nobody thinks it is in the index."""
        with closing(questions):
            if unused := questions.unused():
                say(f"{questions.file}: {plural(unused, 'line')} of documents that are not in these sources")
            if outdated := questions.outdated():
                left = f"{plural(outdated, 'line')} left out"
                say(f"{questions.file}: {left}, of passages that are cut otherwise or have changed since")

    def _by(self, tier: str, choice: Choice, documents: Iterator[Document], total: int, prune: bool) -> IngestReport:
        encoder = choice.encoder if tier == choice.name else self.opened.choose_encoder(tier=tier).encoder
        return self._store(documents, encoder, total, mirror=True, prune=prune)

    def _plan(self, name: str, documents: Iterator[Document]) -> tuple[list[str], int]:
        """Who encodes, one after the other, and how many documents there are (0: nobody knows)."""
        from suwen.retrieve.foresight import NOTABLE, foresee, in_turn

        engine, pair = self.opened.engine, self.opened.pair
        tiers = [tier for tier in dict.fromkeys([name, pair.fastest]) if tier in pair.tiers]
        try:
            with measuring("reading"):
                seen = foresee(engine, pair, documents, tiers, self.size)
        except SuwenError:
            # Told where it belongs, when what comes before it is stored.
            return [name], 0
        turns = [name] if self.tier else in_turn(engine, pair, name, seen)
        if len(turns) == 2:
            # Left to the pair: what is there of the first is not what the index was built with.
            engine.remember(tier="")
        if seen.seconds.get(name, 0.0) > NOTABLE and name != pair.fastest:
            own, fast = (about(seen.seconds[tier]) for tier in (name, pair.fastest))
            faster = f"`{pair.fastest}` comes first" if len(turns) == 2 else f"`--tier {pair.fastest}`"
            say(f"about {own} with `{name}`, for some {plural(seen.passages, 'passage')}; {faster}, about {fast}")
        return turns, seen.documents

    def _store(
        self,
        documents: Iterator[Document],
        encoder: Encoder | None,
        total: int,
        mirror: bool = False,
        prune: bool = False,
    ) -> IngestReport:
        with counting("indexing", total) as progress:
            return self.opened.add(
                documents,
                mirror=mirror,
                prune=prune,
                unread=self.notes.unread,
                encoder=encoder,
                ready=self.ready,
                questions=self.questions,
                size=self.size,
                overlap=self.overlap,
                duplicates=self.duplicates,
                keep=self.tier is None,
                progress=progress,
            )


def _tell(opened: Index, report: IngestReport, notes: SourceNotes, said: str, json: bool) -> None:
    about = {**asdict(report), **notes.counts(), "note": said, "space": opened.pair.space.id, "pair": opened.pair.name}
    again = f"{report.reencoded} encoded again, " if report.reencoded else ""
    counts = f"{report.added} added, {report.changed} changed, {again}{report.unchanged} unchanged"
    asked = f" and {plural(report.questions, 'question')}" if report.questions else ""
    texts = plural(report.encoded, "text" if asked else "passage")
    spent = f"{plural(report.passages, 'passage')}{asked} stored, {texts}" if asked else texts
    spent += f" encoded in {report.seconds:.1f} s"
    counts += f", {report.removed} removed"
    counts += f", {report.unread} kept of what could not be read this time" if report.unread else ""
    show(about, f"{opened.engine.address}: {counts}; {spent}", json=json)
    notes.tell()
    if not json:
        say(said)
