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
        ("title", "头晕怎么回事", "头晕怎么回事"),
        ("topic", "头晕怎么回事", "头晕怎么回事"),
    ]


@pytest.fixture(scope="module")
def speaker(tool: Any) -> tuple[Qwen2ForCausalLM, Any]:
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
    return Qwen2ForCausalLM(config).eval(), tokenizer


def test_every_prompt_gets_a_reply_and_batches_hold_one_kind(tool: Any, speaker: Any) -> None:
    model, tokenizer = speaker
    prompts = [
        {"kind": kind, "source": "s", "x": x, "with": x} for kind in ("title", "short") for x in ("头晕", "痛风", "痛")
    ]
    for kind, ids, members in tool._batches(prompts, tokenizer, 2, seed=0):
        assert {one["kind"] for one in members} == {kind} and len(ids) == len(members) <= 2
    said: list[str] = []
    replies = list(tool.write(prompts, model, tokenizer, seconds=600, batch=2, seed=0, report=said.append))
    assert sorted((one["kind"], one["x"]) for one in replies) == sorted((one["kind"], one["x"]) for one in prompts)
    assert all(line == line.strip() and line for one in replies for line in one["lines"]) and len(said) >= 3
    again = list(tool.write(prompts, model, tokenizer, seconds=600, batch=2, seed=0, report=said.append))
    assert again == replies, "a seed must give the same replies"


def test_the_scores_are_those_of_each_prompt_alone(tool: Any, speaker: Any) -> None:
    model, tokenizer = speaker
    prompts = [tokenizer.encode(text, add_special_tokens=False) for text in ("头晕怎么回事", "痛", "痛风怎么回")]
    new = [tokenizer.encode(text, add_special_tokens=False) for text in ("晕怎回", "风么事", "头头头")]
    with torch.inference_mode():
        states = tool._States(model, prompts, room=4)
        found = [states.read()]
        found.append(states.step(torch.tensor([row[0] for row in new])))
        states.keep(torch.tensor([0, 2]))
        found.append(states.step(torch.tensor([new[0][1], new[2][1]])))
        for done, rows in ((0, [0, 1, 2]), (1, [0, 1, 2]), (2, [0, 2])):
            for place, row in enumerate(rows):
                alone = model(torch.tensor([prompts[row] + new[row][:done]])).logits[0, -1]
                torch.testing.assert_close(found[done][place], alone, rtol=1e-4, atol=1e-5)


def test_tokens_are_drawn_as_often_as_they_are_likely(tool: Any) -> None:
    torch.manual_seed(0)
    shares = torch.tensor([0.6, 0.3, 0.09, 0.01])
    drawn = torch.bincount(tool._draw(shares.log().repeat(40_000, 1), temperature=1.0), minlength=4) / 40_000
    kept = torch.tensor([0.6, 0.3, 0.09, 0.0]) / 0.99
    torch.testing.assert_close(drawn, kept, rtol=0, atol=0.01)


def test_replies_end_at_the_end_token_or_with_a_whole_line(tool: Any, speaker: Any) -> None:
    model, tokenizer = speaker
    prompts = [tokenizer.encode(text, add_special_tokens=False) for text in ("头晕", "痛风怎么回事")] * 100
    torch.manual_seed(1)
    replies = tool._sample(model, prompts, 24, tokenizer)
    ends = {tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>")}
    line_break = tokenizer.convert_tokens_to_ids("\n")
    assert len(replies) == 200 and all(not ends & set(reply) and len(reply) < 24 for reply in replies)
    assert any(reply for reply in replies)
    assert tool._whole([5, line_break, 6, 7], {line_break}, 1) == [5], "half a line goes"
    assert tool._whole([5, line_break, 6, 1], {line_break}, 1) == [5, line_break, 6]
    assert tool._whole([5, 6], {line_break}, 1) == []
