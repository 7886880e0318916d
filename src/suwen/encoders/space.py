"""The contract of a model folder: the space, its tiers and the manifest ``suwen.json``. No model is loaded here."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from suwen.durable import write_json
from suwen.encoders.prompts import Prompts
from suwen.errors import SuwenError

MANIFEST = "suwen.json"
FORMAT = 1


class ManifestError(SuwenError):
    """A model folder whose ``suwen.json`` is missing, malformed or contradicts itself."""


class DamagedPair(SuwenError):
    """A file of a pair is missing, or is not the file its manifest names."""


class SpaceMismatch(SuwenError):
    """Two things of different spaces were about to be compared.

    Args:
        needed: The id of the space the index (or the vectors) was built in.
        got: The id of the space the encoder belongs to.
        needed_name: The name of the pair the index was built with, where it is known.
        got_name: The name of the pair the encoder comes from, where it is known.
    """

    def __init__(self, needed: str, got: str, *, needed_name: str | None = None, got_name: str | None = None) -> None:
        self.needed, self.got = needed, got
        super().__init__(
            f"the index is in space {_called(needed, needed_name)} but the encoder belongs to "
            f"{_called(got, got_name)}: their vectors cannot be compared. Use the pair of the index's space (--pair or "
            f"SUWEN_PAIR), or encode its documents again with this one: `suwen index NEW-FOLDER SOURCES`."
        )


def _called(space_id: str, name: str | None) -> str:
    return f"{space_id} ({name})" if name else space_id


def _stays_inside(value: str) -> str:
    """Refuse a path that could leave the model folder: a manifest may come from anyone."""
    parts = PurePosixPath(value).parts
    if (
        not value
        or "\\" in value
        or "\0" in value
        or value.startswith("/")
        or ".." in parts
        or re.match("[A-Za-z]:", value)
    ):
        raise ValueError(f"{value!r} must be a relative path inside the model folder, with no '..'")
    return value


Inside = Annotated[str, AfterValidator(_stays_inside)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
TierName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]{0,63}$")]
Weight = Annotated[float, Field(gt=0, lt=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Base(_Frozen):
    """The weights of the document encoder. The hub id is where to find them; the hash is what they are."""

    hub_id: str | None = None
    sha256: Sha256


class Adapter(_Frozen):
    """The adapter trained on top of the base."""

    sha256: Sha256


class Halfway(_Frozen):
    """Documents come half-way to a tier, so that its queries find them better.

    A document's vector is the document encoder's plus ``share`` times the tier's own of the same text, of length one
    again. Queries are left as they are.
    """

    tier: TierName
    share: Annotated[float, Field(gt=0, le=1)]
    sha256: Annotated[Sha256, Field(description="of what fixes the tier's vectors of documents")]


class Space(_Frozen):
    """An embedding space, as its document encoder fixes it. Made by :meth:`mint`; equal contents, equal id."""

    id: Annotated[str, Field(pattern="^sp-[0-9a-f]{20}$")]
    base: Base
    adapter: Adapter | None = None
    prompts: Prompts = Prompts()
    pooling: Literal["cls", "mean", "last"]
    end_token: str | None = None
    max_length: Annotated[int, Field(ge=1)]
    dimension: Annotated[int, Field(ge=1)]
    full_dimension: Annotated[int, Field(ge=1, description="width before the Matryoshka cut")]
    normalise: bool = True
    similarity: Literal["cosine", "dot"] = "cosine"
    halfway: Halfway | None = None

    @classmethod
    def mint(cls, **fields: Any) -> Self:
        """Make a space of its fields (all but ``id``) and compute the id.

        Raises:
            ManifestError: A field is missing or malformed.
        """
        try:
            draft = _SpaceDraft.model_validate({**fields, "id": "sp-" + "0" * 20})
            return cls.model_validate({**draft.model_dump(), "id": draft.fingerprint()})
        except ValidationError as error:
            raise ManifestError(f"a space cannot be minted: {_first(error)}") from error

    @property
    def alone(self) -> Space:
        """The space of the document encoder by itself; this one, where documents do not come half-way to a tier."""
        return self if self.halfway is None else self.meeting(None)

    def meeting(self, halfway: Halfway | None) -> Space:
        """The space of the same document encoder whose documents come half-way to a tier, or to none."""
        return Space.mint(**self.model_dump(exclude={"id", "halfway"}), halfway=halfway)

    @model_serializer(mode="wrap")
    def _without_a_meeting_that_is_not_there(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # As of prompts: the ids of all spaces before there was such a thing stay, and older versions read them.
        written: dict[str, Any] = handler(self)
        if self.halfway is None:
            written.pop("halfway", None)
        return written

    def fingerprint(self) -> str:
        """The id these contents deserve: a hash of canonical JSON of everything but the id and the hub id."""
        fixed = self.model_dump(mode="json", exclude={"id": True, "base": {"hub_id"}})
        canonical = json.dumps(fixed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sp-" + hashlib.sha256(canonical.encode()).hexdigest()[:20]

    @model_validator(mode="after")
    def _id_matches(self) -> Self:
        if self.dimension > self.full_dimension:
            raise ValueError(f"dimension {self.dimension} is wider than full_dimension {self.full_dimension}")
        if self.halfway is not None and not self.normalise:
            raise ValueError("documents cannot come half-way in a space whose vectors keep lengths of their own")
        if type(self) is Space and self.id != self.fingerprint():
            raise ValueError(
                f"id {self.id} does not match the contents (they hash to {self.fingerprint()}): "
                f"the manifest was edited after the space was minted; restore it or export the model again"
            )
        return self


class _SpaceDraft(Space):
    """A space before its id is known."""


class Tier(_Frozen):
    """One query encoder aligned to the space: a folder of files without torch, or, as ``torch``, the model itself."""

    kind: Literal["onnx", "static", "torch"]
    path: Inside
    files: dict[Inside, Sha256]
    prompts: Prompts = Prompts()
    max_length: Annotated[int, Field(ge=1)]
    precision: Literal["int8", "fp32"]
    layers: int | None = None
    width: int | None = None
    aligned_to: str
    parity: dict[str, float] = {}
    blend: Annotated[
        dict[TierName, Weight],
        Field(description="the shares of other tiers' vectors in this tier's; the rest is its own"),
    ] = {}
    blend_documents: Annotated[bool, Field(description="false: its queries alone are blended")] = True

    @model_serializer(mode="wrap")
    def _without_an_empty_blend(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Older versions refuse keys they do not know: a pair that does not blend stays readable to them.
        written: dict[str, Any] = handler(self)
        if not self.blend:
            written.pop("blend", None)
        if self.blend_documents:
            written.pop("blend_documents", None)
        return written

    @model_validator(mode="after")
    def _keeps_a_share(self) -> Self:
        if (given := sum(self.blend.values())) >= 1:
            raise ValueError(
                f"blend gives {given:g} to other tiers and leaves nothing to this one: lower the weights to less than "
                f"1 in all"
            )
        return self

    @model_validator(mode="after")
    def _has_its_files(self) -> Self:
        needed = {"static": {"tokenizer.json", "embeddings.npy", "scales.npy"}, "onnx": {"tokenizer.json"}}
        if missing := sorted(needed.get(self.kind, set()) - set(self.files)):
            raise ValueError(f"files lacks {', '.join(missing)}, which a tier of kind {self.kind!r} needs")
        if self.kind == "onnx" and sum(name.endswith(".onnx") for name in self.files) != 1:
            raise ValueError("files must name exactly one .onnx file")
        return self


class ModelDocument(_Frozen):
    """Documents are encoded by a sentence-transformers model inside the folder ('.' is the folder itself)."""

    kind: Literal["router", "sentence-transformers"]
    path: Inside


class AdapterDocument(_Frozen):
    """Documents are encoded by an adapter in the folder over a base from elsewhere: assemble the full pair first."""

    kind: Literal["adapter"]
    base: str
    path: Inside


class TierDocument(_Frozen):
    """Documents are encoded by one of the tiers: the model is its own document encoder."""

    kind: Literal["tier"]
    tier: TierName


class ElsewhereDocument(_Frozen):
    """Documents are encoded by a full pair that is not in the folder; ``name`` says which."""

    kind: Literal["elsewhere"]
    name: str


DocumentSide = Annotated[
    ModelDocument | AdapterDocument | TierDocument | ElsewhereDocument, Field(discriminator="kind")
]


class Manifest(_Frozen):
    """The whole of ``suwen.json``."""

    format: Literal[1] = 1
    name: Annotated[str, Field(min_length=1)]
    form: Literal["light", "full"]
    space: Space
    tiers: dict[TierName, Tier] = {}
    default_tier: TierName | None = None
    document: DocumentSide
    notes: str = ""
    licence: str = ""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        known = ", ".join(self.tiers) or "none"
        if self.space.similarity == "cosine" and not self.space.normalise:
            raise ValueError("the space compares by cosine what it does not normalise: mint it with similarity dot")
        if self.form == "light" and self.default_tier is None:
            raise ValueError("a light pair needs a default_tier")
        if self.default_tier is not None and self.default_tier not in self.tiers:
            raise ValueError(f"default_tier {self.default_tier!r} is not among the tiers ({known})")
        if isinstance(self.document, TierDocument) and self.document.tier not in self.tiers:
            raise ValueError(f"document names the tier {self.document.tier!r}, which is not among the tiers ({known})")
        for name, tier in self.tiers.items():
            if tier.aligned_to != self.space.id:
                raise ValueError(
                    f"tier {name!r} is aligned to {tier.aligned_to}, not to this pair's space {self.space.id}: "
                    f"align it again to this space's vectors, or remove it"
                )
        return self

    @model_validator(mode="after")
    def _blends_of_tiers_that_do_not(self) -> Self:
        for name, tier in self.tiers.items():
            for other in tier.blend:
                if other == name:
                    raise ValueError(f"tier {name!r} blends in itself: remove it, what the weights leave is its own")
                if other not in self.tiers:
                    raise ValueError(
                        f"tier {name!r} blends in {other!r}, which is not among the tiers ({', '.join(self.tiers)}): "
                        f"name one of them, or remove it from the blend"
                    )
                if self.tiers[other].blend:
                    raise ValueError(
                        f"tier {name!r} blends in {other!r}, which blends others in: name the tiers it is made of"
                    )
            if tier.blend and not self.space.normalise:
                raise ValueError(f"tier {name!r} blends, but vectors of this space have no common length: remove blend")
            if tier.blend and isinstance(self.document, TierDocument) and self.document.tier == name:
                raise ValueError(
                    f"tier {name!r} blends, but it encodes the documents and so fixes the space: remove its blend"
                )
        return self

    @model_validator(mode="after")
    def _meets_a_tier_of_its_own(self) -> Self:
        meeting = self.space.halfway
        if meeting is None:
            return self
        if isinstance(self.document, TierDocument):
            raise ValueError("a tier encodes the documents: there is nobody to come half-way to it; remove halfway")
        if meeting.tier not in self.tiers:
            raise ValueError(
                f"documents come half-way to the tier {meeting.tier!r}, which is not among the tiers "
                f"({', '.join(self.tiers) or 'none'}): put it back, it fixes the space"
            )
        if meeting.sha256 != tier_sha256(self.tiers, meeting.tier):
            raise ValueError(
                f"documents come half-way to the tier {meeting.tier!r} as it was, and it has other files, another "
                f"blend, prompt or length now: put it back, or export the pair again, which makes another space"
            )
        return self


def tier_sha256(tiers: Mapping[str, Tier], name: str) -> str:
    """One hash of what fixes a tier's vectors of documents: files, prompts and lengths, of it and of what it blends."""
    blend = tiers[name].blend if tiers[name].blend_documents else {}
    parts = [(0.0, tiers[name]), *((share, tiers[other]) for other, share in sorted(blend.items()))]
    fixed = [(share, it.kind, sorted(it.files.items()), it.prompts.document, it.max_length) for share, it in parts]
    return hashlib.sha256(json.dumps(fixed, ensure_ascii=False).encode()).hexdigest()


