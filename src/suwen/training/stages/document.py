"""The stage ``document``: a decoder becomes the document encoder, by LoRA, over nested widths."""

from __future__ import annotations

from suwen.encoders.base_model import base_hash
from suwen.training.context import Context
from suwen.training.recipe.settings import DocumentStage
from suwen.training.stages.documents import TrainedDocument, finish_document
from suwen.training.stages.pairs import read_table, row_batches
from suwen.training.tasks.pair_task import PairLosses, PairTask


def run_document(context: Context, stage: DocumentStage) -> dict[str, float]:
    """Train the adapter on labelled rows; the adapter is what is saved."""
    inputs = context.data_hashes(rows=stage.rows.sources) | {"base": base_hash(stage.base)}
    folder = context.open(stage, inputs)
    if folder.finished:
        return folder.metrics
    table = read_table(context, stage.rows)
    document = TrainedDocument.create(context, stage)
    queries, documents = document.towers(table, stage.training, stage.prompts)
    training = stage.training
    task = PairTask(
        table,
        queries,
        documents,
        [(document.trained, 1.0)],
        row_batches(table, stage.rows, training.batch, context.seed_of(stage)),
        PairLosses(stage.temperature, dimensions=stage.dimensions, backward_weight=stage.backward_weight),
        negatives=stage.rows.negatives,
        seed=context.seed_of(stage),
    )
    document.model.train()
    context.optimise(task, folder, training, per_epoch=task.batches.per_epoch)
    return finish_document(context, folder, document)
