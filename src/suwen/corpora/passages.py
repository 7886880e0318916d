"""From a document to its passages. The cutting itself is in ``text.split``; this adds the title and the offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from suwen.corpora.records import Document, Passage
from suwen.text.split import SplitError, TokenCounter, passages


def split_document(document: Document, count: TokenCounter, size: int = 200, overlap: int = 40) -> list[Passage]:
    """Cut a document into passages of at most ``size`` tokens, title included; a short one is a single passage.

    Every passage carries the title, which takes at most half of ``size``: a longer one is cut, or there would be no
    room for what the passage says. ``document.text[passage.start:passage.end] == passage.text`` holds throughout.

    Args:
        document: what to cut; a document without visible text gives no passages.
        count: counts the tokens of each text of a batch, special tokens left out.
        size: the most tokens in a passage.
        overlap: the most tokens a passage repeats of the one before it.

    Raises:
        SplitError: ``size`` is below 2, or ``overlap`` is not between 0 and ``size - 1``.
    """
    if size < 2 or not 0 <= overlap < size:
        raise SplitError(f"size must be at least 2 and overlap from 0 to size - 1, not {size} and {overlap}")
    title, tokens = _fitting_title(document.title.strip(), count, size // 2)
    room = size - tokens
    spans = passages(document.text, room, min(overlap, room - 1), count=count)
    return [
        Passage(document.id, ordinal, document.text[start:end], start, end, title)
        for ordinal, (start, end) in enumerate(spans)
    ]


class PassageStream:
    """The passages of a source as ``(id, content)``, streamed, with their number known beforehand.

    The source is read twice: counting costs little beside encoding, and a job with a known end can say when it ends.

    Args:
        read: Opens the source again at every call.
        count: As for :func:`split_document`, and so are ``size`` and ``overlap``.
    """

    def __init__(
        self, read: Callable[[], Iterable[Document]], count: TokenCounter, size: int = 200, overlap: int = 40
    ) -> None:
        self._read, self._count, self._size, self._overlap = read, count, size, overlap
        self._length: int | None = None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for document in self._read():
            for passage in split_document(document, self._count, self._size, self._overlap):
                yield passage.id, passage.content

    def __len__(self) -> int:
        if self._length is None:
            self._length = sum(1 for _ in self)
        return self._length


def _fitting_title(title: str, count: TokenCounter, room: int) -> tuple[str, int]:
    """The title, or its beginning where it needs more than ``room`` tokens, and the tokens to reserve for it."""
    if not title:
        return "", 0
    tokens = count([title])[0]
    if tokens <= room:
        return title, tokens
    start, end = passages(title, room, 0, count=count)[0]
    return title[start:end], room