def manifest_path(path: Path) -> Path:
    """``suwen.json`` of a model folder; the file itself may be given too."""
    return path if path.name == MANIFEST and not path.is_dir() else path / MANIFEST


def load_manifest(path: Path) -> Manifest:
    """Read and check the manifest of a model folder.

    Raises:
        ManifestError: With the file, the key at fault and what to do.
    """
    file = manifest_path(Path(path))
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ManifestError(
            f"{file} does not exist: name a folder made by `suwen export` (or train), or write one with it"
        ) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ManifestError(f"{file} cannot be read as JSON ({error}): copy it again from its source") from error
    form = raw.get("format") if isinstance(raw, dict) else None
    if isinstance(form, int) and form > FORMAT:
        raise ManifestError(
            f"{file} has format {form}, newer than {FORMAT}, the newest this suwen reads: upgrade suwen"
        )
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        raise ManifestError(f"{file}: {_first(error)}. Correct that key, or export the model again") from error


def save_manifest(path: Path, manifest: Manifest) -> Path:
    """Write ``suwen.json`` into a folder whole or not at all; returns the file."""
    file = manifest_path(Path(path))
    write_json(file, manifest.model_dump(mode="json"))
    return file


def schema_text() -> str:
    """The JSON Schema of ``suwen.json``, as ``suwen.schema.json`` beside this module holds it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema()}
    return json.dumps(schema, ensure_ascii=False, indent=2) + "\n"


def _first(error: ValidationError) -> str:
    """The first problem pydantic found, as ``key: what is wrong`` (and how many more there are)."""
    problems = error.errors()
    key = ".".join(str(part) for part in problems[0]["loc"]) or "the manifest"
    message = problems[0]["msg"].removeprefix("Value error, ")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"key `{key}`: {message}{more}"
