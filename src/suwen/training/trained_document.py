"""The document encoder while it is trained: a decoder with LoRA on it, its towers, and how it is found again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from suwen.encoders.adapter import (
    Factors,
    adapter_of,
    apply_lora,
    load_lora,
    read_factors,
    save_adapter,
    transformer_of,
)
from suwen.encoders.base_model import base_hash, load_base, round_base, torch_dtype
from suwen.encoders.document import DocumentEncoder, EncoderSettings
from suwen.encoders.pair import pair_folder
from suwen.encoders.query import Vectors
from suwen.encoders.side import Side
from suwen.training.development_measure import measure
from suwen.training.loop.batches import tokenise
from suwen.training.loop.run_folder import RunFolder
from suwen.training.recipe.key_groups import Training
from suwen.training.run_context import RunContext
from suwen.training.ship.freezing import ADAPTER, mint_adapted
from suwen.training.tasks.merged_lora import MergedLora
from suwen.training.tasks.row_tables import DataError, PairTable, put
from suwen.training.tasks.towers import TrainedTower, recompute_layers

if TYPE_CHECKING:
    from suwen.training.stages.document import DocumentStage


@dataclass
class TrainedDocument:
    """A decoder with an adapter that learns. Made by :meth:`create` or :meth:`load`.

    Attributes:
        model: The ``SentenceTransformer``.
        stage: The document stage it began as: base, lengths, prompts, widths.
        dimension: Where its vectors are cut.
        merged: The adapter, where it is merged into the weights once a step; None where it stays apart, in the model.
        cache: Where token ids are kept.
    """

    model: Any
    stage: DocumentStage
    dimension: int
    merged: MergedLora | None
    cache: Path

    @property
    def trained(self) -> torch.nn.Module:
        """What has the trainable matrices."""
        module: torch.nn.Module = self.model if self.merged is None else self.merged
        return module

    @classmethod
    def create(cls, context: RunContext, stage: DocumentStage) -> TrainedDocument:
        """Load the base, and put a fresh adapter on it (the same seed, the same adapter) or that of its ``start``."""
        if stage.pair is not None:
            model, source = _base(context, stage), pair_folder(stage.pair)
            scale = stage.lora.alpha / stage.lora.rank
            load_lora(model, adapter_of(source), dropout=stage.lora.dropout, scale=scale)
            return cls._of(context, model, stage)
        if stage.start is not None:
            # From the folder, and not what may be in memory: a resumed run has that alone, and is to give the same.
            context.loaded.pop(f"document:{stage.start}", None)
            model, scale = _base(context, stage), stage.lora.alpha / stage.lora.rank
            load_lora(model, context.model_of(stage.start) / ADAPTER, dropout=stage.lora.dropout, scale=scale)
            return cls._of(context, model, stage)
        model = _base(context, stage)
        torch.manual_seed(context.seed_of(stage))
        apply_lora(
            model,
            rank=stage.lora.rank,
            alpha=stage.lora.alpha,
            dropout=stage.lora.dropout,
            modules=stage.lora.modules,
        )
        return cls._of(context, model, stage)

    @classmethod
    def _of(cls, context: RunContext, model: Any, stage: DocumentStage) -> TrainedDocument:
        # Adapters learn in fp32 over a base of any precision: bf16 loses updates smaller than 1/256 of a weight.
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        # Merged matrices are twice as fast, where the adapter need not stay apart.
        merged = None if stage.apart else MergedLora(model)
        if merged is not None:
            merged.settle()
        return cls(model, stage, context.recipe.dimension_of(stage.name), merged, context.common / "tokens")

    @classmethod
    def load(cls, context: RunContext, name: str) -> TrainedDocument:
        """The document encoder a stage has left, ready to be trained on."""
        kept: TrainedDocument | None = context.loaded.pop(f"document:{name}", None)
        if kept is not None:
            return kept
        stage = first_stage(context, name)
        model = _base(context, stage)
        load_lora(model, document_folder(context, name) / ADAPTER, dropout=stage.lora.dropout, trainable=True)
        return cls._of(context, model, stage)

    @classmethod
    def beside(cls, context: RunContext, name: str) -> TrainedDocument:
        """The document encoder a stage has left, to be measured: the adapter beside the base as it is served."""
        stage = first_stage(context, name)
        model = _base(context, stage.model_copy(update={"base_bits": None}))
        load_lora(model, document_folder(context, name) / ADAPTER, trainable=False)
        return cls(model, stage, context.recipe.dimension_of(name), None, context.common / "tokens")

    def put(self, factors: Mapping[str, Factors]) -> None:
        """Change the adapter that is beside the base for another one of the same ranks."""
        root = transformer_of(self.model)
        with torch.no_grad():
            for name, (down, up) in factors.items():
                layer = root.get_submodule(name)
                layer.lora_A["default"].weight.copy_(down)
                layer.lora_B["default"].weight.copy_(up)

    def towers(self, table: PairTable, training: Training, *, cut: bool = False) -> tuple[TrainedTower, TrainedTower]:
        """The encoder over a table's queries, and over its documents; at full width, or cut to the space's."""
        prompts, length = self.stage.prompts.filled, self.stage.max_length
        recompute_layers(self.model, training.gradient_checkpointing)
        side = Side(self.model, "document")
        options: dict[str, Any] = {
            "precision": training.precision,
            "token_budget": training.token_budget,
            "rows_budget": training.chunk,
            "dimension": self.dimension if cut else None,
            "normalise": self.stage.similarity == "cosine",
        }
        asked, given = (
            put(table.queries, "query", table.instructions, prompts),
            put(table.documents, "document", table.document_instructions, prompts),
        )
        queries = tokenise(side, asked, prompt="", max_length=self.stage.query_length or length, cache=self.cache)
        documents = tokenise(side, given, prompt="", max_length=length, cache=self.cache)
        return TrainedTower(side, queries, **options), TrainedTower(side, documents, **options)

    def save(self, folder: Path) -> None:
        """Write the adapter (16 bits); the base stays where it is."""
        folder.mkdir(parents=True, exist_ok=True)
        save_adapter(self.factors(), folder / ADAPTER, bits=16, base=self.stage.hub_id or str(self.stage.base))

    def factors(self) -> dict[str, Factors]:
        """The adapter's matrices by module name."""
        return read_factors(self.model) if self.merged is None else self.merged.factors()

    def base_alone(self) -> Any | None:
        """The base as it is loaded to encode with; None where that takes loading it again.

        The adapter is no longer in it, so this object is of no use any more.
        """
        precision = next(self.model.parameters()).dtype
        if self.merged is None or precision != torch_dtype("auto", self.model.device.type):
            return None
        recompute_layers(self.model, False)
        self.merged.restore()
        return self.model.eval()

    def encoder(self, folder: Path) -> DocumentEncoder:
        """As an encoder of the space it fixes at this moment; ``folder`` holds the adapter that was saved of it."""
        self.model.eval()
        if self.merged is not None:
            self.merged.settle()
        side, stage = Side(self.model, "document"), self.stage
        prompts, digest = stage.prompts.filled, base_hash(stage.base)
        space = mint_adapted(side, folder / ADAPTER, digest, stage.hub_id, self.dimension, prompts, stage.max_length)
        settings = EncoderSettings(str(folder), str(side.device), "auto", False)
        return DocumentEncoder(side, space, name=folder.parent.name, settings=settings)

    def measure(
        self, context: RunContext, encode_queries: Callable[[Sequence[str]], Vectors] | None, folder: Path
    ) -> dict[str, float]:
        """nDCG@10 of some queries, or of its own, over documents as this encoder sees them now."""
        if not context.measures:
            return {}
        encoder, budget = self.encoder(folder), 65_536 if context.device.startswith("cuda") else 4_096
        return measure(
            context.measures,
            encode_queries or (lambda texts: encoder.encode(texts, form="query", token_budget=budget)),
            lambda task: encoder.encode(task.data.documents, token_budget=budget),
        )

    def leave(self, context: RunContext, folder: RunFolder) -> dict[str, float]:
        """Save it, measure it on both sides, and keep it in memory for the next stage."""
        metrics = folder.leave(self.save, lambda: self.measure(context, None, folder.model))
        context.loaded[f"document:{folder.path.name}"] = self
        return metrics


