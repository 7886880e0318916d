"""Systems under test: what they are, and how a user names one. Each kind of system lives in a file of its own.

There are two sides to be on. An *encode* side turns texts into vectors, which are cached and searched exactly here; a
*rank* side orders passages by itself (BM25, a fusion, a run made elsewhere).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

from suwen.bench.cache import Progress, VectorCache
from suwen.bench.data import Ranked
from suwen.bench.metrics import Similarity
from suwen.bench.search import Ranks
from suwen.bench.tasks import Task, Templates
from suwen.encoders.query import Vectors
from suwen.errors import SuwenError

#: Whose words stand before a text: the model's own, the suite's instruction, or nobody's.
Prompting = Literal["model", "suite", "none"]
FORMS = {
    "pair:PATH[#TIER]": "a suwen pair; #all is every tier, #document its document encoder on both sides",
    "st:PATH": "a sentence-transformers model, a folder or a hub id",
    "st:QUERY+DOCUMENT": "two models of one space",
    "bm25:words": "BM25 over dictionary words; bm25:bigrams over character pairs; bm25:lucene with Lucene's analysers",
    "hybrid[:words|bigrams|lucene]:SYSTEM": "reciprocal rank fusion of an encoder and BM25",
    "openai:URL#MODEL": "an embedding endpoint that speaks OpenAI's protocol; the key is OPENAI_API_KEY",
    "run:PATH": "a TREC run file, or a folder of them named after the tasks",
}


class SystemProblem(SuwenError):
    """A system that cannot be understood, loaded or run on a task."""


class NotApplicable(SystemProblem):
    """A system that by its nature cannot do a kind of task; nothing is broken."""


class Setting(NamedTuple):
    """The task a system is run on, and how its suite joins an instruction and a text."""

    task: Task
    templates: Templates

    def composed(self, side: Literal["query", "document"], texts: Sequence[str]) -> list[str]:
        """Texts with the suite's instruction for a side; as they are where it has none."""
        instruction = getattr(self.task.instruction, side)
        if not instruction:
            return list(texts)
        before, _, after = getattr(self.templates, side).replace("{instruction}", instruction).partition("{text}")
        return [f"{before}{text}{after}" for text in texts]

    def prompt_contract(self, prompting: Prompting, side: Literal["query", "document"]) -> list[str]:
        """What the prompting of a side adds to a contract."""
        return [prompting, *(self.composed(side, [""]) if prompting == "suite" else [])]


class Context(NamedTuple):
    """What a run lends a system: the cache, how deep to rank, and an ear."""

    cache: VectorCache
    depth: int
    progress: Progress | None = None


class Dense(Protocol):
    """A system on the encode side."""

    name: str
    spec: str

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared, by its contract."""
        ...

    def contract(self, setting: Setting, side: Literal["query", "document"]) -> dict[str, Any]:
        """Everything that fixes the vectors of a side, as JSON."""
        ...

    def encode(self, texts: Sequence[str], setting: Setting, side: Literal["query", "document"]) -> Vectors:
        """Vectors of texts, one row each."""
        ...

    def release(self) -> None:
        """Let go of the model; it is loaded again when needed."""
        ...


class Ranker(Protocol):
    """A system on the rank side."""

    name: str
    spec: str

    def contract(self, setting: Setting, side: Literal["query", "document"]) -> dict[str, Any]:
        """Everything that fixes its rankings, as JSON."""
        ...

    def rank(self, data: Ranked, setting: Setting, context: Context) -> Ranks:
        """Order the corpus, or each query's candidates where the data have them."""
        ...

    def release(self) -> None:
        """Let go of what was built for a task."""
        ...


System = Dense | Ranker
_LABEL = re.compile(r"([\w.\- ]+)=((?:pair|st|bm25|hybrid|openai|run):.*)", re.DOTALL)
_PROMPTS = re.compile(r"(.*)\?prompts=(\w+)", re.DOTALL)


def is_dense(system: System) -> bool:
    """Whether a system is on the encode side."""
    return hasattr(system, "encode")


