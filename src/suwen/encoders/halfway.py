"""Documents that come half-way to a tier: how their vectors are made, and how a pair gets a space of such documents.

A light query encoder errs along the directions in which documents differ; its own vector of a document errs alike. So a
share of that vector, added to the document encoder's, brings the document nearer to the queries that ask for it, at no
cost when a query comes. What is added is part of the space, and the space's id says so. Nothing here loads torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from suwen.durable import replacing
from suwen.encoders.cores import in_bulk
from suwen.encoders.pair import Pair
from suwen.encoders.probe import MET, read_probe
from suwen.encoders.query import Encoder, Vectors
from suwen.encoders.space import Halfway, Manifest, ManifestError, load_manifest, save_manifest, tier_sha256
from suwen.encoders.static import unit


class Meeting:
    """What a tier adds to the document encoder's vectors. Made by :meth:`open`.

    Args:
        tier: Encodes the same texts as documents, cut to its own length.
        share: What its vectors are multiplied by.
    """

    def __init__(self, tier: Encoder, share: float) -> None:
        self.tier, self.share = tier, share
        self._thread = ThreadPoolExecutor(1, "suwen-halfway")

    @classmethod
    def open(cls, root: Path, manifest: Manifest) -> Meeting | None:
        """The meeting that a pair's space asks for, with the tier in its folder; None where it asks for none."""
        if (asked := manifest.space.halfway) is None:
            return None
        return cls(in_bulk(Pair(root, manifest), asked.tier), asked.share)

    def begin(self, texts: Sequence[str]) -> Callable[[Vectors], Vectors]:
        """Let the tier begin on texts, beside whoever encodes them; the call takes the others' vectors, and waits."""
        coming = self._thread.submit(self.tier.encode_documents, texts)
        return lambda own: self.met(own, coming.result())

    def met(self, own: Vectors, theirs: Vectors) -> Vectors:
        """Vectors of documents, come half-way."""
        return unit(own + np.float32(self.share) * theirs)


def come_halfway(manifest: Manifest, tier: str, share: float) -> Manifest:
    """The manifest of the same pair whose documents come half-way to one of its tiers: another space.

    Raises:
        ManifestError: There is no such tier, or the space has no place for it.
    """
    if tier not in manifest.tiers:
        known = ", ".join(manifest.tiers) or "none"
        raise ManifestError(f"{manifest.name} has no tier {tier!r} for documents to come half-way to: it has {known}")
    try:
        return _in_space(manifest, Halfway(tier=tier, share=share, sha256=tier_sha256(manifest.tiers, tier)))
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ManifestError(f"documents of {manifest.name} cannot come half-way to {tier!r}: {why}") from error


def stand_alone(manifest: Manifest) -> Manifest:
    """The manifest of the same pair whose documents come to nobody; as it is, where they do not."""
    return manifest if manifest.space.halfway is None else _in_space(manifest, None)


def _in_space(manifest: Manifest, meeting: Halfway | None) -> Manifest:
    space = manifest.space.meeting(meeting)
    tiers = {name: tier.model_dump() | {"aligned_to": space.id} for name, tier in manifest.tiers.items()}
    return Manifest.model_validate({**manifest.model_dump(), "space": space.model_dump(), "tiers": tiers})


def set_halfway(folder: Path, tier: str, share: float) -> Manifest:
    """Make the documents of the pair in a folder come half-way to one of its tiers; writes its probe too.

    No document encoder runs: the probe holds its vectors. What was indexed or encoded before is of another space.

    Raises:
        ManifestError: There is no such tier, or the space has no place for it.
        DamagedPair: The pair has no probe, or a file of the tier is not what the manifest names.
    """
    manifest = come_halfway(load_manifest(folder), tier, share)
    texts, own = read_probe(folder)
    meeting = Meeting.open(folder, manifest)
    assert meeting is not None
    met = meeting.begin(texts)(own)
    with replacing(folder / MET) as stream:
        np.save(stream, met.astype(np.float16))
    # Last: a folder whose manifest asks for the meeting has its probe.
    save_manifest(folder, manifest)
    return manifest
