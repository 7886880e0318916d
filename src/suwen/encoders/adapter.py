"""A LoRA adapter on disk, small enough to ship: 8- or 16-bit rows in files of at most 15 MiB, and ``adapter.json``.

An adapter adds ``B @ A`` to the weight of each module it names; the training scale (alpha over rank) is folded into
``B``. peft's own folders are read too. Training one is in ``training/``. Needs the ``train`` extra.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from suwen.durable import write_json
from suwen.encoders.base_model import NumberFormat, load_base
from suwen.encoders.cores import grouped
from suwen.encoders.pair_files import sha256_of_files
from suwen.encoders.side import ModelError
from suwen.encoders.space import AdapterDocument, DamagedPair, Manifest, load_manifest

if TYPE_CHECKING:
    import torch

Bits = Literal[8, 16]
FORMAT = 1
DESCRIPTION = "adapter.json"
#: Hosts and mail gateways refuse single files much larger than this.
LARGEST_FILE = 15 << 20
_PEFT_KEY = re.compile(r"^(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.\w+)?\.weight$")


class Factors(NamedTuple):
    """What one module's weight gains: ``up @ down``, fp32, the scale folded into ``up``."""

    down: torch.Tensor
    up: torch.Tensor

    @property
    def rank(self) -> int:
        """Rows of ``down``."""
        return int(self.down.shape[0])


def save_adapter(
    factors: Mapping[str, Factors],
    folder: Path,
    *,
    bits: Bits = 8,
    rank: int | None = None,
    base: str | None = None,
    base_sha256: str | None = None,
) -> dict[str, Any]:
    """Write an adapter to a new folder.

    Args:
        factors: By module name; :func:`read_factors` takes them off a model.
        folder: Where to write; must not hold an adapter yet.
        bits: 8 stores rows as int8, 16 as fp16; each row has an fp32 scale.
        rank: Cut each ``B @ A`` to its best approximation of this rank; kept as trained by default.
        base: The hub id (or name) of the base.
        base_sha256: What :func:`suwen.encoders.base_model.base_hash` says of it.

    Returns:
        What ``adapter.json`` says.
    """
    if rank is not None:
        factors = {name: cut_rank(whole, rank) for name, whole in factors.items()}
    if any(folder.glob("*.safetensors")) if folder.is_dir() else folder.exists():
        raise ModelError(f"{folder} holds something already: name a new folder for the adapter")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: value for name in sorted(factors) for key, value in _pack(name, factors[name], bits)}
    files = _write(tensors, folder)
    widest = max((each.rank for each in factors.values()), default=0)
    said = {
        "format": FORMAT,
        "rank": widest,
        "alpha": widest,  # the scale of training is in B: alpha over rank is 1
        "bits": bits,
        "target_modules": sorted({name.rpartition(".")[2] for name in factors}),
        "base": base,
        "base_sha256": base_sha256,
        "files": files,
    }
    write_json(folder / DESCRIPTION, said)
    return said


