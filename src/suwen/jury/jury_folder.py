"""Where the files of one jury's work lie: a folder that can be copied, archived and resumed. Opens nothing."""

from __future__ import annotations

from pathlib import Path


class JuryFolder:
    """The files of one jury's work, by what they hold."""

    def __init__(self, root: Path) -> None:
        self.root = root
        #: The index of the collection, where none was given.
        self.index = root / "index"
        #: The pooled pairs, and the texts of their passages.
        self.pool, self.texts = root / "pool.jsonl", root / "texts.db"
        #: The cache of replies, with the ledger.
        self.replies = root / "replies.db"
        self.votes, self.verdicts = root / "votes.db", root / "verdicts.jsonl"
        #: The pages of the report and of an audit.
        self.report, self.audit = root / "report.html", root / "audit.html"
        #: The key of the sample for experts, and what they get: a CSV without the key.
        self.sample, self.sheet = root / "review" / "sample.jsonl", root / "review" / "sample.csv"
        #: What experts are told to go by, if not the package's own words.
        self.guidelines = root / "review" / "guidelines.md"
        #: The experts' labels.
        self.reviews = root / "review" / "reviews.db"
