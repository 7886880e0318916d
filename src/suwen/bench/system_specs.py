"""How a user names a system: ``pair:PATH#TIER``, ``st:PATH``, ``bm25:words`` and so on. Makes systems, runs none."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from suwen.bench.dense_systems import ModelSystem, PairSystem
from suwen.bench.endpoint_system import EndpointSystem
from suwen.bench.hyde_system import HydeSettings, HydeSystem
from suwen.bench.question_system import QuestionSystem
from suwen.bench.ranking_systems import ANALYSERS, BM25, Hybrid, RunFile
from suwen.bench.reranked import HITS, Reranked
from suwen.bench.shipped import FORMS as FORMS
from suwen.bench.systems import Dense, Prompting, System, SystemProblem, is_dense

_LABEL = re.compile(r"([\w.\- ]+)=((?:pair|st|bm25|hybrid|hyde|questions|openai|rerank|run):.*)", re.DOTALL)
_RERANKED = re.compile(
    r"(?P<folder>.+?)(?:,hits=(?P<hits>[1-9]\d*))?:(?P<inner>(?:pair|st|bm25|hybrid|hyde|questions|openai|run):.*)",
    re.DOTALL,
)
_PROMPTS = re.compile(r"(.*)\?prompts=(\w+)", re.DOTALL)


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
    path, _, tier = rest.partition("#")
    return [*PairSystem.open(spec, path, tier or None)]


def _sentence_transformers(spec: str, rest: str) -> list[System]:
    path, prompting = _prompting(rest)
    if not path:
        raise SystemProblem(f"{spec!r} names no model: write st:PATH")
    query, plus, document = path.partition("+")
    if not plus or Path(path).exists():
        query, document = path, path
    return [ModelSystem(spec, query, document, prompting)]


def _encoders(spec: str, inner: str, said: str) -> list[Dense]:
    """The encoders that a system is made around; ``said`` is what is told where they are none."""
    systems = _parse(inner) if inner else []
    encoders = [system for system in systems if is_dense(system)]
    if not encoders or len(encoders) < len(systems):
        raise SystemProblem(f"{spec!r} {said}")
    return encoders


def _hybrid(spec: str, rest: str) -> list[System]:
    analyser, _, dense = rest.partition(":")
    if analyser not in ANALYSERS:
        analyser, dense = "bigrams", rest
    said = f"fuses BM25 with an encoder: write hybrid:{analyser}:st:PATH or ...:pair:PATH"
    return [Hybrid(spec, system, BM25(f"bm25:{analyser}", analyser)) for system in _encoders(spec, dense, said)]


def _hyde(spec: str, rest: str) -> list[System]:
    settings, _, inner = rest.partition(":")
    said = "rewrites an encoder's queries: write hyde:MODEL:st:PATH or hyde:MODEL:pair:PATH"
    encoders, how = _encoders(spec, inner, said), HydeSettings.parse(settings)
    return [HydeSystem(spec, how, system) for system in encoders]


def _questions(spec: str, rest: str) -> list[System]:
    path, _, inner = rest.partition(":")
    said = "asks an encoder for documents: write questions:FILES:st:PATH or ...:pair:PATH"
    return [QuestionSystem(spec, Path(path), system) for system in _encoders(spec, inner, said)]


def _rerank(spec: str, rest: str) -> list[System]:
    matched = _RERANKED.fullmatch(rest)
    if matched is None:
        raise SystemProblem(f"{spec!r} is not understood: write rerank:FOLDER:hybrid:pair:PATH, or FOLDER,hits=50:…")
    return [
        Reranked(spec, Path(matched["folder"]), inner, int(matched["hits"] or HITS))
        for inner in _parse(matched["inner"])
    ]


def _openai(spec: str, rest: str) -> list[System]:
    address, prompting = _prompting(rest)
    url, _, model = address.partition("#")
    return [EndpointSystem(spec, url, model, prompting)]


_KINDS: dict[str, Callable[[str, str], list[System]]] = {
    "pair": _pair,
    "st": _sentence_transformers,
    "bm25": lambda spec, rest: [BM25(spec, rest)],
    "hybrid": _hybrid,
    "hyde": _hyde,
    "questions": _questions,
    "openai": _openai,
    "rerank": _rerank,
    "run": lambda spec, rest: [RunFile(spec, Path(rest))],
}
