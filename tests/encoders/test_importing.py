"""Released weights, layout by layout: small models saved on the spot, and their vectors by plain transformers code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suwen.encoders.document import DocumentEncoder
from suwen.encoders.importing import import_model
from suwen.encoders.pair import Pair
from suwen.encoders.released import Contract, ImportProblem, hub_name
from suwen.encoders.side import ModelError, load_model
from suwen.encoders.space import load_manifest

TEXTS = ["高血压患者应低盐饮食", "aspirin lowers the risk of a second heart attack", "多久", "血压 " * 400]


def vectors_by_hand(
    folder: Path, texts: list[str], pooling: str, *, length: int, end: bool = False, adapter: Path | None = None
) -> np.ndarray:
    """One text at a time through AutoModel and AutoTokenizer: no module of this project takes part."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).float().eval()
    if adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, adapter).eval()
    rows = []
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=length - end)["input_ids"]
        ids = torch.tensor([ids + ([tokenizer.eos_token_id] if end else [])])
        with torch.no_grad():
            states = model(input_ids=ids).last_hidden_state[0]
        rows.append({"cls": states[0], "last": states[-1], "mean": states.mean(0)}[pooling].numpy())
    return np.stack(rows)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.fixture(scope="module")
def plain_bert(models: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of 32 dimensions as transformers saves it."""
    return models.save_bert(tmp_path_factory.mktemp("bert") / "encoder")


@pytest.fixture(scope="module")
def neox(models: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-NeoX language model, head and all, in a folder that is called as the released ones are."""
    return models.save_decoder(tmp_path_factory.mktemp("neox") / "BMRetriever-410M")


@pytest.mark.parametrize("kind", ["GPTNeoX", "Mistral", "Gemma"])
def test_bmretriever(kind: str, neox: Path, models: Any, tmp_path: Path) -> None:
    neox = neox if kind == "GPTNeoX" else models.save_decoder(tmp_path / "BMRetriever-7B", kind)
    made = import_model(neox, tmp_path / "pair")
    space = made.space
    assert made.notes == "imported as bmretriever"
    assert (space.pooling, space.similarity, space.normalise) == ("last", "dot", False)
    assert (space.end_token, space.max_length) == ("<|end|>", 512)
    pair = Pair.load(tmp_path / "pair")
    instruction = "Given a claim, retrieve documents"
    passages = [f"Represent this passage\npassage: {text}" for text in TEXTS]
    queries = [f"{instruction}\nQuery: {text}" for text in TEXTS]
    close(pair.encoder().encode_documents(TEXTS), vectors_by_hand(neox, passages, "last", length=512, end=True))
    close(
        pair.encoder().encode_queries(TEXTS, instruction), vectors_by_hand(neox, queries, "last", length=512, end=True)
    )
    # The long text is cut to 511 tokens, and its end token stays.
    assert pair.count_tokens(TEXTS)[-1] > 600
    close(DocumentEncoder.load(tmp_path / "pair", device="cpu").encode(TEXTS[:2]), pair.encoder().encode(TEXTS[:2]))


def test_the_name_of_a_folder_or_an_option_tells_the_layout(neox: Path, tmp_path: Path) -> None:
    shutil.copytree(neox, tmp_path / "renamed")
    with pytest.raises(ImportProblem, match=r"--pooling.*--similarity.*-prompt.*--like .*bmretriever"):
        import_model(tmp_path / "renamed", tmp_path / "pair")
    assert not (tmp_path / "pair").exists()
    made = import_model(tmp_path / "renamed", tmp_path / "pair", like="bmretriever", told=Contract(max_length=32))
    assert (made.notes, made.space.max_length) == ("imported as bmretriever", 32)
    with pytest.raises(ImportProblem, match="care, medcpt, bmretriever"):
        import_model(neox, tmp_path / "other", like="somebody")


def test_a_snapshot_in_the_hubs_cache_is_known_by_the_name_it_has_on_the_hub(neox: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--BMRetriever--BMRetriever-410M" / "snapshots" / "0ad1"
    shutil.copytree(neox, snapshot)
    made = import_model(snapshot, tmp_path / "pair")
    assert (made.name, made.notes) == ("BMRetriever-410M", "imported as bmretriever")
    assert hub_name(tmp_path / "models--a--b" / "mine") == "mine" and hub_name(tmp_path / "snapshots" / "x") == "x"


def test_a_plain_decoder_asks_for_its_end_token(neox: Path, tmp_path: Path) -> None:
    shutil.copytree(neox, tmp_path / "plain")
    told = Contract(pooling="last", similarity="cosine", query_prompt="", document_prompt="", max_length=64)
    with pytest.raises(ImportProblem, match="--end-token"):
        import_model(tmp_path / "plain", tmp_path / "pair", told=told)
    bare = Contract(end_token="", dimension=16).over(told)
    import_model(tmp_path / "plain", tmp_path / "pair", told=bare)
    theirs = vectors_by_hand(neox, TEXTS, "last", length=64)
    close(Pair.load(tmp_path / "pair").encoder().encode_queries(TEXTS), unit(theirs[:, :16]))


def test_a_plain_encoder(plain_bert: Path, tmp_path: Path) -> None:
    told = Contract(pooling="mean", similarity="cosine", query_prompt="问：", document_prompt="")
    made = import_model(plain_bert, tmp_path / "pair", told=told, name="bert", licence="MIT")
    assert (made.name, made.licence, made.space.end_token) == ("bert", "MIT", "[SEP]")
    encoder = Pair.load(tmp_path / "pair").encoder()
    close(encoder.encode_documents(TEXTS), unit(vectors_by_hand(plain_bert, TEXTS, "mean", length=64)))
    asked = [f"问：{text}" for text in TEXTS]
    close(encoder.encode_queries(TEXTS), unit(vectors_by_hand(plain_bert, asked, "mean", length=64)))


def test_medcpt(plain_bert: Path, models: Any, tmp_path: Path) -> None:
    both = tmp_path / "medcpt"
    shutil.copytree(plain_bert, both / "MedCPT-Article-Encoder")
    models.save_bert(both / "MedCPT-Query-Encoder", seed=3)
    made = import_model(both, tmp_path / "pair", told=Contract(query_max_length=12))
    assert (made.notes, made.document.kind, made.space.similarity) == ("imported as medcpt", "router", "dot")
    pair = Pair.load(tmp_path / "pair")
    asked = vectors_by_hand(both / "MedCPT-Query-Encoder", TEXTS, "cls", length=12)
    close(pair.encoder().encode_queries(TEXTS), asked)
    close(
        DocumentEncoder.load(tmp_path / "pair", device="cpu").encode(TEXTS),
        vectors_by_hand(plain_bert, TEXTS, "cls", length=64),
    )
    # The same from two places, and from one alone.
    other = import_model(
        plain_bert,
        tmp_path / "two",
        like="medcpt",
        query=str(both / "MedCPT-Query-Encoder"),
        told=Contract(query_max_length=12),
    )
    assert other.space.id == made.space.id
    with pytest.raises(ImportProblem, match="Query-Encoder"):
        import_model(plain_bert, tmp_path / "one", like="medcpt")


def test_care(plain_bert: Path, base_folder: Path, tmp_path: Path) -> None:
    both = tmp_path / "care"
    for tower, source in (("query_encoder", plain_bert), ("doc_encoder", base_folder)):
        shutil.copytree(source, both / tower, ignore=shutil.ignore_patterns("*token*"))
    with pytest.raises(ImportProblem, match=r"doc_encoder has no tokenizer.*--tokenizer"):
        import_model(both, tmp_path / "pair")
    made = import_model(both, tmp_path / "pair", tokenizer=str(base_folder), query_tokenizer=str(plain_bert))
    space = made.space
    assert (made.notes, space.dimension, space.similarity, space.normalise) == ("imported as care", 32, "dot", False)
    pair = Pair.load(tmp_path / "pair")
    theirs = unit(vectors_by_hand(base_folder, TEXTS, "last", length=128))[:, :32]
    close(DocumentEncoder.load(tmp_path / "pair", device="cpu").encode(TEXTS), theirs)
    asked = [f"<instruct>找药\n<query>{text}" for text in TEXTS]
    close(pair.encoder().encode_queries(TEXTS, "找药"), unit(vectors_by_hand(plain_bert, asked, "cls", length=64)))


def test_sentence_transformers_files_say_it_all(bert_folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    made = import_model(bert_folder, tmp_path / "pair")
    assert (made.notes, made.space.prompts.query) == ("imported as it is", "查询: ")
    theirs, encoder = SentenceTransformer(str(bert_folder), device="cpu"), Pair.load(tmp_path / "pair").encoder()
    close(encoder.encode_queries(TEXTS), theirs.encode_query(TEXTS))
    close(encoder.encode_documents(TEXTS), theirs.encode_document(TEXTS))
    again = SentenceTransformer(str(tmp_path / "pair"), device="cpu")
    close(again.encode_query(TEXTS), theirs.encode_query(TEXTS))
    # A model that does not normalise, and does not say how its vectors are compared.
    modules = json.loads((shutil.copytree(bert_folder, tmp_path / "open") / "modules.json").read_text())[:-1]
    (tmp_path / "open" / "modules.json").write_text(json.dumps(modules))
    config = tmp_path / "open" / "config_sentence_transformers.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"similarity_fn_name": None}))
    with pytest.raises(ImportProblem, match="--similarity cosine or dot"):
        import_model(tmp_path / "open", tmp_path / "dot")
    import_model(tmp_path / "open", tmp_path / "dot", told=Contract(similarity="dot"))
    bare = SentenceTransformer(str(tmp_path / "open"), device="cpu")
    close(Pair.load(tmp_path / "dot").encoder().encode_documents(TEXTS), bare.encode_document(TEXTS))


def test_an_adapter_with_its_base(base_folder: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base_folder),
        LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False),
    )
    model.save_pretrained(tmp_path / "adapter")
    told = Contract(pooling="last", similarity="dot", query_prompt="", document_prompt="", end_token="eos")
    made = import_model(tmp_path / "adapter", tmp_path / "pair", told=told)
    ours = Pair.load(tmp_path / "pair").encoder().encode_documents(TEXTS)
    import torch
    from transformers import AutoTokenizer

    tokenizer, rows = AutoTokenizer.from_pretrained(base_folder), []
    for text in TEXTS:
        ids = tokenizer(text, truncation=True, max_length=127)["input_ids"] + [tokenizer.eos_token_id]
        with torch.no_grad():
            states = model.base_model.model.model(input_ids=torch.tensor([ids])).last_hidden_state
        rows.append(states[0, -1].numpy())
    close(ours, np.stack(rows))
    assert np.abs(ours - vectors_by_hand(base_folder, TEXTS, "last", length=128, end=True)).max() > 0.01
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    (tmp_path / "adapter" / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": str(tmp_path / "gone")})
    )
    with pytest.raises(ImportProblem, match="--base"):
        import_model(tmp_path / "adapter", tmp_path / "again", told=told)
    again = import_model(tmp_path / "adapter", tmp_path / "again", told=told, base=str(base_folder))
    assert again.space.id == made.space.id


def test_what_is_missing_is_said(plain_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Contract(pooling="cls", similarity="dot", query_prompt="", document_prompt="")

    def refused(change: str, match: str, *, trust: bool = False) -> None:
        folder = tmp_path / change
        shutil.copytree(plain_bert, folder)
        weights, config = folder / "model.safetensors", folder / "config.json"
        said = json.loads(config.read_text())
        match change:
            case "no tokenizer":
                for file in folder.glob("*token*"):
                    file.unlink()
            case "no weights":
                weights.unlink()
            case "pickle":
                weights.rename(folder / "pytorch_model.bin")
            case "unknown":
                config.write_text(json.dumps(said | {"model_type": "nobody-knows"}))
            case "code":
                config.write_text(json.dumps(said | {"model_type": "new", "auto_map": {"AutoModel": "x.Y"}}))
            case "half":
                from safetensors.torch import load_file, save_file

                stored = load_file(weights)
                save_file({name: stored[name] for name in list(stored)[4:]}, weights, {"format": "pt"})
        with pytest.raises((ImportProblem, ModelError), match=match):
            import_model(folder, tmp_path / "pair", told=told)
        assert not (tmp_path / "pair").exists()

    refused("no tokenizer", "--tokenizer")
    refused("no weights", "no weights")
    refused("pickle", r"python -c .*save_pretrained")
    refused("unknown", "'nobody-knows', an architecture")
    refused("code", "--trust-remote-code")
    refused("half", "lacks .* weights")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportProblem, match=r"no config\.json"):
        import_model(tmp_path / "empty", tmp_path / "pair", told=told)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="neither a folder nor a model the hub could give"):
        import_model("nobody/nothing", tmp_path / "pair", told=told)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(ImportProblem, match="exists"):
        import_model(plain_bert, tmp_path / "taken", told=told)


def test_a_damaged_weight_is_noticed(plain_bert: Path, tmp_path: Path) -> None:
    told = Contract(pooling="cls", similarity="dot", query_prompt="", document_prompt="")
    import_model(plain_bert, tmp_path / "pair", told=told)
    assert load_manifest(tmp_path / "pair").tiers["model"].kind == "torch"
    with (tmp_path / "pair" / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\1\2\3\4")
    with pytest.raises(Exception, match="damaged"):
        Pair.load(tmp_path / "pair").encoder()


def test_weights_that_are_cut_off_or_of_another_shape_are_refused(plain_bert: Path, tmp_path: Path) -> None:
    told = Contract(pooling="cls", similarity="dot", query_prompt="", document_prompt="")
    folder = shutil.copytree(plain_bert, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"others than its config\.json says.*download it again"):
        import_model(folder, tmp_path / "pair", told=told)
    import_model(plain_bert, tmp_path / "pair", told=told)
    for weights in (folder / "model.safetensors", tmp_path / "pair" / "model.safetensors"):
        weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(ModelError, match="are damaged"):
        import_model(folder, tmp_path / "other", told=told)
    with pytest.raises(ModelError, match="are damaged"):
        load_model(tmp_path / "pair")
