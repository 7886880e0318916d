"""One index of a server with all that works on it: imports, workers, cursors, the background. Which one is asked."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from suwen.service.encode_turns import Encoding
from suwen.service.holder import Holder
from suwen.service.import_jobs import Imports
from suwen.service.leases import Leases
from suwen.service.reencoding import Reencoder
from suwen.service.search_cursors import Cursors
from suwen.service.soundness import Soundness


class ServedIndex:
    """An index and its staff. Made before the index is open, and gone with it.

    Args:
        holder: Opens and closes the index; begins and ends the rest.
    """

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.imports = Imports(holder)
        self.leases = Leases(holder.settings.lease_seconds)
        self.encoding = Encoding(holder)
        self.cursors = Cursors(holder.settings.cursors, holder.settings.cursor_seconds)
        self.background = Reencoder(holder)
        self.soundness = Soundness(holder)
        holder.on_open += [self.imports.start, self.background.start, self.soundness.start]
        holder.on_close += [self.imports.stop, self.background.stop, self.soundness.stop]
        holder.workers = self.workers

    def workers(self) -> dict[str, Any]:
        """Who encodes posted documents again, and how many of them are being worked on."""
        there = "in process" if self.background.works else "remote" if self.leases.asked_lately() else "none"
        return {"worker": there, "leased": self.leases.held()}


def served_of(request: Request) -> ServedIndex:
    """The index that a request was sent to: see :class:`suwen.service.request_intake.Intake`."""
    served = request.scope["suwen.served"]
    assert isinstance(served, ServedIndex)
    return served


def holder_of(request: Request) -> Holder:
    """The holder of that index."""
    return served_of(request).holder
