"""``tools/write_texts.py``: prompts from training data, and the sampling of replies by a small real model."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from suwen.llm.local_model import LocalModel

TOOL = Path(__file__).parents[2] / "tools" / "write_texts.py"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = util.spec_from_file_location("write_texts", TOOL)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_prompts_ask_about_rows_and_texts_once_and_keep_what_replies_pair_with(tmp_path: Path) -> None:
    rows = [{"query": "痛风吃什么", "pos": ["少吃内脏，多喝水。"]}] * 2 + [{"query": "gout", "pos": ["only English"]}]
    save(tmp_path / "data" / "rows" / "huatuo.jsonl.gz", rows)
    save(tmp_path / "data" / "rows" / "nfcorpus.jsonl.gz", [{"query": "q", "pos": ["dietary fiber and stroke"]}] * 3)
    save(
        tmp_path / "data" / "texts.jsonl.gz",
        [
            {"text": "头晕怎么回事", "kind": "query", "source": "zh/kuake-qqr-train"},
            {"text": "不问这一条", "kind": "pattern", "source": "patterns"},
        ],
    )
    out = tmp_path / "prompts.jsonl.gz"
    subprocess.run([sys.executable, TOOL, "prompts", tmp_path / "data", out], check=True)
    with gzip.open(out, "rt", encoding="utf-8") as lines:
        asked = sorted((row["kind"], row["x"], row["with"]) for row in map(json.loads, lines))
    assert asked == [
        ("ask", "痛风吃什么", "少吃内脏，多喝水。"),
        ("question", "少吃内脏，多喝水。", "少吃内脏，多喝水。"),
        ("search", "dietary fiber and stroke", "dietary fiber and stroke"),
        ("search", "dietary fiber and stroke", "dietary fiber and stroke"),
        ("short", "痛风吃什么", "少吃内脏，多喝水。"),
        ("tell", "痛风吃什么", "少吃内脏，多喝水。"),
        ("title", "头晕怎么回事", "头晕怎么回事"),
        ("topic", "头晕怎么回事", "头晕怎么回事"),
    ]


@pytest.fixture(scope="module")
def speaker(tool: Any) -> LocalModel:
    """A model of two layers whose vocabulary is single characters."""
    ends = ["<|im_end|>", "<|endoftext|>", "<|im_start|>"]
    known = sorted(set("".join(tool.ASKED.values()) + "userassistant\n头晕怎么回事痛风"))
    vocabulary = {token: id_ for id_, token in enumerate([*ends, "[UNK]", *known])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", additional_special_tokens=ends)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    return LocalModel(Qwen2ForCausalLM(config).eval(), tokenizer)


def test_every_prompt_gets_a_reply_and_batches_hold_one_kind(tool: Any, speaker: Any) -> None:
    prompts = [
        {"kind": kind, "source": "s", "x": x, "with": x} for kind in ("title", "short") for x in ("头晕", "痛风", "痛")
    ]
    for kind, ids, members in tool._batches(prompts, speaker.tokenizer, 2, seed=0):
        assert {one["kind"] for one in members} == {kind} and len(ids) == len(members) <= 2
    said: list[str] = []
    replies = list(tool.write(prompts, speaker, seconds=600, batch=2, seed=0, report=said.append))
    assert sorted((one["kind"], one["x"]) for one in replies) == sorted((one["kind"], one["x"]) for one in prompts)
    assert all(line == line.strip() and line for one in replies for line in one["lines"]) and len(said) >= 3
    again = list(tool.write(prompts, speaker, seconds=600, batch=2, seed=0, report=said.append))
    assert again == replies, "a seed must give the same replies"


def test_a_reply_without_an_end_is_cut_after_its_last_whole_line(tool: Any) -> None:
    assert tool._whole("头晕\n痛", ended=False) == "头晕"
    assert tool._whole("头晕\n痛", ended=True) == "头晕\n痛"
    assert tool._whole("痛", ended=False) == ""
