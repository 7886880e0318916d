"""Fixtures for every room: tiny real models, built once a run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

# A deadline would assert on time, and a busy machine is not a bug.
settings.register_profile("suwen", deadline=None)
settings.load_profile("suwen")


def _models_on_the_spot() -> ModuleType:
    # Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
    name = "models_on_the_spot"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """The builders of ``tests/models_on_the_spot.py``."""
    return _models_on_the_spot()


@pytest.fixture(scope="session")
def bert_folder(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer sentence-transformers BERT with prompts, of 24 dimensions."""
    prompts = {"query": "查询: ", "document": ""}
    return models.build_bert(tmp_path_factory.mktemp("bert"), prompts=prompts)


@pytest.fixture(scope="session")
def decoder_folder(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3-shaped document encoder: last-token pooling, an end token."""
    return models.build_decoder(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="session")
def router_folder(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full pair with ``suwen.json``: BERT queries, Qwen3-shaped documents, one space of 24 dimensions."""
    from suwen.encoders.side import load_model, mint_space
    from suwen.encoders.space import Manifest, ModelDocument, save_manifest

    folder = models.build_router(tmp_path_factory.mktemp("router"), prompts={"query": "问: ", "document": ""})
    model, _ = load_model(folder, device="cpu")
    document = ModelDocument(kind="router", path=".")
    save_manifest(folder, Manifest(name="tiny-full", form="full", space=mint_space(model, folder), document=document))
    return folder


@pytest.fixture(scope="session")
def light_pair(bert_folder: Path, models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A light pair of the BERT: tiers ``l2`` (int8, the default), ``l2-fp32`` and ``static``."""
    from suwen.training.export import export

    out = tmp_path_factory.mktemp("light") / "pair"
    texts = [f"{text} {number}" for number in range(4) for text in models.TEXTS]
    export(bert_folder, out, texts=texts, precision="both", static=True, name="tiny-light")
    return out
