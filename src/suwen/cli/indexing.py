"""Verbs that put documents in and take them out: ``index``, ``add``, ``delete``, ``encode``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suwen.choices import OVERLAP, SIZE, Duplicates
from suwen.cli.options import (
    Base,
    DocumentEncoder,
    Dtype,
    Encoding,
    Format,
    IdField,
    IndexFolder,
    Json,
    Key,
    Ocr,
    OcrModel,
    PairFolder,
    SkipBad,
    Sources,
    TextField,
    TitleField,
)
from suwen.cli.output import about, counting, measuring, plural, say, show
from suwen.cli.page_reading import Scans, scan_reading
from suwen.cli.source_notes import SourceNotes, Unheard
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.corpora.records import Document
    from suwen.encoders.query import Encoder
    from suwen.encoders.who_encodes import Choice
    from suwen.retrieve.imported import ImportedVectors
    from suwen.retrieve.ingest import IngestReport
    from suwen.retrieve.retriever import Index

Size = Annotated[int | None, typer.Option("--size", help=f"Tokens of a passage [{SIZE}].")]
Overlap = Annotated[int | None, typer.Option("--overlap", help=f"Tokens that neighbouring passages share [{OVERLAP}].")]
Tier = Annotated[str | None, typer.Option("--tier", help="Encode documents with this tier of the pair.")]
VectorsFile = Annotated[Path | None, typer.Option("--vectors", help="Ready vectors (.npy) instead of encoding here.")]
IdsFile = Annotated[Path | None, typer.Option("--ids", help="The passage id of each row of --vectors.")]
SpaceId = Annotated[str | None, typer.Option("--space", help="The space of --vectors, if no vectors.json says it.")]
Repeated = Annotated[Duplicates, typer.Option("--duplicates", help="What to do with an id that comes twice.")]
Prune = Annotated[
    bool, typer.Option("--prune", help="Remove what is gone from the sources, also more than a fifth of the index.")
]
ServerInstead = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Go through the server that writes the index; then name no INDEX."),
]


def index(
    index: IndexFolder,
    sources: Sources,
    pair: PairFolder = None,
    tier: Tier = None,
    document_encoder: DocumentEncoder = None,
    vectors: VectorsFile = None,
    ids: IdsFile = None,
    space: SpaceId = None,
    size: Size = None,
    overlap: Overlap = None,
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
    encoding: Encoding = None,
    skip_bad: SkipBad = False,
    ocr: Ocr = True,
    ocr_model: OcrModel = None,
    duplicates: Repeated = "error",
    prune: Prune = False,
    json: Json = False,
) -> None:
    """Make an index of the sources, or bring it up to date with them.

    Run again on a changed source: only what changed is encoded, and what is gone is dropped; more than a fifth of the
    index only with `--prune`. Documents that came by `suwen add` stay. A `--tier` is remembered. Without one, a
    large collection is encoded by the fastest tier first, so that it can be searched soon, and then by the usual one.

    Example: `suwen index my-index articles.jsonl guidelines/ --size 200`
    """
    from suwen.retrieve.retriever import Index

    notes = SourceNotes(skip_bad)
    fields = (sources, format, id_field, text_field, title_field, encoding)
    # A pipe can be read once. Scanned pages are kept when they have been read, and cost nothing a second time.
    once = any(source.is_fifo() for source in sources)
    with ExitStack() as stack:
        scans = stack.enter_context(scan_reading(ocr, ocr_model))
        documents = _read(*fields, notes, scans)
        again = None if once else partial(_read, *fields, Unheard(skip_bad), scans)
        opened = stack.enter_context(Index.open_or_create(index, pair=pair))
        ready = _ready(opened, vectors, ids, space)
        taken = _Take(opened, tier, document_encoder, duplicates, notes, ready, size, overlap)
        taken.mirror(documents, again, json, prune)


def add(
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="INDEX SOURCES", help="The index folder, then files or folders as for `index`."),
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="One document's text, instead of files.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="The id of --text.")] = None,
    title: Annotated[str, typer.Option("--title", help="The title of --text.")] = "",
    pair: PairFolder = None,
    tier: Tier = None,
    document_encoder: DocumentEncoder = None,
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
    encoding: Encoding = None,
    skip_bad: SkipBad = False,
    ocr: Ocr = True,
    ocr_model: OcrModel = None,
    duplicates: Repeated = "error",
    server: ServerInstead = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Add documents to an index, or replace those with the same id; nothing is dropped.

    Example: `suwen add my-index --id note-7 --text "布洛芬不宜与阿司匹林同服"`, or `suwen add --server URL notes.jsonl`
    """
    from suwen.corpora.records import Document
    from suwen.retrieve.retriever import Index

    notes = SourceNotes(skip_bad)
    folder = [] if server else (places or [])[:1]
    sources = (places or [])[len(folder) :]
    if not (server or folder):
        raise SuwenError("nothing to add to: give the folder of an index, or --server")
    with scan_reading(ocr, ocr_model) as scans:
        if text is not None:
            if not id or not text.strip():
                raise SuwenError("--text needs some text and an --id")
            documents: Iterator[Document] = iter([Document(id, text, title)])
        elif sources:
            documents = _read(sources, format, id_field, text_field, title_field, encoding, notes, scans)
        else:
            raise SuwenError("nothing to add: give files, or --text with --id")
        if server:
            if pair or tier or document_encoder:
                raise SuwenError("--pair, --tier and --document-encoder are the server's own choice: leave them out")
            _post(server, key, documents, duplicates, json)
            return
        with Index.open(folder[0], pair=pair, write=True) as opened:
            _Take(opened, tier, document_encoder, duplicates, notes).run(documents, json)


