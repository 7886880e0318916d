"""Who reads scans for a command: the models in this process's own children, or a vision model that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.corpora.book_pages import PictureReader


class Scans(NamedTuple):
    """Whether scans are read, and by whom if not here."""

    ocr: bool
    pictures: PictureReader | None = None


@contextmanager
def scan_reading(ocr: bool, model: str | None) -> Iterator[Scans]:
    """Who reads scans; where no model is named, nothing leaves this machine.

    What a model has read is kept beside the pages that were read here: no page is paid for twice.
    """
    if model is None:
        yield Scans(ocr)
        return
    if not ocr:
        raise SuwenError("--ocr-model reads scans and --no-ocr leaves them out: give one of them")
    from suwen.corpora.page_cache import cache_folder
    from suwen.llm.client import LLM
    from suwen.llm.config import load_config
    from suwen.llm.page_reading import picture_reader

    replies = cache_folder() / "pages" / "replies.db"
    replies.parent.mkdir(parents=True, exist_ok=True)
    with LLM.open(load_config(), replies) as llm:
        yield Scans(ocr, picture_reader(llm, model))
