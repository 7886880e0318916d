"""Fixtures for every room: tiny real models, built once a run."""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

# Two workers share two cores: with a thread for each core in either, torch spends half of its time waiting for itself
# (the stages of a tiny document encoder take 47 seconds of CPU, and 26 with this). Read once, as torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _memory_has_room(place: str = "/dev/shm") -> bool:
    """Whether this is a large place in memory from which programs may be run."""
    if not os.access(place, os.W_OK):
        return False
    known = os.statvfs(place)
    return known.f_bavail * known.f_frsize >= 8 << 30 and not known.f_flag & os.ST_NOEXEC


# Nobody cuts the power while tests run, tests/faults aside, which keep their own account of what was synced: whatever
# waits for a disk waits for nothing here. All tests together leave less than 2 GB.
if "TMPDIR" not in os.environ and _memory_has_room():
    os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"

# A deadline would assert on time, and a busy machine is not a bug; nor is one that draws examples slowly. What is tried
# is the same in every run, so that a change is judged by what it does; `make test-long` looks for new examples.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suwen", settings.get_profile("searching"), derandomize=True)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples, before any test file asks for its settings."""
    settings.load_profile("searching" if config.option.markexpr.startswith("long") else "suwen")


def _module(file: Path) -> ModuleType:
    # Tests are imported by file (import-mode=importlib), so a neighbour is not on the path.
    name = file.stem
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _made_once(make: Callable[..., Path]) -> Callable[..., Path]:
    """A session fixture that gives a folder to be read: made by the worker that first asks, and found by the others."""

    @functools.wraps(make)
    def found_or_made(**given: object) -> Path:
        if "PYTEST_XDIST_WORKER" not in os.environ:
            return make(**given)
        everyones = given["tmp_path_factory"].getbasetemp().parent
        place = everyones / f"{make.__name__}.txt"
        with (everyones / f"{make.__name__}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                place.write_text(str(make(**given)), encoding="utf-8")
            return Path(place.read_text(encoding="utf-8"))

    return found_or_made


# Imported by bare name in every room.
_module(Path(__file__).with_name("in_memory.py"))
_module(Path(__file__).with_name("held_port.py"))
_module(Path(__file__).with_name("postgres_server.py"))
_module(Path(__file__).with_name("rerankers_on_the_spot.py"))
_module(Path(__file__).with_name("milvus_server.py"))


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """The builders of ``tests/models_on_the_spot.py``."""
    return _module(Path(__file__).with_name("models_on_the_spot.py"))


@pytest.fixture(scope="session")
@_made_once
def static_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair whose one tier, ``static``, encodes queries and documents: whatever pair comes inside the package."""
    small_pair = _module(Path(__file__).parent / "retrieve" / "small_pair.py")
    return small_pair.make_static_pair(tmp_path_factory.mktemp("static") / "pair")


@pytest.fixture(scope="session")
@_made_once
def bert_folder(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer sentence-transformers BERT with prompts, of 24 dimensions."""
    prompts = {"query": "查询: ", "document": ""}
    return models.build_bert(tmp_path_factory.mktemp("bert"), prompts=prompts)


@pytest.fixture(scope="session")
@_made_once
def decoder_folder(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3-shaped document encoder: last-token pooling, an end token."""
    return models.build_decoder(tmp_path_factory.mktemp("decoder"))


@pytest.fixture(scope="session")
@_made_once
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
@_made_once
def light_pair(bert_folder: Path, models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A light pair of the BERT: tiers ``l2`` (int8, the default), ``l2-fp32`` and ``static``."""
    from suwen.training.ship.exporting import export

    out = tmp_path_factory.mktemp("light") / "pair"
    texts = [f"{text} {number}" for number in range(4) for text in models.TEXTS]
    export(bert_folder, out, texts=texts, precision="both", static=True, name="tiny-light")
    return out


@pytest.fixture(scope="session")
@_made_once
def instructed_pair(light_pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``light_pair`` with a query prompt that has a place for an instruction."""
    import shutil

    from suwen.encoders.prompts import Prompts
    from suwen.encoders.space import Manifest, Space, load_manifest, save_manifest

    out = tmp_path_factory.mktemp("instructed") / "pair"
    shutil.copytree(light_pair, out)
    (out / "probe.json").unlink(missing_ok=True)
    prompts = Prompts.filled("任务：{instruction}\n查询: ", "", "找资料")
    fields = load_manifest(out).model_dump()
    fields["space"].pop("id")
    space = Space.mint(**fields["space"] | {"prompts": prompts})
    tiers = {name: tier | {"aligned_to": space.id, "prompts": prompts} for name, tier in fields["tiers"].items()}
    save_manifest(out, Manifest.model_validate(fields | {"space": space, "tiers": tiers, "name": "instructed"}))
    return out


@pytest.fixture(scope="session")
@_made_once
def base_folder(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2 language model as transformers saves it: what an adapter is put on."""
    return models.build_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
@_made_once
def adapter_pair(
    models: ModuleType, base_folder: Path, bert_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A light pair of 24 dimensions: an adapter over ``base_folder``, its probe, and the BERT as tier ``l2``."""
    import shutil

    from suwen.encoders.adapter import read_factors
    from suwen.encoders.base_model import load_base
    from suwen.encoders.prompts import Prompts
    from suwen.encoders.space import ElsewhereDocument, Manifest, load_manifest, save_manifest
    from suwen.training.ship.exporting import export
    from suwen.training.ship.freezing import freeze

    out = tmp_path_factory.mktemp("adapter") / "pair"
    trained = models.train_lora(load_base(base_folder, device="cpu", max_length=32))
    fixed = {"dimension": 24, "prompts": Prompts(query="问：", document=""), "max_length": 32, "hub_id": "org/base"}
    space = freeze(read_factors(trained), base_folder, out, name="tiny", device="cpu", **fixed).space
    student = tmp_path_factory.mktemp("aligned") / "l2"
    shutil.copytree(bert_folder, student)
    elsewhere = ElsewhereDocument(kind="elsewhere", name="tiny")
    save_manifest(student, Manifest(name="l2", form="full", space=space, document=elsewhere))
    export(student, out, tier="l2", precision="fp32", into=True)
    fields = load_manifest(out).model_dump() | {"form": "light", "default_tier": "l2"}
    save_manifest(out, Manifest.model_validate(fields))
    return out


@pytest.fixture(scope="session")
@_made_once
def exported_pair(
    models: ModuleType, adapter_pair: Path, base_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The pair of ``adapter_pair`` with a second tier, ``static``, that is aligned to its vectors of the sample."""
    import shutil

    from suwen.corpora.sample_collection import sample_passages
    from suwen.encoders.document import DocumentEncoder
    from suwen.encoders.pair import Pair
    from suwen.encoders.space import ElsewhereDocument, Manifest, load_manifest, save_manifest
    from suwen.training.ship.exporting import export

    out = tmp_path_factory.mktemp("exported") / "pair"
    shutil.copytree(adapter_pair, out)
    texts = [passage.content for passage in sample_passages(Pair.load(out).count_tokens)]
    vectors = DocumentEncoder.load(out, base=base_folder, device="cpu").encode(texts)
    student = models.build_lookup(tmp_path_factory.mktemp("lookup") / "static", texts, vectors)
    elsewhere = ElsewhereDocument(kind="elsewhere", name="tiny")
    save_manifest(student, Manifest(name="static", form="full", space=load_manifest(out).space, document=elsewhere))
    export(student, out, tier="static", into=True, max_length=1024)
    return out


@pytest.fixture(scope="session")
def ship_pair() -> ModuleType:
    """The program ``tools/ship_pair.py``."""
    return _module(Path(__file__).parents[1] / "tools" / "ship_pair.py")


@pytest.fixture(scope="session")
@_made_once
def shipped_pair(
    ship_pair: ModuleType, exported_pair: Path, base_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """``exported_pair`` as it would come inside the package: the tier ``static``, and the sample's vectors."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "card.md").write_text("# {{ pair.name }}\nResearch preview, not medical advice. Licences: none.\n")
    asked = [exported_pair, "--base", base_folder, "--card", folder / "card.md", "--tiers", "static", "--device", "cpu"]
    ship_pair.main([*map(str, asked), "--out", str(folder / "pair")])
    return folder / "pair"
