"""The stage ``freeze``: the document encoder is cut, rounded, written as it ships, and its space is minted."""

from __future__ import annotations

from suwen.encoders.base_model import base_hash
from suwen.encoders.space import Prompts
from suwen.training.context import Context
from suwen.training.loop.processes import in_first
from suwen.training.loop.run_folder import RunFolder
from suwen.training.measure import measure
from suwen.training.recipe.settings import DocumentStage, FreezeStage
from suwen.training.ship.freezing import freeze
from suwen.training.stages.documents import TrainedDocument, first_stage


def run_freeze(context: Context, stage: FreezeStage) -> dict[str, float]:
    """Freeze what a document or joint stage has left; the encoder stays in memory for the vectors."""
    first = first_stage(context, stage.start)
    folder = context.open(stage, context.stage_hash(stage.start) | {"base": base_hash(first.base)})
    if folder.finished:
        return folder.metrics
    metrics = in_first(lambda: _freeze(context, stage, first, folder))
    # Other processes have kept it too, and load what was frozen if they need it.
    context.loaded.pop(f"document:{stage.start}", None)
    return metrics or {}


def _freeze(context: Context, stage: FreezeStage, first: DocumentStage, folder: RunFolder) -> dict[str, float]:
    document = TrainedDocument.load(context, stage.start)
    encoder = freeze(
        document.factors(),
        first.base,
        folder.model,
        name=context.recipe.name,
        dimension=stage.dimension or document.dimension,
        prompts=Prompts(query=first.prompts.query_prompt(), document=first.prompts.document_prompt),
        max_length=first.max_length,
        rank=stage.rank,
        bits=stage.bits,
        hub_id=first.hub_id,
        device=context.device,
        body=document.base_alone(),
    )
    del document
    metrics: dict[str, float] = {}
    if stage.measure and context.measures:
        metrics = measure(
            context.measures,
            encoder.encode_queries,
            lambda task: encoder.encode_documents(task.data.documents),
            device=context.device,
        )
    context.loaded[f"encoder:{stage.name}"] = encoder
    folder.finish(metrics)
    return metrics