def load_adapter(folder: Path) -> dict[str, Factors]:
    """The factors by module name, fp32, of a folder written by :func:`save_adapter` or by peft.

    Raises:
        ModelError: The folder holds no adapter, or one this project does not read (DoRA, biases, embeddings).
        DamagedPair: A file it names is missing or cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    if (folder / "adapter_config.json").is_file():
        return _load_peft(folder)
    try:
        said = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} has no {DESCRIPTION} that can be read ({error}): name an adapter folder") from error
    if said["format"] > FORMAT:
        raise ModelError(f"{folder} has format {said['format']}, newer than {FORMAT}: upgrade suwen")
    tensors: dict[str, Any] = {}
    for name in said["files"]:
        try:
            tensors |= load_file(folder / name)
        except (OSError, SafetensorError) as error:
            raise DamagedPair(f"{folder / name} cannot be read ({error}): copy the adapter again") from error
    return {key.removesuffix(".A"): _unpack(tensors, key.removesuffix(".A")) for key in tensors if key.endswith(".A")}


def adapter_of(pair: Path) -> Path:
    """The adapter's folder inside a pair's.

    Raises:
        ModelError: The pair has none.
    """
    document = load_manifest(pair).document
    if not isinstance(document, AdapterDocument):
        raise ModelError(f"{pair} has no adapter: name a pair that a recipe's stage `export` wrote")
    return Path(pair) / document.path


def apply_adapter(model: Any, folder: Path) -> Any:
    """Add an adapter into the weights of a base, in place: computed in fp32, then cast.

    Args:
        model: A ``SentenceTransformer`` whose first module is the transformer, or the transformer itself.
        folder: The adapter.

    Raises:
        ModelError: The base has not the modules, or not the shapes, the adapter was trained on.
    """
    import torch

    root = transformer_of(model)
    factors = load_adapter(folder)
    targets = [_target(root, name, each) for name, each in factors.items()]  # all of them before the first changes
    with torch.no_grad():
        for target, (down, up) in zip(targets, factors.values(), strict=True):
            weight = target.weight
            gained = up.to(weight.device) @ down.to(weight.device)
            weight.copy_((weight.float() + gained).to(weight.dtype))
    return model


def load_adapted(
    root: Path, manifest: Manifest, base: str | Path, *, device: str | None = None, dtype: NumberFormat = "auto"
) -> Any:
    """A pair's document encoder in memory: its base from ``base``, its adapter merged in, as a ``SentenceTransformer``.

    Whether the base is the right one is left to the probe.

    Raises:
        DamagedPair: The adapter is not the one the space was minted with.
    """
    space, document = manifest.space, manifest.document
    if not isinstance(document, AdapterDocument):
        raise ModelError(f"{root} holds no adapter: its documents are encoded by a {document.kind}")
    folder = root / document.path
    if space.adapter is None or adapter_sha256(folder) != space.adapter.sha256:
        raise DamagedPair(f"{folder} is not the adapter {space.id} was minted with: copy the pair again")
    contract: Any = {"max_length": space.max_length, "end_token": space.end_token, "normalise": space.normalise}
    model = load_base(base, device=device, dtype=dtype, **contract)
    model.prompts.update(query=space.prompts.query, document=space.prompts.document)
    return apply_adapter(model, folder)


def apply_lora(
    model: Any,
    *,
    rank: int,
    alpha: float,
    dropout: float = 0.0,
    modules: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
) -> Any:
    """Put a fresh LoRA of peft on a base, in place: only its matrices are trainable, and it changes nothing yet.

    Raises:
        ModelError: The base has none of the modules.
    """
    from peft import LoraConfig, inject_adapter_in_model

    settings: dict[str, Any] = {"r": rank, "lora_alpha": alpha, "lora_dropout": dropout}
    config = LoraConfig(**settings, target_modules=list(modules))
    try:
        inject_adapter_in_model(config, transformer_of(model))
    except ValueError as error:
        raise ModelError(f"the base has none of the modules {', '.join(modules)}: name linear layers of it") from error
    return model


def load_lora(model: Any, folder: Path, *, dropout: float = 0.0, trainable: bool = True, scale: float = 1.0) -> Any:
    """Put a stored adapter on a base as a LoRA of peft that stays apart, in place.

    Args:
        model: As in :func:`apply_adapter`.
        folder: The adapter.
        dropout: Of the adapter's input, while it is trained.
        trainable: Whether its matrices take gradients; nothing else of the model does.
        scale: What its upper matrices are multiplied by in the model, and so divided by here: the alpha over rank of a
            training that goes on as it began.
    """
    import torch
    from peft import LoraConfig, inject_adapter_in_model

    root, factors = transformer_of(model), load_adapter(folder)
    for name, each in factors.items():
        _target(root, name, each)
    most = max(each.rank for each in factors.values())
    others = {f"^{re.escape(name)}$": each.rank for name, each in factors.items() if each.rank != most}
    alpha: Any = most * scale
    config = LoraConfig(
        r=most,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=list(factors),
        rank_pattern=others,
        alpha_pattern={name: rank * scale for name, rank in others.items()},
    )
    inject_adapter_in_model(config, root)
    with torch.no_grad():
        for name, (down, up) in factors.items():
            layer = root.get_submodule(name)
            for half, values in ((layer.lora_A, down), (layer.lora_B, up / scale)):
                matrix = half["default"].weight
                matrix.copy_(values)
                matrix.requires_grad_(trainable)
    return model


def adapter_sha256(folder: Path) -> str:
    """The hash a space is minted with: of the adapter's safetensors files, which hold all that is applied."""
    names = [file.name for file in Path(folder).glob("*.safetensors")]
    if not names:
        raise ModelError(f"{folder} holds no adapter (*.safetensors): name the adapter's folder")
    return sha256_of_files(Path(folder), names)


def read_factors(model: Any) -> dict[str, Factors]:
    """The factors of the LoRA layers a model carries, by the module's name in the bare transformer."""
    factors = {}
    for name, module in transformer_of(model).named_modules():
        if not (hasattr(module, "lora_A") and len(module.lora_A)):
            continue
        if len(module.lora_A) != 1:
            raise ModelError(f"{name} carries {len(module.lora_A)} adapters: keep the one to ship")
        (key,) = module.lora_A
        if getattr(module, "use_dora", {}).get(key) or module.lora_B[key].bias is not None:
            raise ModelError(f"{name} has DoRA or a LoRA bias, which an adapter file does not hold: train plain LoRA")
        down = module.lora_A[key].weight.detach().float().cpu()
        up = module.lora_B[key].weight.detach().float().cpu() * float(module.scaling[key])
        factors[name.removeprefix("base_model.model.")] = Factors(down, up)
    if not factors:
        raise ModelError("the model carries no LoRA layer of peft: it was merged, or never had one")
    return factors


