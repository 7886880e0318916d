"""What a released model's files say of its contract, and what they lack. No weights are read here.

Prompts, pooling, lengths, end token and similarity are taken from the options, else from the files, else from
``known_models.toml``; what none of them says is asked for, all of it in one message.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from suwen.choices import Pooling as Pooling
from suwen.encoders.base_model import transformer_folder
from suwen.encoders.pickled import pickled_weights, refusal
from suwen.encoders.prompts import Form
from suwen.encoders.side import local_folder
from suwen.errors import SuwenError

_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
)
#: Of a folder whose tokenizer is wanted: what belongs to it.
_OF_TOKENIZER = re.compile(r"tokenizer.*|vocab.*|merges\.txt|.*\.model|special_tokens_map\.json|added_tokens\.json")


class ImportProblem(SuwenError):
    """A released model that cannot be brought into a pair: what is missing, and how to give it."""


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What fixes a space beside weights and tokenizer; None where nothing says it.

    Attributes:
        pooling: How tokens become one vector.
        query_pooling: Of the query tower, where it differs.
        query_prompt: What stands before a query; ``{instruction}`` in it is the place of an instruction.
        document_prompt: What stands before a document.
        instruction: The one of queries that bring none.
        similarity: How vectors are compared; by ``dot`` they keep their lengths.
        max_length: Tokens of a text, the end token among them.
        query_max_length: Of the query tower, where it differs.
        end_token: Put after every text and kept when it is cut: ``eos`` for the tokenizer's own, empty for none.
        dimension: Where vectors are cut.
        unit_before_cut: Vectors get length one before they are cut to the narrower tower's width, and not after.
    """

    pooling: Pooling | None = None
    query_pooling: Pooling | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    instruction: str | None = None
    similarity: Literal["cosine", "dot"] | None = None
    max_length: int | None = None
    query_max_length: int | None = None
    end_token: str | None = None
    dimension: int | None = None
    unit_before_cut: bool | None = None

    def over(self, other: Contract) -> Contract:
        """This one, with what it leaves open from another."""
        return replace(other, **{name: value for name, value in asdict(self).items() if value is not None})


def _known() -> Mapping[str, Any]:
    """The layouts that are known, by name."""
    return tomllib.loads(Path(__file__).with_name("known_models.toml").read_text(encoding="utf-8"))


def hub_name(folder: Path) -> str:
    """The name of a model's folder; of a snapshot in the hub's cache the id that it has on the hub.

    >>> hub_name(Path("cache/models--ncbi--MedCPT-Query-Encoder/snapshots/4a9b"))
    'ncbi/MedCPT-Query-Encoder'
    """
    whole = folder.resolve()
    cached = whole.parent.parent.name if whole.parent.name == "snapshots" else ""
    return cached.removeprefix("models--").replace("--", "/") if cached.startswith("models--") else whole.name


def find_layout(source: str, folder: Path, like: str | None = None) -> tuple[str | None, Mapping[str, Any]]:
    """The layout named, or the one a model looks like by its name or by the towers in it, and what is known of it."""
    known = _known()
    name = (hub_name(Path(source)) if Path(source).is_dir() else source).lower()
    for layout, said in known.items():
        named, here = any(part.lower() in name for part in said["names"]), towers(folder, said["towers"])
        if like == layout or (like is None and (named or len(here) == 2)):
            return layout, said
    if like is not None:
        raise ImportProblem(f"no layout is called {like!r}: choose one of {', '.join(known)}, or leave --like out")
    return None, {"towers": {}, "contract": {}}


def towers(folder: Path, places: Mapping[Form, str]) -> dict[Form, Path]:
    """The folders of the towers of a layout, as far as they are there."""
    there = {form: sorted(folder.glob(place)) for form, place in places.items()}
    return {form: paths[0] for form, paths in there.items() if paths}