def delete(
    places: Annotated[list[str], typer.Argument(metavar="INDEX IDS", help="The index folder, then document ids.")],
    server: ServerInstead = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Delete documents by id.

    Example: `suwen delete my-index note-7`, or `suwen delete --server URL note-7`
    """
    if server is not None:
        from suwen.service.service_client import Client, delete_documents

        removed, ids, missing = delete_documents(Client(server, key), places), places, None
    else:
        from suwen.index.opening import open_engine

        index, *ids = places
        if not ids:
            raise SuwenError(f"nothing to delete: give the ids of documents after {index}")
        # By the engine alone: a document can be deleted where its pair is not at hand.
        with closing(open_engine(index, write=True)) as engine:
            known = engine.known(ids)
            removed, missing = engine.delete(ids), [id_ for id_ in ids if id_ not in known]
    said = f"deleted {removed} of {plural(len(ids), 'document')}" + (
        f"; not there: {', '.join(missing)}" if missing else ""
    )
    show({"deleted": removed, **({} if missing is None else {"missing": missing})}, said, json=json)


def _post(server: str, key: str | None, documents: Iterator[Document], duplicates: Duplicates, json: bool) -> None:
    from suwen.service.adding_client import add_documents
    from suwen.service.service_client import Client

    with counting("sending") as progress:
        counts = add_documents(Client(server, key), documents, duplicates, progress)
    said = "{added} added, {changed} changed, {unchanged} unchanged; {passages} passages stored".format(**counts)
    show({**counts, "server": server}, f"{server}: {said}", json=json)


def encode(
    sources: Sources,
    to: Annotated[Path, typer.Option("--out", help="The folder for vectors.npy, ids.txt and vectors.json.")],
    document_encoder: DocumentEncoder = None,
    pair: PairFolder = None,
    base: Base = None,
    size: Size = None,
    overlap: Overlap = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes (one per GPU).")] = 1,
    shard_size: Annotated[int, typer.Option("--shard-size", min=1, help="Passages per resumable shard.")] = 10_000,
    dtype: Dtype = "auto",
    format: Format = None,
    id_field: IdField = None,
    text_field: TextField = None,
    title_field: TitleField = None,
    encoding: Encoding = None,
    skip_bad: SkipBad = False,
    ocr: Ocr = True,
    ocr_model: OcrModel = None,
    json: Json = False,
) -> None:
    """Encode documents on a GPU machine, for `suwen index --vectors` where it is served (needs suwen[train]).

    Interrupt it and run it again: finished shards are kept. `--pair` is the pair that will serve: its tokenizer counts
    the passages' tokens, and its own document encoder is used where none is named (an adapter needs its `--base`).

    Example: `suwen encode articles.jsonl --base base.gguf --out vectors/`
    """
    from suwen.corpora.passages import PassageStream
    from suwen.encoders.pair import Pair
    from suwen.encoders.vector_folder import encode_to_folder
    from suwen.encoders.who_encodes import load_document_encoder

    serving, notes = Pair.load(pair), SourceNotes(skip_bad)
    encoder = load_document_encoder(serving, document_encoder, base=base, dtype=dtype)
    with scan_reading(ocr, ocr_model) as scans, measuring("encoding") as progress:
        passages = PassageStream(
            lambda: _read(sources, format, id_field, text_field, title_field, encoding, notes, scans),
            serving.count_tokens,
            size or SIZE,
            OVERLAP if overlap is None else overlap,
        )
        folder = encode_to_folder(passages, encoder, to, shard_size=shard_size, workers=workers, progress=progress)
    space = encoder.space.id
    show({"out": str(folder), "space": space}, f"vectors of space {space} are in {folder}", json=json)


def _read(
    sources: list[Path],
    format: str | None,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    encoding: str | None,
    notes: SourceNotes | Unheard,
    scans: Scans,
) -> Iterator[Document]:
    from suwen.corpora.readers import read_documents

    # All are opened before the first is read: a wrong path is reported before anything is made or changed.
    opened = [
        read_documents(
            source,
            format=format,
            id_field=id_field,
            text_field=text_field,
            title_field=title_field,
            encoding=encoding,
            on_skip=notes.record if notes.skip_bad else None,
            on_left_out=notes.files,
            on_encoding=notes.encoding,
            on_page=notes.page,
            on_read=notes.read,
            ocr=scans.ocr,
            pictures=scans.pictures,
        )
        for source in sources
    ]
    return chain.from_iterable(opened)


def _ready(opened: Index, vectors: Path | None, ids: Path | None, space: str | None) -> ImportedVectors | None:
    if vectors is None:
        return None
    if ids is None:
        raise SuwenError("--vectors needs --ids: the file with the passage id of each row")
    from suwen.retrieve.imported import ImportedVectors

    return ImportedVectors(vectors, ids, opened.pair, space)


@dataclass
class _Take:
    """Documents on their way into an index, and what was asked for about them."""

    opened: Index
    tier: str | None
    document_encoder: str | None
    duplicates: Duplicates
    notes: SourceNotes
    ready: ImportedVectors | None = None
    size: int | None = None
    overlap: int | None = None

    def run(self, documents: Iterator[Document], json: bool) -> None:
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
            say(f"{self.opened.engine.address}: can be searched now; from here on `{tier}` encodes it again")
            assert again is not None
            report = report.and_then(self._by(tier, choice, again(), total, prune))
            # Half of what the files hold is hidden now.
            self.opened.engine.compact()
        _tell(self.opened, report, self.notes, choice.said, json)

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
        prune: bool = True,
    ) -> IngestReport:
        with counting("indexing", total) as progress:
            return self.opened.add(
                documents,
                mirror=mirror,
                prune=prune,
                encoder=encoder,
                ready=self.ready,
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
    spent = f"{plural(report.encoded, 'passage')} encoded in {report.seconds:.1f} s"
    show(about, f"{opened.engine.address}: {counts}, {report.removed} removed; {spent}", json=json)
    notes.tell()
    if not json:
        say(said)


VERBS = (index, add, delete, encode)
