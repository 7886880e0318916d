"""A pair on disk: where it is found, what it holds, and its encoders; only a tier of kind ``torch`` knows torch."""

from __future__ import annotations

import importlib.resources
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from suwen.encoders.blend import BlendedEncoder
from suwen.encoders.pair_files import verify_files
from suwen.encoders.query import Encoder, EncoderError, OnnxEncoder
from suwen.encoders.space import AdapterDocument, Manifest, ManifestError, Space, load_manifest, manifest_path
from suwen.encoders.static import StaticEncoder

__all__ = ["Encoder", "Pair", "default_pair_path", "pair_folder"]


def default_pair_path() -> Path:
    """The folder of the pair that comes inside the installed package."""
    return Path(str(importlib.resources.files("suwen"))) / "models" / "default"


def pair_folder(named: str) -> Path:
    """The folder of a pair by what a recipe calls it: a path, or ``default``."""
    return default_pair_path() if named == "default" else Pair.load(named).path


class Pair:
    """A model folder with a manifest. Cheap to open: a tier is read when its encoder is first asked for.

    Args:
        path: The model folder.
        manifest: Its manifest.
        verify: Check a tier's files against their hashes before they are loaded.
    """

    def __init__(self, path: Path, manifest: Manifest, *, verify: bool = True) -> None:
        self.path, self.manifest = path, manifest
        self._verify = verify
        self._encoders: dict[tuple[str, int | None], Encoder] = {}
        self._lock = threading.Lock()

    @classmethod
    def load(cls, path: str | Path | None = None, *, verify: bool = True) -> Pair:
        """Open a pair: the one named, else the one in ``SUWEN_PAIR``, else the one in the package.

        Raises:
            ManifestError: There is no pair there, or its manifest is wrong.
            DamagedPair: A file of it is missing.
        """
        folder, why = _find(path)
        if not manifest_path(folder).is_file():
            raise ManifestError(
                f"there is no pair at {folder} ({why}): it has no suwen.json. Name one with --pair or SUWEN_PAIR, "
                f"or make one with `suwen export`"
            )
        folder = manifest_path(folder).parent
        manifest = load_manifest(folder)
        if verify:
            verify_files(folder, manifest, contents=False)
        return cls(folder, manifest, verify=verify)

    @property
    def name(self) -> str:
        """The pair's name."""
        return self.manifest.name

    @property
    def space(self) -> Space:
        """The space every encoder of this pair lives in."""
        return self.manifest.space

    def of_space(self, space: str) -> Pair:
        """The same encoders in the document encoder's space by itself, if that is the one named; else this pair.

        What was indexed before documents came half-way to a tier is in that space, and stays there.
        """
        if self.space.halfway is None or space != self.space.alone.id:
            return self
        from suwen.encoders.halfway import stand_alone

        return Pair(self.path, stand_alone(self.manifest), verify=self._verify)

    @property
    def tiers(self) -> list[str]:
        """The names of the query encoders, as the manifest lists them."""
        return list(self.manifest.tiers)

    @property
    def default_tier(self) -> str:
        """The tier used where none is named."""
        if self.manifest.default_tier is None:
            what, full = "is a full pair", self.path
            first = ""
            if isinstance(self.manifest.document, AdapterDocument):
                what, full = f"holds an adapter over {self.manifest.document.base}", Path("FULL")
                first = f"put it together with that base (`suwen assemble {self.path} --base PATH --out FULL`), then "
            raise EncoderError(
                f"{self.path} {what}, without a tier to serve: {first}make the light one (`suwen export {full} LIGHT`)"
            )
        return self.manifest.default_tier

    @property
    def fastest(self) -> str:
        """The tier with the least work per text: a static one, else the one with the fewest layers."""

        def work(name: str) -> tuple[bool, int, bool]:
            tier = self.manifest.tiers[name]
            # A table alone: a static tier that blends a graph in is as slow as the graph.
            static = tier.kind == "static" and all(self.manifest.tiers[it].kind == "static" for it in tier.blend)
            return not static, tier.layers or 1_000, tier.precision != "int8"

        return min(self.tiers, key=work) if self.tiers else self.default_tier

    def encoder(self, tier: str | None = None, *, threads: int | None = 1) -> Encoder:
        """The encoder of a tier, loaded once and shared; it may be used from several threads.

        Args:
            tier: The tier's name; the default tier when none is given.
            threads: Threads within one run of an ONNX tier; ``None`` leaves it to onnxruntime.

        Raises:
            EncoderError: There is no such tier.
            DamagedPair: A file of the tier is missing or damaged.
        """
        name = self.default_tier if tier is None else tier
        self.need_tier(name)
        with self._lock:
            return self._shared(name, threads)

    def need_tier(self, name: str) -> None:
        """Raise :class:`EncoderError` where there is no tier of this name."""
        if name not in self.manifest.tiers:
            known = ", ".join(self.tiers) or "none"
            raise EncoderError(f"pair {self.name} has no tier {name!r}: choose one of {known}")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has for the default tier, neither cut nor with special tokens."""
        return self.encoder().count_tokens(texts)

    def _shared(self, name: str, threads: int | None) -> Encoder:
        """The encoder of a tier that is there; the lock is held."""
        key = (name, threads)
        if key not in self._encoders:
            own = self._open(name, threads)
            # A tier that is blended in does not blend itself, so this ends after one step.
            tier = self.manifest.tiers[name]
            others = [(self._shared(it, threads), share) for it, share in tier.blend.items()]
            self._encoders[key] = BlendedEncoder(own, others, documents=tier.blend_documents) if others else own
        return self._encoders[key]

    def _open(self, name: str, threads: int | None) -> Encoder:
        if self._verify:
            verify_files(self.path, self.manifest, tiers=[name])
        tier = self.manifest.tiers[name]
        folder = self.path / tier.path
        if tier.kind == "static":
            return StaticEncoder(
                folder, tier, name=name, dimension=self.space.dimension, normalise=self.space.normalise
            )
        if tier.kind == "torch":
            from suwen.encoders.document import DocumentEncoder

            return DocumentEncoder.of_tier(self.path, self.manifest, name)
        return OnnxEncoder(folder, tier, name=name, dimension=self.space.dimension, threads=threads)


def _find(path: str | Path | None) -> tuple[Path, str]:
    if path is not None:
        return Path(path), "the path given"
    if named := os.environ.get("SUWEN_PAIR"):
        return Path(named), "from SUWEN_PAIR"
    return default_pair_path(), "the pair of the package; this installation has none"
