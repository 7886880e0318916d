"""Files that are on the disk whole or not at all, a power cut included. What is in them is the caller's business."""

from __future__ import annotations

import os
from pathlib import Path

from suwen.durable import write_bytes


def write_whole(file: Path, data: bytes) -> None:
    """Replace a file in one go."""
    write_bytes(file, data)


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Put a folder and all that is in it on the disk."""
    for entry in folder.rglob("*"):
        sync(entry)
    sync(folder)
