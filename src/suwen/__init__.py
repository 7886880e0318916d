"""Medical text retrieval, Chinese first. ``suwen.open("my-index").search("…")`` is the whole of it for most users.

Importing this package loads no heavy module: the names below are found when they are first used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from suwen.encoders.pair import Pair
    from suwen.errors import SuwenError
    from suwen.retrieve.results import Hit, Results
    from suwen.retrieve.retriever import Index
    from suwen.service.remote_index import RemoteIndex
    from suwen.service.service_client import ServerAway, ServerError

__version__ = "0.2.0"
# onnxruntime 1.31 keeps a number for each user and what was run under ~/.cache/Microsoft and, some seconds after a
# model is loaded, looks for its makers' host. It looks here as it is imported; whoever wants that sets it to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__all__ = [
    "Hit",
    "Index",
    "Pair",
    "RemoteIndex",
    "Results",
    "ServerAway",
    "ServerError",
    "SuwenError",
    "__version__",
    "connect",
    "open",
]

_HOMES = {
    "Hit": "suwen.retrieve.results",
    "Index": "suwen.retrieve.retriever",
    "Pair": "suwen.encoders.pair",
    "RemoteIndex": "suwen.service.remote_index",
    "Results": "suwen.retrieve.results",
    "ServerAway": "suwen.service.service_client",
    "ServerError": "suwen.service.service_client",
    "SuwenError": "suwen.errors",
}


def open(path: str | Path, *, pair: str | Path | Pair | None = None, write: bool = False) -> Index:
    """Open an index.

    Args:
        path: Where the index is: the folder that ``suwen index`` made.
        pair: A pair or its folder. Without one: ``SUWEN_PAIR``, the pair the index was built with, the default pair.
        write: Whether documents will be added or deleted; only one process at a time may.

    Returns:
        The open index; use it with ``with``, or close it.
    """
    from suwen.retrieve.retriever import Index

    return Index.open(path, pair=pair, write=write)


def connect(url: str, *, key: str | None = None, index: str | None = None, timeout: float = 60.0) -> RemoteIndex:
    """An index on a server, with the verbs of :class:`Index`: ``search``, ``add``, ``delete``, ``document``, ``ids``.

    Args:
        url: The server's address, ``http://HOST:PORT``.
        key: A key that ``suwen key new`` made there, where it has keys.
        index: The name or alias of one of its indexes; the default one when not given.
        timeout: Seconds to wait for an answer.
    """
    from suwen.service.remote_index import RemoteIndex

    return RemoteIndex(url, key=key, index=index, timeout=timeout)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'suwen' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
