"""Plain text and Markdown files as documents, one file each. Tables and JSON are in ``tabular``."""

from __future__ import annotations

import os
from pathlib import Path

from suwen.corpora.books import id_of, kind_of, readable_books
from suwen.corpora.files import BadRecord, CorpusError, read_text
from suwen.corpora.marked_up import heading_of
from suwen.corpora.records import Document
from suwen.text.clean import clean


def text_files(folder: Path) -> list[Path]:
    """List the texts and books of a folder and the folders in it, hidden ones left out, in the order of their paths."""
    readable = ("text", *readable_books())
    # A pipe would be waited for, and a name that is neither file nor broken link is no document.
    return [path for path in files_under(folder) if kind_of(path) in readable and (path.is_file() or not path.exists())]


def files_under(folder: Path) -> list[Path]:
    """List the files of a folder and the folders in it, hidden ones left out, in the order of their paths.

    A folder that cannot be looked into, or that is a link, which may lead anywhere, is listed itself, so that it is not
    taken for an empty one.
    """
    files: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=lambda problem: files.append(Path(problem.filename))):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files.extend(path for path in map(Path(parent).joinpath, folders) if path.is_symlink())
        files.extend(Path(parent, name) for name in names if not name.startswith("."))
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def read_text_document(path: Path, root: Path, encoding: str = "utf-8") -> Document:
    """Read one text file: its id is its path from ``root``, its title its first heading or else its name.

    Raises:
        BadRecord: the file cannot be read as text, or holds none.
    """
    try:
        text = clean(read_text(path, encoding))
    except CorpusError as error:
        raise BadRecord(str(error)) from error
    if not text:
        raise BadRecord(f"{path}: the file holds no text; remove it, or skip bad records")
    identifier = id_of(path, root)
    title = (heading_of(text) if path.suffix.lower() != ".txt" else "") or clean(path.stem)
    return Document(identifier, text, title, {"path": identifier})