def document_encoder(context: RunContext, name: str) -> DocumentEncoder:
    """The encoder a stage has left: of the frozen space, or of a document encoder that may still move."""
    kept: DocumentEncoder | None = context.loaded.get(f"encoder:{name}")
    if kept is not None:
        return kept
    stage = context.recipe.stage(name)
    if "student" in stage.gives and stage.encoder_from is None:
        # A student on both sides fixes a space by itself.
        encoder = DocumentEncoder.load(context.model_of(name), device=context.device)
    elif "space" in stage.gives:
        # A space that was taken from a pair names its base itself.
        base = getattr(stage, "base", None) or first_stage(context, name).base
        encoder = DocumentEncoder.load(context.model_of(name), base=str(base), device=context.device)
    else:
        encoder = TrainedDocument.load(context, name).encoder(document_folder(context, name))
    context.loaded[f"encoder:{name}"] = encoder
    return encoder


def first_stage(context: RunContext, name: str) -> DocumentStage:
    """The document stage that a document encoder goes back to."""
    stage = context.recipe.stage(name)
    if "decoder" not in stage.gives:
        if stage.encoder_from is None:
            raise DataError(f"stage {name!r} holds no document encoder: name a document, joint or freeze stage")
        stage = first_stage(context, stage.encoder_from)
    first: DocumentStage = stage
    return first


def document_folder(context: RunContext, name: str) -> Path:
    """Where a stage keeps its document encoder: a joint stage beside its student."""
    folder = context.model_of(name)
    return folder / "document" if (folder / "document" / ADAPTER).is_dir() else folder


def _base(context: RunContext, stage: DocumentStage) -> Any:
    model = load_base(
        stage.base,
        device=context.device,
        dtype=stage.training.precision,
        max_length=stage.max_length,
        normalise=stage.similarity == "cosine",
    )
    return model if stage.base_bits is None else round_base(model)
