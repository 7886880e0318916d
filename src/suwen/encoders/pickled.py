"""Weights that are a pickle, which runs code when it is opened: found by their names, and how to convert them.

Nothing is opened here, and torch is not loaded: a model is refused before the seconds that takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_ENDINGS = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def pickled_weights(folder: Path) -> Iterator[Path]:
    """The pickles under a folder that have no safetensors beside them."""
    for ending in _ENDINGS:
        for file in sorted(folder.rglob(ending)):
            if file.name != "training_args.bin" and not any(file.parent.glob("*.safetensors")):
                yield file


def refusal(file: Path) -> str:
    """Why a pickle is not read, and the one line that puts safetensors beside it."""
    why = "is a pickle, which may run code when it is read, and is not read here. If you trust it, convert it with: "
    config = file.with_name("config.json")
    # A module of sentence-transformers, such as a Dense layer, has a config.json too, but is no model of its own.
    if config.is_file() and '"model_type"' in config.read_text(encoding="utf-8", errors="replace"):
        make = "AutoModel.from_pretrained(m).save_pretrained(m)"
        return f"{why}python -c \"from transformers import AutoModel; m = '{file.parent}'; {make}\""
    make = f"save_file(torch.load('{file}', weights_only=True), '{file.with_name('model.safetensors')}')"
    return f'{why}python -c "import torch; from safetensors.torch import save_file; {make}"'
