"""A cross-encoder that begins as the bi-encoder it is made of."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from suwen.encoders.pair import Pair
from suwen.encoders.reranker import Reranker, joined
from suwen.encoders.side import ModelError, Side, load_model
from suwen.training.cross_encoders import with_score
from suwen.training.ship.reranker_export import Contract, export_reranker
from suwen.training.students.student_models import prune_layers
from suwen.training.students.tier_weights import open_tier
from suwen.training.students.two_texts import TEMPLATE, WEIGHT, two_texts

ASKED = ["打完胰岛素人突然发软冒虚汗", "metformin dose", "痛风"]
READ = ["低血糖反应：出汗、心慌、手抖，应立即进食。", "Start with 500 mg twice daily with meals.", "秋水仙碱" * 20]
TEXTS = [joined(TEMPLATE, query, document, 128) for query, document in zip(ASKED, READ, strict=True)]


def scorer(apart: int, layers: int = 6, words: bool = False) -> Any:
    made = two_texts(prune_layers(open_tier(Pair.load(None), "l6"), layers), apart, words)
    return with_score(made, start=torch.full((1, 512 + words), WEIGHT)).eval()


def scores(model: Any, texts: list[str]) -> Any:
    side = Side(model, "document")
    with torch.inference_mode():
        return side.embed(side.ids(texts))[:, 0].numpy()


def test_where_the_texts_never_meet_it_is_the_tiers_own_cosine() -> None:
    own = open_tier(Pair.load(None), "l6").eval()
    vectors = {}
    for form, mark, texts in (("query", "[Q]", ASKED), ("document", "[D]", READ)):
        side = Side(own, form)  # type: ignore[arg-type]
        with torch.inference_mode():
            vectors[form] = side.embed(side.ids([mark + text for text in texts])).numpy()
    expected = WEIGHT * (vectors["query"] * vectors["document"]).sum(1)
    # Texts of other lengths beside it change nothing.
    np.testing.assert_allclose(scores(scorer(6), TEXTS), expected, atol=1e-3)
    np.testing.assert_allclose(scores(scorer(6), TEXTS[:1]), expected[:1], atol=1e-3)


def test_where_they_meet_each_changes_what_the_other_is() -> None:
    apart, together = scores(scorer(6), TEXTS), scores(scorer(4), TEXTS)
    assert np.abs(apart - together).min() > 0.01


def test_word_by_word_it_adds_what_each_word_of_the_query_finds() -> None:
    own, found = open_tier(Pair.load(None), "l6").eval(), []
    for query, document in zip(ASKED, READ, strict=True):
        words = []
        for text in (f"[Q]{query}", f"[D]{document}"):
            read = own[0].tokenizer(text, return_tensors="pt")
            with torch.inference_mode():
                states = own[0].model(read["input_ids"], read["attention_mask"]).last_hidden_state[0]
                words.append(torch.nn.functional.normalize(own[2].linear(states), dim=-1))
        found.append((words[0] @ words[1].T).max(1).values.mean().item())
    added = scores(scorer(6, words=True), TEXTS) - scores(scorer(6), TEXTS)
    np.testing.assert_allclose(added, WEIGHT * np.array(found), atol=2e-3)


@pytest.mark.parametrize("words", [False, True])
def test_it_is_saved_exported_and_read_without_torch(tmp_path: Path, words: bool) -> None:
    model = scorer(2, layers=3, words=words)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "worth" in name:  # as after a training
                weight.copy_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    model.save(str(tmp_path / "model"))
    again = load_model(tmp_path / "model", device="cpu")[0]
    np.testing.assert_allclose(scores(again, TEXTS), scores(model, TEXTS), atol=1e-5)
    (tmp_path / "out").mkdir()
    manifest = export_reranker(tmp_path / "model", tmp_path / "out", Contract("two", TEMPLATE, 128, 192), TEXTS)
    assert manifest.layers == 3 and manifest.parity["int8_correlation"] > 0.99
    read = [
        Reranker.load(tmp_path / "out").scores(query, [document])[0]
        for query, document in zip(ASKED, READ, strict=True)
    ]
    np.testing.assert_allclose(read, scores(model, TEXTS), atol=2.0 if words else 1.0)  # of about 50 and 25


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("config.json", {"AutoConfig": "theirs.It", "AutoModel": "theirs.It"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["theirs.It", None]}),
    ],
)
def test_no_code_comes_with_it(tmp_path: Path, file: str, named: dict[str, Any]) -> None:
    """Its modules are this package's own, which opens the door to a transformer that is not."""
    scorer(2, layers=3).save(str(tmp_path))
    said = json.loads((tmp_path / file).read_text(encoding="utf-8"))
    said |= {"auto_map": named, "model_type": "theirs", "tokenizer_class": "It"}
    (tmp_path / file).write_text(json.dumps(said), encoding="utf-8")
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", encoding="utf-8")
    with contextlib.suppress(ModelError):  # it may be opened without that code
        load_model(tmp_path, device="cpu")
    assert not (tmp_path / "ran").exists()


def test_scores_are_told_apart_in_half_precision_too() -> None:
    """In bf16 there is no number between 20 and 20.125, and rivals differ by less."""
    model, side = scorer(5), Side(scorer(5), "document")
    ids = side.ids([joined(TEMPLATE, "高血压怎么办", f"少吃盐，多走动{'。' * n}", 128) for n in range(6)])
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        made = Side(model, "document").embed(ids)[:, 0]
    assert made.dtype == torch.float32 and len(set(made.tolist())) == 6
    assert (made != made.bfloat16().float()).any()
