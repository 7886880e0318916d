"""Released weights into a full pair: plain transformers, sentence-transformers, LoRA adapters, two towers.

What the files say, and what is asked for, is in ``released.py``. Needs the ``train`` extra.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suwen.durable import new_folder
from suwen.encoders import released
from suwen.encoders.adapter import apply_adapter
from suwen.encoders.base_model import open_transformer, quietly
from suwen.encoders.document import DocumentEncoder
from suwen.encoders.pair_files import sha256_of
from suwen.encoders.prompts import Form, Prompts
from suwen.encoders.released import Contract, ImportProblem
from suwen.encoders.side import Side, document_files, load_model, local_folder, mint_space
from suwen.encoders.space import Manifest, ModelDocument, Tier, TierDocument, save_manifest

if TYPE_CHECKING:
    import torch

#: The name of the tier that is the model itself.
TIER = "model"
_MODES = {"cls": "cls", "mean": "mean", "last": "lasttoken"}


def import_model(
    source: str | Path,
    out: Path,
    *,
    told: Contract | None = None,
    like: str | None = None,
    query: str | None = None,
    base: str | None = None,
    tokenizer: str | None = None,
    query_tokenizer: str | None = None,
    name: str | None = None,
    licence: str = "",
    trust_remote_code: bool = False,
) -> Manifest:
    """Bring a released model into a full pair; whole or not at all.

    Args:
        source: A folder or a hub id: a model, an adapter, or a folder with two towers in it.
        out: The pair to write. It loads with ``SentenceTransformer(out)`` too, and `suwen export` makes it light.
        told: What the files leave open, or say wrongly.
        like: The layout it comes in, where its name does not tell: one of ``known_models.toml``.
        query: The query tower, where ``source`` is the document tower alone.
        base: An adapter's base, where ``adapter_config.json`` names one that is not here.
        tokenizer: Where the tokenizer is, if ``source`` brings none.
        query_tokenizer: Likewise, of the query tower.
        name: The pair's name.
        licence: The licence of the weights.
        trust_remote_code: Run Python code that comes with the model. Only for models you trust.

    Returns:
        The pair's manifest; its notes say which layout the model was taken for.

    Raises:
        ImportProblem: Something is missing or unknown; the message names the option that gives it.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ImportProblem(f"{out} exists: name a new folder, or remove it")
    folder, tokenizers = local_folder(source), {"document": tokenizer, "query": query_tokenizer}
    layout, known = released.find_layout(str(source), folder, like)
    paths = _towers(folder, known["towers"], query)
    with tempfile.TemporaryDirectory() as scratch, new_folder(out) as stage, quietly():
        joined = {
            form: released.join_folders(path, Path(scratch) / form, base, tokenizers[form])
            for form, path in paths.items()
        }
        contract = (told or Contract()).over(released.read_contract(joined["document"][0]))
        contract = contract.over(Contract(**known["contract"]))
        for form, (place, _) in joined.items():
            released.check_folder(place, form, trust_remote_code)
        plain = [form for form, (place, _) in joined.items() if not (place / "modules.json").is_file()]
        released.ask_for_missing(contract, plain, str(source))
        built = {form: _tower(form, *joined[form], contract, trust_remote_code) for form in joined}
        asked = Prompts.filled(contract.query_prompt or "", contract.document_prompt or "", contract.instruction or "")
        name = name or released.hub_name(folder).rpartition("/")[2]
        about = {"name": name, "licence": licence, "notes": f"imported as {layout or 'it is'}"}
        manifest = _write(_of_one_width(built, contract), asked, contract, stage, source, about)
        # As it will be loaded: what cannot encode is not published.
        DocumentEncoder.of_tier(stage, manifest, TIER, trust_remote_code).encode(["a", "血压"], form="query")
    return manifest


def _towers(folder: Path, places: Mapping[Form, str], query: str | None) -> dict[Form, Path]:
    """The folder of each tower; a model that is one alone is its document tower."""
    named: dict[Form, Path] = {"query": local_folder(query)} if query else {}
    paths: dict[Form, Path] = {"document": folder, **released.towers(folder, places), **named}
    if missing := places.keys() - paths.keys():
        raise ImportProblem(f"{folder} has no {places[missing.pop()]}, one of two towers: give it with --query")
    return paths


