"""Verbs that put documents in and take them out: ``index``, ``add``, ``delete``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suwen.choices import OVERLAP, SIZE, Duplicates
from suwen.cli.options import (
    DocumentEncoder,
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
from suwen.cli.output import counting, plural, show
from suwen.cli.page_reading import Scans, scan_reading
from suwen.cli.source_notes import SourceNotes, Unheard
from suwen.cli.taking import Take
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.corpora.records import Document
    from suwen.retrieve.imported import ImportedVectors
    from suwen.retrieve.questions import QuestionFile
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
QuestionsFile = Annotated[
    Path | None,
    typer.Option("--questions", help="Questions of passages, as `curate synthesise --questions` writes them."),
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
    questions: QuestionsFile = None,
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
    Passages are found by their `--questions` too; without the option they keep those they have.

    Example: `suwen index my-index articles.jsonl guidelines/ --size 200`
    """
    notes = SourceNotes(skip_bad)
    fields = (sources, format, id_field, text_field, title_field, encoding)
    # A pipe can be read once. Scanned pages are kept when they have been read, and cost nothing a second time.
    once = any(source.is_fifo() for source in sources)
    asked = _asked(questions, vectors)
    with ExitStack() as stack:
        scans = stack.enter_context(scan_reading(ocr, ocr_model))
        documents = read_sources(*fields, notes, scans)
        again = None if once else partial(read_sources, *fields, Unheard(skip_bad, notes.unread), scans)
        opened = stack.enter_context(_open_or_create(index, pair))
        ready = _ready(opened, vectors, ids, space)
        taken = Take(opened, tier, document_encoder, duplicates, notes, ready, size, overlap, asked)
        taken.mirror(documents, again, json, prune)


@contextmanager
def _open_or_create(index: Path, pair: Path | None) -> Iterator[Index]:
    """The index; a folder that was made for it goes again where the command fails before anything is stored."""
    from suwen.index.address import is_remote
    from suwen.retrieve.retriever import Index

    made, useless = not is_remote(index) and not index.exists(), False
    try:
        with Index.open_or_create(index, pair=pair) as opened:
            try:
                yield opened
            except SuwenError:
                useless = made and not opened.engine.ids(limit=1)
                raise
    finally:
        if useless:
            shutil.rmtree(index)


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
    _one_of_both(text, id, title, sources)
    with scan_reading(ocr, ocr_model) as scans:
        if text is not None and id:
            documents: Iterator[Document] = iter([Document(id, text, title)])
        elif sources:
            documents = read_sources(sources, format, id_field, text_field, title_field, encoding, notes, scans)
        else:
            raise SuwenError("nothing to add: give files, or --text with --id")
        if server:
            if pair or tier or document_encoder:
                raise SuwenError("--pair, --tier and --document-encoder are the server's own choice: leave them out")
            _post(server, key, documents, duplicates, json)
            return
        with Index.open(folder[0], pair=pair, write=True) as opened:
            Take(opened, tier, document_encoder, duplicates, notes).run(documents, json)


def _one_of_both(text: str | None, id: str | None, title: str, sources: list[Path]) -> None:
    """Refuse what would be left unread without a word."""
    if text is None and (id or title):
        raise SuwenError("--id and --title are those of one document, whose text is --text; files have their own")
    if text is not None and sources:
        raise SuwenError(f"give --text or files, not both: {sources[0]} would not be read; add it by a second command")
    if text is not None and not (id and text.strip()):
        raise SuwenError("--text needs some text and an --id")


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
    said = "{added} added, {changed} changed, {unchanged} unchanged".format(**counts)
    show({**counts, "server": server}, f"{server}: {said}; {plural(counts['passages'], 'passage')} stored", json=json)


def read_sources(
    sources: list[Path],
    format: str | None,
    id_field: str | None,
    text_field: str | None,
    title_field: str | None,
    encoding: str | None,
    notes: SourceNotes | Unheard,
    scans: Scans,
) -> Iterator[Document]:
    """The documents of the sources, one after the other, with what the options say about them."""
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
            on_unread=notes.unread.add,
            ocr=scans.ocr,
            pictures=scans.pictures,
        )
        for source in sources
    ]
    return chain.from_iterable(opened)


def _ready(opened: Index, vectors: Path | None, ids: Path | None, space: str | None) -> ImportedVectors | None:
    if vectors is None:
        if ids is not None or space is not None:
            raise SuwenError("--ids and --space say what --vectors are: name them too, or leave these out")
        return None
    if ids is None:
        raise SuwenError("--vectors needs --ids: the file with the passage id of each row")
    from suwen.retrieve.imported import ImportedVectors

    return ImportedVectors(vectors, ids, opened.pair, space)


def _asked(questions: Path | None, vectors: Path | None) -> QuestionFile | None:
    """Read before anything is made or changed."""
    if questions is None:
        return None
    if vectors is not None:
        raise SuwenError("--questions are encoded here: leave --vectors out, and name a --document-encoder or --tier")
    from suwen.retrieve.questions import QuestionFile

    return QuestionFile(questions)


VERBS = (index, add, delete)