def parse_systems(specs: Sequence[System | str]) -> list[System]:
    """Make systems of what a user wrote (see :data:`FORMS`); one that is made already stays as it is.

    A spec may begin with a label (``mine=st:models/mine``) that becomes the system's name, and one of ``st`` or
    ``openai`` may end in ``?prompts=suite`` (the suite's instructions) or ``?prompts=none``.

    Raises:
        SystemProblem: A spec is not understood, or two systems have one name.
    """
    systems = [made for spec in specs for made in (_parse(spec) if isinstance(spec, str) else [spec])]
    names = [system.name for system in systems]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SystemProblem(f"two systems are called {twice!r}: give them labels, such as one={systems[0].spec}")
    return systems


def parse_system(spec: str) -> System:
    """Make one system; one that stands for several (``#all``) is an error here."""
    found = _parse(spec)
    if len(found) != 1:
        raise SystemProblem(f"{spec!r} names {len(found)} systems where one is wanted: name one tier")
    return found[0]


def _parse(spec: str) -> list[System]:
    labelled = _LABEL.fullmatch(spec)
    label, body = (labelled[1], labelled[2]) if labelled else (None, spec)
    kind, colon, rest = body.partition(":")
    if not colon or kind not in _KINDS:
        forms = "; ".join(f"{form} ({what})" for form, what in FORMS.items())
        raise SystemProblem(f"{spec!r} is not a system: write one of {forms}")
    systems = _KINDS[kind](body, rest)
    if label is not None:
        for system in systems:
            tail = system.name[system.name.rindex("#") :] if len(systems) > 1 else ""
            system.name = f"{label}{tail}"
    return systems


def _prompting(rest: str) -> tuple[str, Prompting]:
    matched = _PROMPTS.fullmatch(rest)
    if matched is None:
        return rest, "model"
    if matched[2] not in get_args(Prompting):
        raise SystemProblem(f"prompts={matched[2]} is not known: choose one of {', '.join(get_args(Prompting))}")
    return matched[1], matched[2]  # type: ignore[return-value]


def _pair(spec: str, rest: str) -> list[System]:
    from suwen.bench.dense import PairSystem

    path, _, tier = rest.partition("#")
    return [*PairSystem.open(spec, path, tier or None)]


def _sentence_transformers(spec: str, rest: str) -> list[System]:
    from suwen.bench.dense import ModelSystem

    path, prompting = _prompting(rest)
    if not path:
        raise SystemProblem(f"{spec!r} names no model: write st:PATH")
    query, plus, document = path.partition("+")
    if not plus or Path(path).exists():
        query, document = path, path
    return [ModelSystem(spec, query, document, prompting)]


def _bm25(spec: str, rest: str) -> list[System]:
    from suwen.bench.ranked import BM25

    return [BM25(spec, rest)]


def _hybrid(spec: str, rest: str) -> list[System]:
    from suwen.bench.ranked import ANALYSERS, BM25, Hybrid

    analyser, _, dense = rest.partition(":")
    if analyser not in ANALYSERS:
        analyser, dense = "bigrams", rest
    found = _parse(dense) if dense else []
    if not found or not all(is_dense(system) for system in found):
        raise SystemProblem(f"{spec!r} fuses BM25 with an encoder: write hybrid:{analyser}:st:PATH or ...:pair:PATH")
    return [Hybrid(spec, system, BM25(f"bm25:{analyser}", analyser)) for system in found]  # type: ignore[arg-type]


def _openai(spec: str, rest: str) -> list[System]:
    from suwen.bench.endpoint import EndpointSystem

    address, prompting = _prompting(rest)
    url, _, model = address.partition("#")
    return [EndpointSystem(spec, url, model, prompting)]


def _run(spec: str, rest: str) -> list[System]:
    from suwen.bench.ranked import RunFile

    return [RunFile(spec, Path(rest))]


_KINDS: dict[str, Callable[[str, str], list[System]]] = {
    "pair": _pair,
    "st": _sentence_transformers,
    "bm25": _bm25,
    "hybrid": _hybrid,
    "openai": _openai,
    "run": _run,
}
