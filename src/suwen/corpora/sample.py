"""Where the bundled sample collection lies. It is an ordinary collection: ``Collection.open`` reads it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def sample_path() -> Path:
    """Return the folder of the sample collection that comes with the package, in BEIR's layout."""
    return Path(str(files("suwen"))) / "sample"
