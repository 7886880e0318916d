"""Where the files of one jury's work lie: a folder that can be copied, archived and resumed. Opens nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """The files of one jury's work, by what they hold."""

    root: Path

    @property
    def index(self) -> Path:
        """The index of the collection, where none was given."""
        return self.root / "index"

    @property
    def pool(self) -> Path:
        """The pooled pairs."""
        return self.root / "pool.jsonl"

    @property
    def texts(self) -> Path:
        """The texts of the pooled passages."""
        return self.root / "texts.db"

    @property
    def replies(self) -> Path:
        """The cache of replies, with the ledger."""
        return self.root / "replies.db"

    @property
    def votes(self) -> Path:
        """The votes."""
        return self.root / "votes.db"

    @property
    def verdicts(self) -> Path:
        """The verdicts."""
        return self.root / "verdicts.jsonl"

    @property
    def report(self) -> Path:
        """The page of the report."""
        return self.root / "report.html"

    @property
    def audit(self) -> Path:
        """The page of an audit."""
        return self.root / "audit.html"

    @property
    def sample(self) -> Path:
        """The key of the sample for experts."""
        return self.root / "review" / "sample.jsonl"

    @property
    def sheet(self) -> Path:
        """The blind CSV for experts."""
        return self.root / "review" / "sample.csv"

    @property
    def reviews(self) -> Path:
        """The experts' labels."""
        return self.root / "review" / "reviews.db"
