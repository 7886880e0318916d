"""Where the bundled sample collection lies, and its passages. ``Collection.open`` reads it like any other."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from suwen.corpora.passages import split_document
from suwen.corpora.readers import read_documents
from suwen.corpora.records import Passage
from suwen.text.split import TokenCounter


def sample_path() -> Path:
    """Return the folder of the sample collection that comes with the package, in BEIR's layout."""
    return Path(str(files("suwen"))) / "sample"


def sample_passages(count: TokenCounter, size: int = 200, overlap: int = 40) -> list[Passage]:
    """The sample's passages, as indexing it cuts them; their ``content`` is what is encoded.

    Args:
        count: The token counter of the pair, as for :func:`~suwen.corpora.passages.split_document`.
        size: The most tokens in a passage.
        overlap: The most tokens a passage repeats of the one before it.
    """
    documents = read_documents(sample_path())
    return [passage for document in documents for passage in split_document(document, count, size, overlap)]