def join_folders(folder: Path, scratch: Path, base: str | None, tokenizer: str | None) -> tuple[Path, Path | None]:
    """A folder to load a tower from, and the adapter to merge into it.

    A LoRA adapter's folder is laid over its base's, and a tokenizer from elsewhere over both, by links.
    """
    said = read_json(folder / "adapter_config.json")
    layers = [folder]
    if said:
        named = base or said.get("base_model_name_or_path") or "a base it does not name"
        try:
            layers = [local_folder(named), folder]
        except SuwenError as problem:
            raise ImportProblem(
                f"{folder} is an adapter over {named}, which is not here: name it with --base"
            ) from problem
    if tokenizer:
        layers.append(local_folder(tokenizer))
    if layers == [folder]:
        return folder, None
    scratch.mkdir()
    for layer in layers:
        for entry in layer.iterdir():
            whole = layer is not layers[-1] or not tokenizer
            if not entry.name.startswith("adapter_") and (whole or _OF_TOKENIZER.fullmatch(entry.name)):
                (scratch / entry.name).unlink(missing_ok=True)
                (scratch / entry.name).symlink_to(entry.resolve())
    return scratch, folder if said else None


def check_folder(folder: Path, form: Form, trust_remote_code: bool) -> None:
    """Refuse a folder that holds no model, no safetensors, no tokenizer, or an architecture nobody here knows.

    Raises:
        ImportProblem: With the reason and the fix.
    """
    inner = transformer_folder(folder)
    config = read_json(inner / "config.json")
    kind, coded = config.get("model_type"), "auto_map" in config
    if pickle := next((file for file in pickled_weights(inner) if file.parent == inner), None):
        raise ImportProblem(f"{pickle} {refusal(pickle)}")
    # Not sooner: it takes torch with it.
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    weights = any(inner.glob("*.safetensors"))
    problems = {
        "has no config.json: name the folder of a model, as transformers saves one": not config,
        "has no weights (*.safetensors): download the model whole": not weights,
        f"has no tokenizer: give its base's with --{'query-' * (form == 'query')}tokenizer": not any(
            (inner / name).is_file() for name in _TOKENIZERS
        ),
        f"is a {kind!r}, whose code comes with the model and is not run unasked. If you trust it, give "
        "--trust-remote-code, and use the pair with SUWEN_TRUST_REMOTE_CODE=1": coded
        and kind not in CONFIG_MAPPING
        and not trust_remote_code,
        f"is a {kind!r}, an architecture this transformers does not know: upgrade it": not coded
        and kind not in CONFIG_MAPPING,
    }
    if problem := next((text for text, is_so in problems.items() if is_so), None):
        raise ImportProblem(f"{inner} {problem}")


def read_contract(folder: Path) -> Contract:
    """What a sentence-transformers folder says of its prompts and similarity; nothing of a plain transformers one."""
    if not (folder / "modules.json").is_file():
        return Contract()
    said, modules = read_json(folder / "config_sentence_transformers.json"), read_json(folder / "modules.json")
    unit, prompts = modules[-1]["type"].endswith("Normalize"), said.get("prompts") or {}
    # Others, such as a Euclidean distance, are not searched by: whether one of ours will do is for the user to say.
    similarity = "cosine" if unit else {"cosine": "cosine", "dot": "dot"}.get(str(said.get("similarity_fn_name")))
    default = prompts.get(str(said.get("default_prompt_name")), "")
    document = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), default)
    return Contract(
        **{"query_prompt": prompts.get("query", default), "document_prompt": document, "similarity": similarity}
    )


def ask_for_missing(contract: Contract, plain: Collection[Form], source: str) -> None:
    """Name every option for what neither the files nor the options say.

    Args:
        contract: What is known.
        plain: The towers whose own files do not say how they pool.
        source: The model.
    """
    wanted = {
        "how tokens are pooled (--pooling cls, mean or last)": contract.pooling or "document" not in plain,
        "how the query tower pools (--query-pooling cls, mean or last)": contract.query_pooling
        or contract.pooling
        or "query" not in plain,
        "how vectors are compared (--similarity cosine or dot)": contract.similarity,
        "what stands before a query (--query-prompt, '' for nothing)": contract.query_prompt is not None,
        "what stands before a document (--document-prompt, '' for nothing)": contract.document_prompt is not None,
    }
    if missing := [text for text, known in wanted.items() if not known]:
        raise ImportProblem(
            f"the files of {source} do not say {'; '.join(missing)}. If it is a known model under another name, "
            f"--like says all of it: {', '.join(_known())}"
        )


def read_json(file: Path) -> Any:
    """What a JSON file holds, nothing where there is no such file."""
    try:
        return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError as problem:
        raise ImportProblem(f"{file} is not JSON ({problem}): download it again") from problem
