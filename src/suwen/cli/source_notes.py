"""What a command tells of its sources: what it left out, and what it took for another encoding. Decides nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from suwen.cli.output import aside, now_and_then, plural, say, so_far

#: So many are named to people; a program gets all.
_NAMED = 5
_TEXT_INSIDE = {".doc", ".ppt", ".pptx", ".xls", ".xlsx", ".rtf"}
#: What is read as records, and left out where a folder is read as texts alone.
_TABLES = {".jsonl", ".json", ".csv", ".tsv", ".parquet"}
_LINKED = "linked folder"


class _Pages:
    """Pages of books as they are read: beside the bar, or in a log once a minute."""

    def __init__(self, unread: set[str] | None = None) -> None:
        self._tell = now_and_then()
        #: What the ids of files begin with that were not read, or not all of them.
        self.unread = set() if unread is None else unread

    def read(self, path: Path, page: int, total: int) -> None:
        """A page that is done, of so many; nothing is said of files without pages."""
        if total > 1:
            text = so_far(f"reading {path.name}: page", page, total)
            aside(text)
            self._tell(text)


class SourceNotes(_Pages):
    """Files and records that are not taken in, and files that are not UTF-8.

    Args:
        skip_bad: Whether bad records are left out instead of stopping the command.
    """

    def __init__(self, skip_bad: bool) -> None:
        super().__init__()
        self.skip_bad = skip_bad
        self.records = 0
        self._files: list[Path] = []
        self._encodings: dict[Path, str] = {}
        self._pages: dict[tuple[Path, int], str] = {}

    def record(self, why: str) -> None:
        """One bad record, and what is wrong with it."""
        self.records += 1
        say(f"left out: {why}")

    def files(self, paths: list[Path]) -> None:
        """Files of a folder that are no documents; of a source that is read again they are said once."""
        new = [path for path in paths if path not in self._files]
        if not new:
            return
        self._files += new
        endings = Counter(map(_kind, new))
        kinds = ", ".join(f"{count:,} {ending}" for ending, count in endings.most_common())
        remedy = "; PDF needs pip install 'suwen[files]'" if ".pdf" in endings else ""
        remedy += "; to have them searched, save their text as .txt or .md" if _TEXT_INSIDE & set(endings) else ""
        remedy += "; name a linked folder itself to have it read" if _LINKED in endings else ""
        if tables := sorted(_TABLES & set(endings)):
            remedy += f"; {' and '.join(tables)} files hold records: give them by themselves, or without --format text"
        why = "are not read as text" if tables else "cannot be read"
        say(f"left out {plural(len(new), 'file')} that {why} here ({kinds}): {_names(new)}{remedy}")

    def encoding(self, path: Path, name: str) -> None:
        """A file that is read as something else than UTF-8."""
        self._encodings[path] = name

    def page(self, path: Path, number: int, why: str) -> None:
        """A page of a book that is left out; of a book that is read again it is said once."""
        from suwen.corpora.books import place_of

        if (path, number) not in self._pages:
            self._pages[path, number] = why
            say(f"left out: {path}: {place_of(path, number)}{why if number else why.removeprefix(f'{path}: ')}")

    def tell(self) -> None:
        """Say at the end what adds up only then."""
        for name in sorted(set(self._encodings.values())):
            paths = [path for path, found in self._encodings.items() if found == name]
            say(f"{plural(len(paths), 'file')} read as {name}: {_names(paths)} (--encoding names another)")
        if self.records:
            say(f"{plural(self.records, 'bad record')} left out")
        # Page 0 stands for a whole file, or for the rest of one.
        files = sum(not page for _, page in self._pages)
        pages = len(self._pages) - files
        if self._pages:
            parts = [plural(pages, "page")] * bool(pages) + [plural(files, "file")] * bool(files)
            say(f"{' and '.join(parts)} left out; the reasons are above")

    def counts(self) -> dict[str, Any]:
        """For programs."""
        return {
            "left_out": {
                "files": [str(path) for path in self._files],
                "records": self.records,
                "pages": [{"path": str(path), "page": page, "why": why} for (path, page), why in self._pages.items()],
            },
            "encodings": {str(path): name for path, name in self._encodings.items()},
        }


class Unheard(_Pages):
    """What a reading has to say that another reading of the same sources will say again; how far it is, it says."""

    def __init__(self, skip_bad: bool, unread: set[str]) -> None:
        super().__init__(unread)
        self.skip_bad = skip_bad

    def record(self, *_: object) -> None:
        """A bad record."""

    def files(self, *_: object) -> None:
        """Files left out."""

    def encoding(self, *_: object) -> None:
        """A file's encoding."""

    def page(self, *_: object) -> None:
        """A page that could not be read."""


def _kind(path: Path) -> str:
    if path.is_dir():
        return _LINKED if path.is_symlink() else "folder"
    return path.suffix.lower() or "no ending"


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
