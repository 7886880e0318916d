"""Who reads scans for a command: the models in this process's own children, or a vision model that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from suwen.cli.output import say
from suwen.errors import SuwenError

if TYPE_CHECKING:
    from suwen.corpora.book_pages import PictureReader


class Scans(NamedTuple):
    """Whether scans are read, and by whom if not here."""

    ocr: bool
    pictures: PictureReader | None = None


@contextmanager
def scan_reading(ocr: bool, model: str | None, *, config: Path | None = None, dry_run: bool = False) -> Iterator[Scans]:
    """Who reads scans; where no model is named, nothing leaves this machine.

    What a model has read is kept beside the pages that were read here: no page is paid for twice. A dry run
    sends none, and leaves scans out. ``config`` is the configuration, where it is not the usual one.
    """
    if model is None:
        yield Scans(ocr)
        return
    if not ocr:
        raise SuwenError("--ocr-model reads scans and --no-ocr leaves them out: give one of them")
    if dry_run:
        say(f"a dry run sends no scans to {model}: they are left out, and what would be asked about them comes on top")
        yield Scans(False)
        return
    from suwen.corpora.page_cache import cache_folder
    from suwen.llm.client import LLM
    from suwen.llm.config import load_config
    from suwen.llm.page_reading import picture_reader

    replies = cache_folder() / "pages" / "replies.db"
    replies.parent.mkdir(parents=True, exist_ok=True)
    with LLM.open(load_config(config), replies) as llm:
        yield Scans(ocr, picture_reader(llm, model))