def add_up(parts: Sequence[tuple[Mapping[str, Factors], float]]) -> dict[str, Factors]:
    """Adapters of one base as one, each with its share: what a weight gains is the sum of what each share gives it.

    Factors stand side by side, so ranks add up; :func:`cut_rank` makes them smaller again.

    Raises:
        ModelError: They are of other modules.
    """
    import torch

    names = list(parts[0][0])
    for factors, _ in parts[1:]:
        if set(factors) != set(names):
            raise ModelError("the adapters change different modules: average those that were trained on the same ones")
    return {
        name: Factors(
            torch.cat([factors[name].down for factors, _ in parts]),
            torch.cat([share * factors[name].up for factors, share in parts], dim=1),
        )
        for name in names
    }


def cut_rank(factors: Factors, rank: int) -> Factors:
    """The best approximation of ``up @ down`` of a lower rank, found among the factors: the product is never formed.

    With ``up = Q R`` and ``downᵀ = P S``, the singular values of the product are those of the small ``R Sᵀ``.
    """
    import torch

    if rank < 1:
        raise ModelError(f"rank {rank} leaves nothing of the adapter: choose at least 1")
    if rank >= factors.rank:
        return factors
    q, r = torch.linalg.qr(factors.up.double())
    p, s = torch.linalg.qr(factors.down.double().T)
    left, values, right = torch.linalg.svd(r @ s.T, full_matrices=False)
    root = values[:rank].sqrt()  # shared between both, so that neither loses to the rounding of small numbers
    up, down = q @ left[:, :rank] * root, root[:, None] * (right[:rank] @ p.T)
    return Factors(down.float().contiguous(), up.float().contiguous())


def transformer_of(model: Any) -> Any:
    """The transformers model inside a ``SentenceTransformer``, or the model itself."""
    if type(model).__name__ == "SentenceTransformer":
        return next(iter(model)).model
    return model


def _target(root: Any, name: str, factors: Factors) -> Any:
    body = getattr(root, "base_model_prefix", "model")
    if not hasattr(root, body):  # of an adapter that was trained on the model with its head
        name = name.removeprefix(f"{body}.")
    try:
        module = root.get_submodule(name)
        shape = tuple(module.weight.shape)
    except AttributeError as error:
        raise ModelError(f"the base has no module {name}, which the adapter adds to: this is another base") from error
    wanted = (factors.up.shape[0], factors.down.shape[1])
    if shape != wanted:
        raise ModelError(f"{name} of the base is {shape} and the adapter's {wanted}: this is another base")
    return module


def _pack(name: str, factors: Factors, bits: Bits) -> Iterator[tuple[str, torch.Tensor]]:
    """Both factors as ``rank`` rows (``B`` turned), since what differs in size is the components, each with a scale."""
    import torch

    for key, rows in (("A", factors.down), ("B", factors.up.T)):
        most = rows.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny)
        scale = most / 127 if bits == 8 else most
        packed = rows / scale[:, None]
        yield f"{name}.{key}", (packed.round().to(torch.int8) if bits == 8 else packed.half()).contiguous()
        yield f"{name}.{key}.scale", scale.float().contiguous()


def _unpack(tensors: Mapping[str, torch.Tensor], name: str) -> Factors:
    try:
        down, up = (tensors[f"{name}.{key}"].float() * tensors[f"{name}.{key}.scale"][:, None] for key in "AB")
    except KeyError as error:
        raise DamagedPair(f"the adapter lacks the tensor {error}: copy it again") from error
    return Factors(down, up.T.contiguous())


def _write(tensors: Mapping[str, torch.Tensor], folder: Path) -> list[str]:
    """Fill files in order up to the largest size; a tensor that is larger by itself gets its own."""
    from safetensors.torch import save_file

    room = LARGEST_FILE - (64 << 10)  # the header of a file
    groups = list(grouped(tensors.items(), lambda item: item[1].nbytes, room)) or [[]]
    names = [f"adapter-{number:02d}-of-{len(groups):02d}.safetensors" for number in range(1, len(groups) + 1)]
    for name, group in zip(names, groups, strict=True):
        save_file(dict(group), folder / name)
    return names


def _load_peft(folder: Path) -> dict[str, Factors]:
    from safetensors.torch import load_file

    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    unread = [key for key in ("use_dora", "lora_bias", "modules_to_save", "alpha_pattern") if config.get(key)]
    if config.get("peft_type") != "LORA" or unread:
        raise ModelError(
            f"{folder} is a {config.get('peft_type')} adapter with {', '.join(unread) or 'nothing more'}, which is not "
            f"plain LoRA: merge it into its base with peft and name the merged folder"
        )
    if not (folder / "adapter_model.safetensors").is_file():
        raise ModelError(f"{folder} has no adapter_model.safetensors: save the adapter again as safetensors")
    halves: dict[str, dict[str, Any]] = {}
    for key, value in load_file(folder / "adapter_model.safetensors").items():
        match = _PEFT_KEY.match(key)
        if match is None:
            raise ModelError(
                f"{folder} holds {key!r}, which is not a LoRA factor of a linear layer: merge it with peft"
            )
        halves.setdefault(match[1], {})[match[2]] = value.float()
    factors = {}
    for name, half in halves.items():
        rank = half["A"].shape[0]
        scale = config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank)
        factors[name] = Factors(half["A"], half["B"] * scale)
    return factors
