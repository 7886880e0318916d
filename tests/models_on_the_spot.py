"""Tiny but real models, built in seconds: trained tokenizers, random weights, the folders the product reads."""

from __future__ import annotations

import json
from pathlib import Path

TEXTS = (
    "高血压患者应低盐饮食并定期测量血压",
    "糖尿病的早期症状包括多饮多尿和体重下降",
    "感冒发烧三十八度需要吃退烧药吗",
    "孕妇可以接种流感疫苗",
    "胃痛反酸可能是慢性胃炎",
    "骨折以后多久可以下地走路",
    "阿司匹林可以预防心肌梗死",
    "儿童咳嗽一周不好怎么办",
    "慢性肾病患者要限制蛋白质的摄入",
    "失眠和焦虑常常同时出现",
    "patients with high blood pressure should eat less salt",
    "early symptoms of diabetes include thirst and weight loss",
    "aspirin lowers the risk of a second heart attack",
    "the flu vaccine is safe during pregnancy",
    "chronic cough in children has many causes",
    "how long does a broken bone take to heal",
    "people with kidney disease should limit protein",
    "insomnia and anxiety often occur together",
)
DIMENSION = 24
SEED = 7


def build_bert(folder: Path, *, layers: int = 2, width: int = 32, prompts: dict[str, str] | None = None) -> Path:
    """A sentence-transformers BERT (mean pooling, Dense to the common dimension, normalised) in a folder."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=_bert_modules(folder / "parts", layers, width), device="cpu", prompts=prompts)
    model.save(str(folder / "model"))
    return folder / "model"


def build_router(folder: Path, *, prompts: dict[str, str] | None = None) -> Path:
    """A full pair without a manifest: BERT for queries, a wider Qwen3 decoder (last token, end token) for documents."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Router

    router = Router(
        {
            "query": _bert_modules(folder / "query", 2, 32),
            "document": _qwen_modules(folder / "document"),
        },
        default_route=None,
        allow_empty_key=False,
    )
    model = SentenceTransformer(modules=[router], device="cpu", prompts=prompts)
    model.save(str(folder / "model"))
    return folder / "model"


def build_decoder(folder: Path, *, end_token: bool = True) -> Path:
    """The document side of :func:`build_router` alone; without ``end_token`` its tokenizer adds none by itself."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=_qwen_modules(folder / "parts", end_token=end_token), device="cpu")
    model.save(str(folder / "model"))
    return folder / "model"


def build_base(folder: Path, *, kind: str = "qwen2", seed: int = SEED) -> Path:
    """A tiny Qwen2 or Qwen3 language model, head and all, as transformers saves it; its tokenizer adds no end token."""
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    tokenizer = _qwen_tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    names = {"eos_token": "<|end|>", "pad_token": "<|pad|>", "model_max_length": 128}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(seed)
    settings = {
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "max_position_embeddings": 128,
        "initializer_range": 0.2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
        "tie_word_embeddings": False,
    }
    if kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**settings))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**settings, head_dim=16))
    for name, parameter in model.named_parameters():  # transformers begins with biases of 0 and norms of 1
        if parameter.ndim == 1:
            parameter.data += 0.1 * torch.randn_like(parameter.data) * ("norm" in name or 3)
    model.save_pretrained(folder)
    return folder


def save_bert(folder: Path, *, width: int = 32, seed: int = SEED) -> Path:
    """A BERT with its tokenizer as transformers saves them: no word of pooling or prompts."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    settings = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "initializer_range": 0.1}
    vocabulary = _save_wordpiece(folder)
    BertModel(
        BertConfig(vocab_size=vocabulary, hidden_size=width, max_position_embeddings=64, **settings)
    ).save_pretrained(folder)
    return folder


def save_decoder(folder: Path, kind: str = "GPTNeoX") -> Path:
    """A language model as transformers saves it, head and all; its tokenizer adds no end token.

    ``GPTNeoX`` is Pythia's; of ``Mistral`` and ``Gemma`` the tokenizer puts a token before every text.
    """
    import torch
    import transformers

    torch.manual_seed(SEED)
    vocabulary = _save_byte_bpe(folder, end_token=False, longest=2048, first_token=kind != "GPTNeoX")
    settings = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "initializer_range": 0.2}
    heads = {} if kind == "GPTNeoX" else {"num_key_value_heads": 2, "head_dim": 8}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocabulary, hidden_size=32, max_position_embeddings=2048, **settings, **heads
    )
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
    return folder


