"""Models of this process behind the same client as servers: batches, cache, adapters, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from suwen.encoders.adapter import Factors, save_adapter
from suwen.encoders.side import ModelError
from suwen.errors import SuwenError
from suwen.llm import local_endpoint
from suwen.llm.client import LLM
from suwen.llm.config import ConfigProblem, LLMConfig, LLMError
from suwen.llm.endpoint import EndpointProblem
from suwen.llm.local_model import LocalModel, held
from suwen.llm.prompts import Message
from suwen.llm.requests import Reply, Request

QUESTIONS = ["高血压", "diabetes", "感冒发烧", "flu vaccine", "骨折", "cough", "失眠"]


def configured(model: Path | str, **settings: object) -> LLMConfig:
    endpoint = {"base_url": "local", "concurrency": 4}
    return LLMConfig.model_validate(
        {
            "endpoints": {"here": endpoint},
            "models": {"m": {"endpoint": "here", "model": str(model), "max_tokens": 12, **settings}},
        }
    )


def run(llm: LLM, **fields: object) -> dict[str, Reply]:
    got: dict[str, Reply] = {}
    requests = [Request("m", (Message("user", text),), key=text, **fields) for text in QUESTIONS]
    llm.run(requests, lambda request, reply: got.__setitem__(request.key, reply))
    return got


def test_many_are_sampled_together_and_kept(models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, sizes = models.build_base(tmp_path / "base"), []
    whole = LocalModel.write
    monkeypatch.setattr(
        LocalModel, "write", lambda self, asked, how: sizes.append(len(asked)) or whole(self, asked, how)
    )
    with LLM.open(configured(base), tmp_path / "replies.sqlite") as llm:
        first = run(llm)
        assert set(first) == set(QUESTIONS) and sum(sizes) == len(QUESTIONS) and max(sizes) == 4
        again = run(llm)
    assert sum(sizes) == len(QUESTIONS), "what was answered is asked again"
    assert {key: reply.text for key, reply in again.items()} == {key: reply.text for key, reply in first.items()}
    assert all(reply.cached and reply.tokens_in > 0 for reply in again.values())


def test_a_reply_alone_is_the_reply_in_a_batch(models, tmp_path: Path) -> None:
    model = LocalModel.load(models.build_base(tmp_path), device="cpu")
    asked = [[{"role": "user", "content": text}] for text in QUESTIONS]
    how = local_endpoint._settings_of({"max_tokens": 12})
    assert model.write(asked, how) == [model.write([one], how)[0] for one in asked]


def test_other_weights_under_the_same_name_are_asked_again(models, tmp_path: Path) -> None:
    base = models.build_base(tmp_path / "base")
    with LLM.open(configured(base), tmp_path / "replies.sqlite") as llm:
        run(llm)
    weights = load_file(base / "model.safetensors")
    save_file({name: weight + 0.1 for name, weight in weights.items()}, base / "model.safetensors", {"format": "pt"})
    local_endpoint.forget()
    with LLM.open(configured(base), tmp_path / "replies.sqlite") as llm:
        assert not any(reply.cached for reply in run(llm).values())


def test_an_adapter_changes_what_is_said(models, tmp_path: Path) -> None:
    base = models.build_base(tmp_path / "base")
    torch.manual_seed(0)
    name, wide = "layers.0.mlp.down_proj", torch.randn(2, 96)
    save_adapter({name: Factors(wide, torch.randn(64, 2))}, tmp_path / "adapter", bits=16, base=str(base))
    with LLM.open(configured(base), tmp_path / "replies.sqlite") as llm:
        plain = run(llm)
    with LLM.open(configured(base, adapter=str(tmp_path / "adapter")), tmp_path / "replies.sqlite") as llm:
        tuned = run(llm)
    assert not any(reply.cached for reply in tuned.values())
    assert {reply.text for reply in plain.values()} != {reply.text for reply in tuned.values()}


def test_per_request_settings_reach_the_sampler(models, tmp_path: Path) -> None:
    base = models.build_base(tmp_path / "base")
    with LLM.open(configured(base, seed=4), tmp_path / "replies.sqlite") as llm:
        likely = run(llm)
        drawn = run(llm, temperature=1.5, more={"top_p": 0.99, "top_k": 50})
        # One token to choose from is the likeliest.
        one = run(llm, temperature=1.5, more={"top_k": 1})
    texts = [{key: reply.text for key, reply in some.items()} for some in (likely, drawn, one)]
    assert texts[0] != texts[1] and texts[0] == texts[2]


def test_what_cannot_work_is_said(models, tmp_path: Path) -> None:
    with pytest.raises(ConfigProblem, match="adapter"):
        LLMConfig.model_validate(
            {
                "endpoints": {"far": {"base_url": "http://127.0.0.1:1/v1"}},
                "models": {"m": {"endpoint": "far", "model": "x", "adapter": "a"}},
            }
        )
    with LLM.open(configured(tmp_path / "none.gguf"), tmp_path / "r.sqlite") as llm:
        with pytest.raises(EndpointProblem, match=r"none\.gguf"):
            llm.check()
        with pytest.raises(SuwenError, match=r"none\.gguf"):
            run(llm)
    odd = configured(models.build_base(tmp_path / "base"), extra={"logprobs": 3})
    with LLM.open(odd, tmp_path / "r.sqlite") as llm, pytest.raises(LLMError, match="logprobs"):
        run(llm)


def test_a_tokenizer_without_an_end_of_text_is_refused(models, tmp_path: Path) -> None:
    base = models.build_base(tmp_path)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file(str(base / "tokenizer.json")))
    with pytest.raises(ModelError, match="end of text"):
        LocalModel(None, tokenizer)


def test_a_model_in_memory_changes_its_adapter_and_is_itself_again_without(models, tmp_path: Path) -> None:
    base = models.build_base(tmp_path / "base")
    torch.manual_seed(0)
    for name in ("one", "two"):
        factors = {"layers.0.mlp.down_proj": Factors(torch.randn(2, 96), torch.randn(64, 2))}
        save_adapter(factors, tmp_path / name, bits=16, base=str(base))
    local_endpoint.forget()
    weight = held(base).model.base_model.layers[0].mlp.down_proj.weight
    bare = weight.detach().clone()
    one = held(base, tmp_path / "one").model.base_model.layers[0].mlp.down_proj.weight
    assert one is weight, "the model was loaded again"
    worn = one.detach().clone()
    held(base, tmp_path / "two")
    assert not torch.equal(weight, worn) and not torch.equal(weight, bare)
    held(base, tmp_path / "one")
    assert torch.equal(weight, worn)
    held(base)
    assert torch.equal(weight, bare)
    local_endpoint.forget()
