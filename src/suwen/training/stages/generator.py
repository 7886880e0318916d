"""The stage ``generator``: a language model learns to write what retrieves best; loss on the answer alone, LoRA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from suwen.training.recipe.key_groups import DECODER_MATRICES, Lora, Name, Training
from suwen.training.recipe.stage_base import Needs
from suwen.training.stages.queries import WritingStage

if TYPE_CHECKING:
    from suwen.llm.local_model import LocalModel
    from suwen.training.loop.run_folder import RunFolder
    from suwen.training.run_context import RunContext


class GeneratorStage(WritingStage):
    """Fine-tunes the language model on the chosen hypothetical documents, from the query alone as in a search."""

    gives = frozenset({"generator"})

    stage: Literal["generator"]
    rewrites: Annotated[Name, Needs("rewrites")] = Field(description="the stage of the chosen documents")
    kind: Literal["q2p", "t2p", "p2p"] = Field(
        default="q2p", description="what queries are: a question, title, passage"
    )
    lora: Lora = Field(default=Lora(rank=8, alpha=16, dropout=0.05), description="the adapter")
    max_length: int = Field(default=1024, ge=8, description="tokens of prompt and answer; longer ones are left out")
    training: Training = Field(description="how it is optimised")

    @model_validator(mode="after")
    def _has_weights(self) -> GeneratorStage:
        if self.base is None:
            raise ValueError("an endpoint's model cannot be trained here: name its `base` in place of `model`")
        return self

    @property
    @override
    def less_memory(self) -> str:
        return f"cut its batches into smaller pieces (--set stages.{self.name}.training.token_budget=N)"

    @override
    def stand_in(self, small: dict[str, Any], builtin: Callable[[str], str]) -> dict[str, Any]:
        # The tiny writer has the matrices of most decoders, not those of the base that a recipe names.
        lora = small["lora"] | {"rank": 2, "modules": DECODER_MATRICES}
        return super().stand_in(small, builtin) | {"lora": lora, "max_length": 512}

    @override
    def run(self, context: RunContext, folder: RunFolder) -> Mapping[str, Any]:
        import torch

        from suwen.encoders.adapter import read_factors
        from suwen.llm.local_model import held, let_go
        from suwen.training.tasks.answer_task import AnswerTask
        from suwen.training.tasks.merged_lora import MergedLora

        counts: Counter[str] = Counter()
        writer = held(str(self.base), device=None if context.device.startswith("cuda") else context.device)
        examples = self._examples(context, writer, counts)
        body, seed = writer.model.base_model, context.seed_of(self)
        for parameter in writer.model.parameters():
            parameter.requires_grad_(False)
        torch.manual_seed(seed)
        self._put_adapter(context, body)
        # Without dropout the adapter is merged once a step, which is faster.
        merged = MergedLora(body) if self.lora.dropout == 0 else None
        self._recompute(writer.model, self.training.gradient_checkpointing)
        writer.model.train()
        task = AnswerTask(writer.model, merged or body, examples, self.training, seed=seed)
        context.optimise(task, folder, self.training, per_epoch=task.order.per_epoch)
        factors = read_factors(body) if merged is None else merged.factors()
        writer.model.eval()
        if merged is None:
            let_go()  # the layers of peft are in it
        else:
            self._recompute(writer.model, False)
            merged.restore()
        folder.leave(lambda out: self._save(factors, out))
        return {key: float(value) for key, value in counts.items()}

    def _save(self, factors: Any, out: Path) -> None:
        from suwen.encoders.adapter import save_adapter
        from suwen.training.hypothetical_writing import ADAPTER

        save_adapter(factors, out / ADAPTER, bits=16, base=str(self.base))

    def _put_adapter(self, context: RunContext, body: Any) -> None:
        from suwen.encoders.adapter import apply_lora, load_lora
        from suwen.training.hypothetical_writing import generator_folder

        lora, before = self.lora, generator_folder(context, self.generator)
        if before is None:
            apply_lora(body, rank=lora.rank, alpha=lora.alpha, dropout=lora.dropout, modules=lora.modules)
        else:
            load_lora(body, before, dropout=lora.dropout, scale=lora.alpha / lora.rank)
        for parameter in body.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()

    def _recompute(self, model: Any, wanted: bool) -> None:
        if wanted:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        elif model.is_gradient_checkpointing:
            model.gradient_checkpointing_disable()

    def _examples(
        self, context: RunContext, writer: LocalModel, counts: Counter[str]
    ) -> list[tuple[list[int], list[int]]]:
        """Token ids of what is asked in a search, and of what was chosen as the answer."""
        from suwen.corpora.training_rows import read_training_rows
        from suwen.hyde.writing import Draws
        from suwen.training.hypothetical_writing import open_writer
        from suwen.training.run_context import ROWS

        rows = read_training_rows(context.model_of(self.rewrites) / ROWS)
        chosen = [(row.query, row.hypothetical[0]) for row in rows if row.hypothetical]
        with open_writer(context, self.model_copy(update={"generator": None})) as asker:
            asked = asker.document_requests([query for query, _ in chosen], 1, self.kind, Draws(), None)
            messages = [[{"role": one.role, "content": one.content} for one in request.messages] for request in asked]
        made = [
            writer.example(prompt, answer, self.max_length)
            for prompt, (_, answer) in zip(messages, chosen, strict=True)
        ]
        examples = [one for one in made if one is not None]
        counts.update(answers=len(examples), too_long=len(made) - len(examples))
        return examples
