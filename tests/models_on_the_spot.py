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
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _save_tokenizer(folder, tokenizer, {**names, "mask_token": "[MASK]", "model_max_length": 64})


def _save_byte_bpe(folder: Path, end_token: bool) -> int:
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
    return _save_tokenizer(folder, tokenizer, {"eos_token": "<|end|>", "pad_token": "<|pad|>", "model_max_length": 128})


def _save_tokenizer(folder: Path, tokenizer: object, settings: dict) -> int:
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **settings).save_pretrained(folder)
    assert json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return tokenizer.get_vocab_size()
