from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suwen.encoders.side import ModelError, Side, load_model
from suwen.training.students.student_models import build_student
from suwen.training.students.student_tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def student(models):
    found = build_student(train_tokenizer(models.TEXTS, size=300), kind="static", dimension=24, seed=1)
    with torch.no_grad():
        found[0].form.normal_(generator=torch.Generator().manual_seed(2))
    return found


texts = st.lists(st.text(alphabet="高血压糖尿病 aspirin[D]Q", max_size=12), min_size=1, max_size=5)


@given(texts, st.sampled_from(["query", "document"]))
def test_it_is_the_mean_of_the_rows_plus_the_form(student, batch, form):
    side = Side(student, form)
    found = side.embed(side.ids([side.prompt + text for text in batch])).detach().numpy()
    rows, forms = student[0].embedding.weight.detach().numpy(), student[0].form.detach().numpy()
    for text, vector in zip(batch, found, strict=True):
        ids = side.tokenizer.encode(text, add_special_tokens=False).ids or [1]
        expected = rows[ids].mean(axis=0) + forms[0 if form == "query" else 1]
        assert np.allclose(vector, expected / np.linalg.norm(expected), atol=1e-5)


def test_a_text_without_a_form_is_a_document(student):
    side = Side(student, "document")
    bare, marked = side.embed(side.ids(["血压", side.prompt + "血压"]))
    assert torch.allclose(bare, marked, atol=1e-6)


def test_gradients_reach_the_rows_of_the_text_and_its_form_alone(student):
    side = Side(student, "query")
    rows = side.ids(["[Q]血压"])
    student.zero_grad()
    side.embed(rows)[0, 0].backward()
    moved = student[0].embedding.weight.grad.abs().sum(dim=1).nonzero()[:, 0].tolist()
    assert moved == sorted(set(rows[0][1:]))
    assert student[0].form.grad[0].any() and not student[0].form.grad[1].any()


def test_only_this_packages_own_module_is_loaded_without_trust(student, tmp_path):
    folder = tmp_path / "s"
    student.save(str(folder))
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    assert load_model(folder, device="cpu")[0][0].form.shape == (2, 24)
    stranger = {"idx": 2, "name": "2", "path": "", "type": "collections.OrderedDict"}
    (folder / "modules.json").write_text(json.dumps([*modules, stranger]), encoding="utf-8")
    with pytest.raises(ModelError, match="trust_remote_code"):
        load_model(folder, device="cpu")
    (folder / "modules.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(folder, device="cpu")