def cut(weight: torch.Tensor, full: int, dimension: int) -> Any:
    """A frozen identity that keeps the first dimensions, in a weight's type: no custom code in a saved model."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense

    made = Dense(full, dimension, bias=False, activation_function=torch.nn.Identity())
    with torch.no_grad():
        made.linear.weight.copy_(torch.eye(dimension, full))
    return made.requires_grad_(False).to(device=weight.device, dtype=weight.dtype)


def _tower(form: Form, folder: Path, adapter: Path | None, contract: Contract, trust_remote_code: bool) -> list[Any]:
    """The modules of one tower, with its length and its end token, before any cut or normalisation is added."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    pooling = (contract.query_pooling if form == "query" else None) or contract.pooling
    plain = not (folder / "modules.json").is_file()
    if plain:
        modules = [open_transformer(folder, "auto", None, trust_remote_code=trust_remote_code), None]
    else:
        modules = list(load_model(folder, device="cpu", trust_remote_code=trust_remote_code)[0])
    if not hasattr(modules[0], "model"):  # a Router, or a table of tokens: it says all of it
        return modules
    if adapter is not None:
        apply_adapter(modules[0].model, adapter)
    if pooling is not None:
        modules[1] = Pooling(modules[0].get_embedding_dimension(), _MODES[pooling])
    side = Side(SentenceTransformer(modules=modules, device="cpu"), "document")
    _set_tokens(side, form, plain, contract, folder)
    return modules


def _set_tokens(side: Side, form: Form, plain: bool, contract: Contract, folder: Path) -> None:
    """Set the length and the end token; where the last token is pooled, somebody has to say whether there is one."""
    module, tokenizer = side.modules[0], side.tokenizer
    length = (contract.query_max_length if form == "query" else None) or contract.max_length
    stated = module.max_seq_length or getattr(module.model.config, "max_position_embeddings", None)
    if not length and not stated:
        raise ImportProblem(f"the files of {folder} do not say how many tokens a text may have (--max-length)")
    module.max_seq_length = min(length or side.max_length, side.max_length)
    last, eos = side.pooling == "last", tokenizer.eos_token
    token = contract.end_token if last else ""
    if token is None and plain and side.end_token != eos:
        raise ImportProblem(
            f"the files of {folder} do not say which token ends a text, whose last one is pooled: give --end-token "
            f"(eos for {eos!r}, '' for none)"
        )
    if token == "eos" and eos is None:
        raise ImportProblem(f"the tokenizer of {folder} names no end-of-text token: give it with --end-token")
    if token:
        side.require_end_token(eos if token == "eos" else token)
    tokenizer.padding_side, tokenizer.pad_token = "right", tokenizer.pad_token or eos or token


def _of_one_width(towers: Mapping[Form, list[Any]], contract: Contract) -> Mapping[Form, list[Any]]:
    """The towers with what makes their vectors comparable: the cut, and the normalisation in its place."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize

    if type(towers["document"][0]).__name__ == "Router":
        return towers
    widths = {
        form: int(SentenceTransformer(modules=modules, device="cpu").get_embedding_dimension() or 0)
        for form, modules in towers.items()
    }
    dimension = contract.dimension or (min if contract.unit_before_cut else max)(widths.values())
    if dimension > min(widths.values()):
        raise ImportProblem(f"vectors have {widths} dimensions: give --dimension, the width to cut them to")
    for form, modules in towers.items():
        if type(modules[-1]).__name__ == "Normalize":
            modules.pop()
        modules += [Normalize()] if contract.unit_before_cut else []
        if dimension < widths[form]:
            modules.append(cut(next(modules[0].parameters()), widths[form], dimension))
        modules += [Normalize()] if contract.similarity == "cosine" else []
    return towers


def _write(
    towers: Mapping[Form, list[Any]],
    prompts: Prompts,
    contract: Contract,
    stage: Path,
    source: str | Path,
    about: Mapping[str, str],
) -> Manifest:
    """Save the model as sentence-transformers does, and its manifest beside it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    modules = towers["document"]
    if "query" in towers:
        modules = [
            Router({str(form): each for form, each in towers.items()}, default_route=None, allow_empty_key=False)
        ]
    model: Any = SentenceTransformer(
        modules=modules,
        device="cpu",
        prompts={"query": prompts.query, "document": prompts.document},
        similarity_fn_name=contract.similarity,
    )
    model.save(str(stage))
    hub_id = None if Path(source).is_dir() else str(source)
    space, side = mint_space(model, stage, hub_id=hub_id, prompts=prompts), Side(model, "query")
    router = type(modules[0]).__name__ == "Router"
    every = (*stage.rglob("*.safetensors"), *stage.rglob("tokenizer.json"))
    names = {file.relative_to(stage).as_posix() for file in every} - set(document_files(stage) if router else ())
    config = getattr(getattr(side.modules[0], "model", None), "config", None)
    tier = Tier(
        kind="torch",
        path=".",
        files={name: sha256_of(stage / name) for name in sorted(names)},
        prompts=prompts.model_copy(update={"document": ""}) if router else prompts,
        max_length=side.max_length,
        precision="fp32",
        layers=getattr(config, "num_hidden_layers", None),
        width=getattr(config, "hidden_size", None),
        aligned_to=space.id,
    )
    manifest = Manifest(
        name=about["name"],
        licence=about["licence"],
        notes=about["notes"],
        form="full",
        space=space,
        tiers={TIER: tier},
        default_tier=TIER,
        document=ModelDocument(kind="router", path=".") if router else TierDocument(kind="tier", tier=TIER),
    )
    save_manifest(stage, manifest)
    return manifest