def build_lookup(folder: Path, texts: list[str], vectors: object) -> Path:
    """A token lookup (a row a character, averaged) that gives each text about its vector: a tier aligned to them."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    characters = sorted({character for text in texts for character in text.lower() if not character.isspace()})
    vocabulary = {token: id_ for id_, token in enumerate(["[UNK]", *characters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    shares = np.zeros((len(texts), len(vocabulary)))
    for row, encoding in zip(shares, tokenizer.encode_batch(texts), strict=True):
        np.add.at(row, encoding.ids, 1 / len(encoding.ids))
    rows = np.linalg.lstsq(shares, np.asarray(vectors, dtype=np.float64), rcond=None)[0]
    embedding = StaticEmbedding(tokenizer, embedding_weights=torch.from_numpy(rows.astype(np.float32)))
    SentenceTransformer(modules=[embedding, Normalize()], device="cpu").save(str(folder))
    return folder


def write_gguf(base: Path, file: Path, *, packing: str = "F32") -> Path:
    """A folder of :func:`build_base` as a GGUF file, written by the ``gguf`` package."""
    from gguf import GGMLQuantizationType, GGUFWriter, quants
    from safetensors.torch import load_file

    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    writer = GGUFWriter(str(file), config["model_type"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    if config["model_type"] == "qwen3":
        writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    _add_tokenizer(writer, json.loads((base / "tokenizer.json").read_text(encoding="utf-8")))
    for name, tensor in load_file(base / "model.safetensors").items():
        kind = GGMLQuantizationType[packing if tensor.ndim == 2 else "F32"]
        writer.add_tensor(_gguf_name(name), quants.quantize(tensor.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def train_lora(model: object, *, rank: int = 4, steps: int = 2) -> object:
    """Put a LoRA on a ``SentenceTransformer`` and take a few large steps, so that it changes the vectors."""
    import torch

    from suwen.encoders.adapter import apply_lora
    from suwen.encoders.side import Side

    torch.manual_seed(SEED)
    apply_lora(model, rank=rank, alpha=2 * rank)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=5.0)
    side = Side(model, "document")
    for _ in range(steps):
        vectors = side.embed(side.ids(TEXTS)).float()
        optimiser.zero_grad()
        (vectors @ vectors.T).triu(1).mean().backward()
        optimiser.step()
    return model.eval()


def _qwen_tokenizer() -> object:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated", invert=False)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|end|>", "<|pad|>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def _add_tokenizer(writer: object, tokenizer: dict) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["content"] for token in tokenizer["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in special else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(vocabulary["<|end|>"])
    writer.add_pad_token_id(vocabulary["<|pad|>"])


def _gguf_name(name: str) -> str:
    renamed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in renamed:
        return renamed[name]
    short = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        **{f"self_attn.{letter}_proj": f"attn_{letter}" for letter in "qkv"},
        **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    }
    _, _, layer, module = name.split(".", 3)
    module, _, what = module.rpartition(".")
    return f"blk.{layer}.{short[module]}.{what}"


def _bert_modules(folder: Path, layers: int, width: int) -> list:
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
    from transformers import BertConfig, BertModel

    torch.manual_seed(SEED)
    vocabulary = _save_wordpiece(folder)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    BertModel(config).save_pretrained(folder)
    transformer = Transformer(str(folder), max_seq_length=48)
    return [transformer, Pooling(width, "mean"), Dense(width, DIMENSION, activation_function=None), Normalize()]


def _qwen_modules(folder: Path, *, end_token: bool = True) -> list:
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer
    from transformers import Qwen3Config, Qwen3Model

    torch.manual_seed(SEED + 1)
    vocabulary = _save_byte_bpe(folder, end_token)
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        intermediate_size=96,
        max_position_embeddings=128,
        initializer_range=0.1,
    )
    Qwen3Model(config).save_pretrained(folder)
    transformer = Transformer(str(folder), max_seq_length=64)
    return [transformer, Pooling(48, "lasttoken"), Dense(48, DIMENSION, activation_function=None), Normalize()]


def _save_wordpiece(folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    plain, cut = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = sorted({word for text in TEXTS for word, _ in cut.pre_tokenize_str(plain.normalize_str(text))})
    letters = sorted(set("".join(words)))
    # Not trained: a trainer of word pieces gives them other numbers each time, and so makes another model.
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *(word for word in words if len(word) > 1)]
    tokenizer = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(pieces[:400])}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = plain, cut
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _save_tokenizer(folder, tokenizer, {**names, "mask_token": "[MASK]", "model_max_length": 64})


def _save_byte_bpe(folder: Path, end_token: bool, longest: int = 128, first_token: bool = False) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<|end|>", "<|pad|>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    if end_token:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="$A <|end|>", pair="$A <|end|> $B <|end|>", special_tokens=[("<|end|>", 0)]
        )
    if first_token:
        tokenizer.post_processor = processors.TemplateProcessing(single="<|pad|> $A", special_tokens=[("<|pad|>", 1)])
    names = {"eos_token": "<|end|>", "pad_token": "<|pad|>"}
    return _save_tokenizer(folder, tokenizer, {**names, "model_max_length": longest})


def _save_tokenizer(folder: Path, tokenizer: object, settings: dict) -> int:
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **settings).save_pretrained(folder)
    assert json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return tokenizer.get_vocab_size()
