"""What the stages share: each data file is checked once, when it is first read, and texts are read once."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import suwen.training.run_context
from suwen.curate.leakage import HeldOut, LeakageError
from suwen.training.recipe.recipe_file import load_recipe
from suwen.training.run_context import RunContext


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    """Two sources, one of which leaks, and three texts."""
    (tmp_path / "rows").mkdir()
    _write(tmp_path / "rows" / "good.jsonl.gz", [{"query": "咳嗽", "pos": ["多喝水"]}])
    _write(tmp_path / "rows" / "unsup-bad.jsonl.gz", [{"query": "牙疼", "pos": ["看牙医"]}])
    _write(tmp_path / "texts.jsonl.gz", [{"text": text, "kind": "query"} for text in ("发烧", "头晕", "失眠")])
    _write(tmp_path / "held-out.jsonl.gz", [{"text": "牙疼"}])
    sets = [f"data.{key}={tmp_path / name}" for key, name in (("rows", "rows"), ("texts", "texts.jsonl.gz"))]
    sets += [f"data.held_out={tmp_path / 'held-out.jsonl.gz'}", "data.measure=null"]
    return RunContext(recipe=load_recipe("care-tiny", sets), root=tmp_path / "run")


def _write(file: Path, records: list[dict[str, object]]) -> None:
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def test_a_file_is_refused_when_it_is_read_and_only_then(context: RunContext) -> None:
    assert list(context.sources(None)) == ["good"]
    for _ in range(2):  # what was refused is not taken for checked
        with pytest.raises(LeakageError, match="unsup-bad"):
            context.sources(None, unsupervised=True)


def test_a_file_is_checked_once_and_again_when_it_has_changed(
    context: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    hit = HeldOut.hit
    monkeypatch.setattr(HeldOut, "hit", lambda self, text: asked.append(text) or hit(self, text))
    context.sources(["good"])
    assert asked == ["咳嗽", "多喝水"]
    later = RunContext(recipe=context.recipe, root=context.root)
    later.sources(["good"])
    assert len(asked) == 2
    _write(tmp_path / "rows" / "good.jsonl.gz", [{"query": "牙疼", "pos": ["多喝水"]}])
    with pytest.raises(LeakageError, match="good"):
        later.sources(["good"])


def test_texts_are_read_once_and_a_limit_draws_the_same_ones(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read = suwen.training.run_context.read_texts
    monkeypatch.setattr(suwen.training.run_context, "read_texts", lambda *given: reads.append(given) or read(*given))
    some, every = context.texts(2), context.texts()
    assert len(reads) == 1 and every.texts == ["发烧", "头晕", "失眠"] and len(some.texts) == len(some.kinds) == 2
    again = RunContext(recipe=context.recipe, root=context.root).texts(2)
    assert again.texts == some.texts == [text for text in every.texts if text in some.texts]
