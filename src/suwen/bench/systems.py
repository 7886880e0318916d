"""Systems under test: what they must do, and what they are given. Each kind of system lives in a file of its own.

There are two sides to be on. An *encode* side turns texts into vectors, which are cached and searched exactly here; a
*rank* side orders passages by itself (BM25, a fusion, a run made elsewhere).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard

from suwen.bench.exact_search import Ranks
from suwen.bench.retrieval_metrics import Similarity
from suwen.bench.suite_tasks import BySide, Task
from suwen.bench.task_data import Ranked
from suwen.bench.vector_cache import Progress, VectorCache
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError

#: Whose words stand before a text: the model's own, the suite's instruction, or nobody's.
Prompting = Literal["model", "suite", "none"]
Side = Literal["query", "document"]


class SystemProblem(SuwenError):
    """A system that cannot be understood, loaded or run on a task."""


class NotApplicable(SystemProblem):
    """A system that by its nature cannot do a kind of task; nothing is broken."""


class Setting(NamedTuple):
    """The task a system is run on, and how its suite joins an instruction and a text."""

    task: Task
    templates: BySide

    def composed(self, side: Side, texts: Sequence[str]) -> list[str]:
        """Texts with the suite's instruction for a side; as they are where it has none."""
        instruction = getattr(self.task.instruction, side)
        if not instruction:
            return list(texts)
        before, _, after = getattr(self.templates, side).replace("{instruction}", instruction).partition("{text}")
        return [f"{before}{text}{after}" for text in texts]

    def put(self, prompting: Prompting, side: Side, texts: Sequence[str]) -> list[str]:
        """Texts as a model is given them: with the suite's instruction where that is asked for."""
        return self.composed(side, texts) if prompting == "suite" else list(texts)

    def prompt_contract(self, prompting: Prompting, side: Side) -> list[str]:
        """What the prompting of a side adds to a contract."""
        return [prompting, *(self.composed(side, [""]) if prompting == "suite" else [])]


class RankingContext(NamedTuple):
    """What a run gives a system: the cache, how deep to rank, and whom to report progress to."""

    cache: VectorCache
    depth: int
    progress: Progress | None = None


class System(Protocol):
    """What is measured: an encoder (:class:`Dense`) or a :class:`Ranker`."""

    name: str
    spec: str

    def contract(self, setting: Setting, side: Side) -> dict[str, Any]:
        """Everything that fixes the vectors of a side, or the rankings, as JSON."""
        ...

    def release(self) -> None:
        """Let go of the model, which is loaded again when needed; nothing where none is held."""
        return


class Dense(System, Protocol):
    """A system on the encode side."""

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared, by its contract."""
        ...

    def encode(self, texts: Sequence[str], setting: Setting, side: Side) -> Vectors:
        """Vectors of texts, one row each."""
        ...


class Ranker(System, Protocol):
    """A system on the rank side."""

    def rank(self, data: Ranked, setting: Setting, context: RankingContext) -> Ranks:
        """Order the corpus, or each query's candidates where the data have them."""
        ...


def is_dense(system: System) -> TypeGuard[Dense]:
    """Whether a system is on the encode side."""
    return hasattr(system, "encode")
