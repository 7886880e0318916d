"""The document encoder: a full pair's document side (or any sentence-transformers model) on torch.

Needs the ``train`` extra. Writing vectors to a folder, resumably, is in ``vector_folder.py``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from suwen.encoders import fused
from suwen.encoders.adapter import load_adapted
from suwen.encoders.base_model import NumberFormat, base_hash, torch_dtype
from suwen.encoders.cores import grouped
from suwen.encoders.halfway import Meeting
from suwen.encoders.probe import verify_probe
from suwen.encoders.prompts import Form
from suwen.encoders.query import Encoder, EncoderError, Vectors
from suwen.encoders.side import ModelError, Side, cast, load_model, mint_space
from suwen.encoders.space import (
    AdapterDocument,
    ElsewhereDocument,
    Manifest,
    Space,
    SpaceMismatch,
    TierDocument,
    load_manifest,
    manifest_path,
)

if TYPE_CHECKING:
    import torch

Progress = Callable[[int, int], None]
#: Tokens in a batch. Matrix products want many rows: with padding, more of them would be padding.
_PACKED_BUDGET, _PADDED_BUDGET = 32_768, 16_384
#: Texts tokenised in one go, while the slice before them is encoded.
_SLICE = 4096


class EncoderSettings(NamedTuple):
    """What loads the same encoder again, in another process."""

    path: str
    device: str | None
    dtype: NumberFormat
    trust_remote_code: bool
    compile: bool = False
    base: str | None = None
    #: The pair whose probe it has to pass, where that is not the adapter's own.
    probe: str | None = None


class DescribedEncoder(NamedTuple):
    """A document encoder that is loaded elsewhere: what it has to be, and what loads it."""

    space: Space
    name: str
    settings: EncoderSettings


class DocumentEncoder(Encoder):
    """Texts to vectors of a space, as its document encoder gives them. Made by :meth:`load`.

    Args:
        side: The modules documents pass.
        space: The contract; cut and normalisation follow it.
        name: The pair's name.
        settings: How it was loaded.
        meeting: The tier that its documents come half-way to, where the space says so.
    """

    def __init__(
        self, side: Side, space: Space, *, name: str, settings: EncoderSettings, meeting: Meeting | None = None
    ) -> None:
        if (space.halfway is None) != (meeting is None):
            raise ModelError(f"whether documents come half-way to a tier is for the space {space.id} to say")
        self.space, self.name, self.settings, self.meeting = space, name, settings, meeting
        self.dimension = space.dimension
        self._form: Form = "document"
        self._instruction: str | None = None
        self._token_budget: int | None = None
        self._side = side
        if space.end_token is not None:
            side.require_end_token(space.end_token)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str | None = None,
        dtype: NumberFormat = "auto",
        trust_remote_code: bool = False,
        compile: bool = False,
        base: str | Path | None = None,
        check: bool = True,
    ) -> DocumentEncoder:
        """Load the document side of a folder: a full pair, or any sentence-transformers model.

        Args:
            path: The folder, or a hub id. A folder without ``suwen.json`` gets the space its model fixes.
            device: ``cpu``, ``cuda``, ``cuda:1``…; a GPU where there is one by default.
            dtype: ``auto`` is bf16 on a GPU and fp32 on a CPU.
            trust_remote_code: Run Python code that comes with the model. Only for models you trust.
            compile: On a GPU, join and compile the layers of a Qwen decoder: about a minute, for encoding many texts
                faster. Other models, and CPUs, run as they are.
            base: Where the pair holds an adapter: the base it belongs on, as a GGUF file, a folder or a hub id; the
                environment variable ``SUWEN_BASE`` by default.
            check: Hold an adapter on its base against the pair's probe.

        Raises:
            ModelError: The folder does not hold the document encoder, or cannot be loaded.
            ProbeFailed: The base is not the one the adapter was trained on.
        """
        base = base or os.environ.get("SUWEN_BASE") or None
        settings = EncoderSettings(str(path), device, dtype, trust_remote_code, compile, str(base) if base else None)
        manifest = load_manifest(Path(path)) if manifest_path(Path(path)).is_file() else None
        adapted = manifest if base and manifest and isinstance(manifest.document, AdapterDocument) else None
        if adapted and base:
            root = manifest_path(Path(path)).parent
            model = load_adapted(root, adapted, base, device=device, dtype=dtype)
        else:
            folder = str(path) if manifest is None else str(_model_folder(Path(path), manifest))
            model, root = load_model(folder, device=device, trust_remote_code=trust_remote_code)
        hub_id = None if Path(path).is_dir() else str(path)
        space = manifest.space if manifest else mint_space(model.float(), root, hub_id=hub_id)
        name = manifest.name if manifest else (hub_id or root.name)
        cast(model, torch_dtype(dtype, model.device.type))
        meeting = Meeting.open(manifest_path(Path(path)).parent, manifest) if manifest else None
        encoder = cls(Side(model, "document"), space, name=name, settings=settings, meeting=meeting)
        if compile:
            encoder.compile()
        if adapted and base and check:
            _check_base(encoder, root, base)
        return encoder

    @classmethod
    def load_as(cls, settings: EncoderSettings, *, space: str, name: str) -> DocumentEncoder:
        """Load what settings say, and hold it against the space and the probe it was promised for.

        Args:
            settings: What to load, and how.
            space: The id of the space it must be of.
            name: Whose space that is, for the message.

        Raises:
            SpaceMismatch: It is of another space.
            ProbeFailed: It does not give the probe's vectors.
        """
        fixed = settings._asdict()
        probe = fixed.pop("probe")
        encoder = cls.load(fixed.pop("path"), **fixed, check=probe is None).of_space(space)
        encoder.settings = settings
        if encoder.space.id != space:
            raise SpaceMismatch(space, encoder.space.id, needed_name=name, got_name=encoder.name)
        if probe is not None:
            verify_probe(encoder, Path(probe))
        return encoder

    @classmethod
    def of_tier(cls, root: Path, manifest: Manifest, name: str, trust_remote_code: bool = False) -> DocumentEncoder:
        """A tier of kind ``torch``: the query side of the model in a pair's folder, by the tier's own contract."""
        tier, document = manifest.tiers[name], manifest.document
        model, _ = load_model(root / tier.path, trust_remote_code=trust_remote_code)
        cast(model, torch_dtype("auto", model.device.type))
        # Where there are two towers, the space's end token is the other one's.
        end_token = manifest.space.end_token if isinstance(document, TierDocument) else None
        theirs = {"prompts": tier.prompts, "max_length": tier.max_length, "end_token": end_token}
        contract = manifest.space.alone.model_copy(update=theirs)
        return cls(Side(model, "query"), contract, name=name, settings=EncoderSettings(str(root), None, "auto", False))

    def in_form(
        self, form: Form, *, instruction: str | None = None, token_budget: int | None = None
    ) -> DocumentEncoder:
        """The same encoder, whose :meth:`encode` takes another form and budget by default, under a name of its own."""
        other = copy(self)
        other._form, other._instruction, other._token_budget = form, instruction, token_budget
        # Vectors of another form are other vectors.
        other.name = f"{self.name} ({form} form{f', {instruction}' if instruction else ''})"
        return other

    @property
    def alone(self) -> DocumentEncoder:
        """The document encoder by itself, in a space of its own where its documents come half-way to a tier."""
        return self.of_space(self.space.alone.id)

    def of_space(self, space: str) -> DocumentEncoder:
        """The document encoder by itself, if its space is the one named; else this one."""
        if self.meeting is None or space != self.space.alone.id:
            return self
        other = copy(self)
        other.space, other.meeting = self.space.alone, None
        return other

    def compile(self, tokens: int = _PACKED_BUDGET) -> None:
        """On a GPU, join and compile the layers of a Qwen decoder, to encode many texts; other models stay as they are.

        Args:
            tokens: The budget of the batches to come: they are compiled for batches as full as that.
        """
        if self._side.packs and fused.supports(self._side.modules[0].model):
            self._side.fuse(tokens=tokens)

    def encode(
        self,
        texts: Sequence[str],
        *,
        token_budget: int | None = None,
        progress: Progress | None = None,
        form: Form | None = None,
        instruction: str | None = None,
    ) -> Vectors:
        """Encode texts, many at a time; a text's vector does not depend on its neighbours.

        Args:
            texts: The texts, without a prompt: the space's own is put before them.
            token_budget: The most tokens, padding included, in one batch (a longer single text still runs); by default
                32,768 where texts run without padding, and 16,384 elsewhere.
            progress: Called with the texts done and the texts in all, after each batch.
            form: ``query`` puts the space's query prompt before the text: what a query encoder is aligned to; the form
                of a document by default.
            instruction: What stands in its place in the query prompt; the default one by default.
        """
        import torch

        form = form or self._form
        come = self.meeting.begin(texts) if self.meeting is not None and form == "document" else None
        prompt = self.space.prompts.before(form, instruction or self._instruction)
        batches = self._batches([prompt + text for text in texts], token_budget or self._token_budget)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        done = 0
        with torch.inference_mode():
            for positions, batch in self._run(batches):
                vectors[positions] = batch
                done += len(positions)
                if progress is not None:
                    progress(done, len(texts))
        if not np.isfinite(vectors).all():
            raise EncoderError(f"{self.name} gave a vector that is not finite: load it with dtype='fp32' or 'bf16'")
        return vectors if come is None else come(vectors)

    def _rows(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Token ids. One slice of texts is tokenised in advance: the tokenizer lets go of the interpreter."""
        ids = partial(self._side.ids, max_length=self.space.max_length)
        coming: deque[Future[list[list[int]]]] = deque()
        with ThreadPoolExecutor(1) as thread:
            for start in range(0, len(texts), _SLICE):
                coming.append(thread.submit(ids, texts[start : start + _SLICE]))
                if len(coming) > 1:
                    yield from coming.popleft().result()
            while coming:
                yield from coming.popleft().result()

    def _batches(self, texts: Sequence[str], token_budget: int | None) -> Iterator[_Batch]:
        if not self._side.packs:
            return _padded_batches(list(self._rows(texts)), token_budget or _PADDED_BUDGET)
        compiled = self._side.fused.tokens if self._side.fused else None
        return _packed_batches(self._rows(texts), token_budget or compiled or _PACKED_BUDGET)

    def _run(self, batches: Iterable[_Batch]) -> Iterator[tuple[list[int], Vectors]]:
        """Vectors of batches, in order. A GPU is given the next two before its answer is waited for."""
        import torch

        waiting: deque[tuple[list[int], Callable[[], Vectors]]] = deque()
        for batch in batches:
            vectors = self._side.embed(batch.rows).float()[:, : self.dimension]
            if self.space.normalise:  # after the cut: a piece of a unit vector is not one
                vectors = torch.nn.functional.normalize(vectors, dim=-1)
            waiting.append((batch.positions, _to_host(vectors)))
            if len(waiting) > (2 if vectors.is_cuda else 0):
                positions, arrived = waiting.popleft()
                yield positions, arrived()
        yield from ((positions, arrived()) for positions, arrived in waiting)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each whole text has for this encoder, neither cut nor with special tokens."""
        tokenizer: Any = self._side.tokenizer
        if self._side.is_static:
            return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        return [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]]


class _Batch(NamedTuple):
    """Texts that run together: where they stand among all, and their token ids."""

    positions: list[int]
    rows: list[list[int]]


def _packed_batches(rows: Iterable[list[int]], token_budget: int) -> Iterator[_Batch]:
    """Texts in their order, as many as stay within the budget together."""
    for batch in grouped(enumerate(rows), lambda item: len(item[1]), token_budget):
        yield _Batch([position for position, _ in batch], [row for _, row in batch])


def _padded_batches(rows: Sequence[list[int]], token_budget: int) -> Iterator[_Batch]:
    """Texts of about one length, so that count x longest stays in the budget; longest first, so memory fails early."""
    batch: list[int] = []
    for position in sorted(range(len(rows)), key=lambda position: -len(rows[position])):
        if batch and (len(batch) + 1) * len(rows[batch[0]]) > token_budget:
            yield _Batch(batch, [rows[chosen] for chosen in batch])
            batch = []
        batch.append(position)
    if batch:
        yield _Batch(batch, [rows[chosen] for chosen in batch])


def _to_host(made: torch.Tensor) -> Callable[[], Vectors]:
    """Begin a copy to the host; the call waits for it."""
    import torch

    host = made.to("cpu", non_blocking=True)
    event: Any = torch.cuda.current_stream(made.device).record_event() if made.is_cuda else None

    def arrived() -> Vectors:
        if event is not None:
            event.synchronize()
        return np.asarray(host.numpy())

    return arrived


def _model_folder(path: Path, manifest: Manifest) -> Path:
    document, root = manifest.document, manifest_path(path).parent
    if isinstance(document, AdapterDocument):
        if (root / "merged").is_dir():
            return root / "merged"
        raise ModelError(
            f"{path} holds an adapter over {document.base}: name that base (--base or SUWEN_BASE; base= in Python), or "
            f"make the full pair first with `suwen assemble {path} --base PATH` and name it"
        )
    if isinstance(document, ElsewhereDocument):
        raise ModelError(f"{path} is a light pair; its document encoder is the full pair {document.name}: name that")
    if isinstance(document, TierDocument):
        if manifest.tiers[document.tier].kind == "torch":
            return root / manifest.tiers[document.tier].path
        raise ModelError(
            f"{path} is a light pair whose tier {document.tier!r} encodes its documents: use Pair.load and "
            f"encode_documents, or name the model it was exported from"
        )
    return root / document.path


def _check_base(encoder: DocumentEncoder, root: Path, base: str | Path) -> None:
    """The probe tells whether a base, in whatever form, is the right one; without a probe only its hash can."""
    if (root / "probe.json").is_file():
        verify_probe(encoder, root)
    elif (actual := base_hash(base)) != encoder.space.base.sha256:
        raise ModelError(
            f"{root} has no probe, and {base} (sha256 {actual[:12]}…) is not the file its space was minted with "
            f"({encoder.space.base.sha256[:12]}…): use that one, or restore probe.json and probe.npy"
        )
