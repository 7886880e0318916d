"""The files of a pair: their hashes, and whether they are the ones the manifest names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from suwen.encoders.space import DamagedPair, Manifest


def verify_files(path: Path, manifest: Manifest, *, tiers: Iterable[str] | None = None, contents: bool = True) -> None:
    """Check that each file of the tiers is there and is the one the manifest names.

    Args:
        path: The model folder.
        manifest: Its manifest.
        tiers: Only these tiers; all of them by default.
        contents: Hash the files too; otherwise only their presence is checked.

    Raises:
        DamagedPair: A file is missing or differs; the message says which.
    """
    for name in manifest.tiers if tiers is None else tiers:
        tier = manifest.tiers[name]
        for file_name, expected in tier.files.items():
            file = Path(path) / tier.path / file_name
            if not file.is_file():
                raise DamagedPair(f"{file} is missing (tier {name!r} of {manifest.name}): copy the pair again")
            if contents and (actual := sha256_of(file)) != expected:
                raise DamagedPair(
                    f"{file} is damaged (tier {name!r} of {manifest.name}): its sha256 is {actual[:12]}…, the manifest "
                    f"says {expected[:12]}…; copy the pair again"
                )


_hashes: dict[tuple[str, int, int], str] = {}


def sha256_of(file: Path) -> str:
    """The sha256 of a file; remembered in this process by path, time and size."""
    status = file.stat()
    key = (str(file.resolve()), status.st_mtime_ns, status.st_size)
    if key not in _hashes:
        with file.open("rb") as stream:
            _hashes[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _hashes[key]


def sha256_of_files(folder: Path, names: Iterable[str]) -> str:
    """One hash over several files of a folder: of their names and contents, whatever order they come in."""
    lines = [f"{name}\0{sha256_of(folder / name)}\n" for name in sorted(names)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
