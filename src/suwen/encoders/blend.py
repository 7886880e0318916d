"""A tier that adds other tiers' vectors to its own. Which tiers, and how much of each, the manifest says."""

from __future__ import annotations

from collections.abc import Sequence

from suwen.encoders.prompts import Form
from suwen.encoders.query import Encoder, Vectors
from suwen.encoders.space import Manifest
from suwen.encoders.static import unit


class BlendedEncoder(Encoder):
    """The weighted mean of encoders of one space, scaled to length one.

    Query encoders of one space err partly independently of one another, so their mean is nearer to it than either is.

    Args:
        own: The tier's own encoder: its name, and its count of tokens, are those of the blend.
        others: The encoders blended in, each with its share; what they leave, less than 1 in all, is the tier's own.
        documents: Whether documents are blended too, and not queries alone.
    """

    def __init__(self, own: Encoder, others: Sequence[tuple[Encoder, float]], *, documents: bool = True) -> None:
        self.name, self.dimension = own.name, own.dimension
        self._own, self._others, self._documents = own, tuple(others), documents
        self._rest = 1.0 - sum(share for _, share in others)

    def encode(self, texts: Sequence[str], *, form: Form = "document", instruction: str | None = None) -> Vectors:
        """Encode texts in the form of documents or of queries."""
        if form == "document" and not self._documents:
            return self._own.encode(texts, form=form, instruction=instruction)
        # A network drives all else out of the processor's caches: what is cut into the same tokens comes before it.
        added = [share * encoder.encode(texts, form=form, instruction=instruction) for encoder, share in self._others]
        mixed = self._rest * self._own.encode(texts, form=form, instruction=instruction)
        for other in added:
            mixed += other
        return unit(mixed)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has for the tier itself, neither cut nor with special tokens."""
        return self._own.count_tokens(texts)


def made_of(manifest: Manifest, tier: str) -> dict[str, str]:
    """The hashes of all that a tier's vectors depend on: of its own files, and of those of the tiers it blends in.

    What stores vectors keeps this beside them, to know when they are out of date: a blend changes no file of the tier,
    so its share stands in the keys.
    """
    word = "blend" if manifest.tiers[tier].blend_documents else "blend-of-queries"
    others = {
        f"{word}/{other}:{share}/{file}": sha256
        for other, share in manifest.tiers[tier].blend.items()
        for file, sha256 in manifest.tiers[other].files.items()
    }
    return {**manifest.tiers[tier].files, **others}
