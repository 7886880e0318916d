"""Addresses of indexes: a folder's path, or that of a server. Opens nothing: that is :mod:`suwen.index.opening`."""

from __future__ import annotations

import re
from pathlib import Path

Address = str | Path


def is_remote(address: Address) -> bool:
    """Whether an address is that of a server, not of a folder."""
    return "://" in whole(address)


def name_of(address: Address) -> str:
    """The name of an index: that of its folder, or the one it has in its database."""
    if not is_remote(address):
        return Path(address).resolve().name
    named = re.search(r"[?&]index=([^&]+)", whole(address))
    return named[1] if named else "suwen"


def shown(address: Address) -> str:
    """An address as it may be told and logged: without its password."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1@", whole(address))


def whole(address: Address) -> str:
    """An address as it was typed: as a path it has lost one of two slashes, also in the address of a searcher."""
    return re.sub(r"(^postgres|^postgresql|=https?):/(?!/)", r"\1://", str(address))
