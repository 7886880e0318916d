"""Light pairs made by hand in milliseconds, without torch: a word-and-character tokenizer and fixed random rows.

Two texts are near when they share characters or words, which is all a test of searching needs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from suwen.encoders.pair_files import sha256_of
from suwen.encoders.query import Encoder
from suwen.encoders.space import Base, Manifest, Space, Tier, TierDocument, save_manifest

#: (id, title, text, metadata): hand-written, each about one thing.
NOTES = (
    ("bp", "高血压", "高血压患者应低盐饮食。每天早晚测量血压。血压突然升高要及时就医。", {"lang": "zh", "year": 2020}),
    (
        "stone",
        "肾结石",
        "尿酸结石多见于酸性尿液。碱化尿液可溶解尿酸结石。多饮水能预防复发。",
        {"lang": "zh", "year": 2022},
    ),
    ("sugar", "糖尿病", "糖尿病患者应定期复查HbA1c和眼底。二甲双胍是常用药。", {"lang": "zh", "year": 2023}),
    ("ache", "偏头痛", "偏头痛发作时应在安静的暗室休息。布洛芬可缓解疼痛。", {"lang": "zh", "year": 2019}),
    (
        "stroke",
        "Stroke",
        "Sudden weakness of one arm may be a stroke. Call for help at once.",
        {"lang": "en", "year": 2021},
    ),
    ("asthma", "Asthma", "An inhaler opens the airways. Carry the inhaler with you.", {"lang": "en", "year": 2020}),
    ("flu", "流感疫苗", "每年秋季接种流感疫苗。孕妇可以接种流感疫苗。", {"lang": "zh", "year": 2024}),
    ("bone", "骨折", "骨折后应固定患肢。骨折愈合大约需要三个月。", {"lang": "zh", "year": 2018}),
    ("kidney", "慢性肾病", "慢性肾病患者要限制蛋白质的摄入。定期检查肾功能。", {"lang": "zh", "year": 2022}),
    ("sleep", "失眠", "失眠者睡前不宜饮咖啡。规律作息有助于入睡。", {"lang": "zh", "year": 2021}),
)
MORE = "发烧咳嗽感冒心肌梗死阿司匹林胃痛反酸慢性胃炎儿童怎么办什么药吗能不能判断还是碱性编号批文档段版本号"
WORDS = ("word", "number", "text", "document", "page", "fever", "cough", "kidney", "stones", "the", "of", "and", "a")
#: Every Chinese character of the first block.
CHARACTERS = "".join(map(chr, range(0x4E00, 0x9FA6)))


def make_static_pair(folder: Path) -> Path:
    """Write a pair for texts of any kind whose one tier, ``static``, encodes queries and documents."""
    return make_pair(folder, dimension=256, name="small-static", more=CHARACTERS)


def make_pair(
    folder: Path,
    *,
    seed: int = 0,
    dimension: int = 48,
    tiers: Sequence[str] = ("static",),
    name: str = "small",
    more: str = "",
) -> Path:
    """Write a light pair whose tiers agree up to a little noise; another ``seed`` is another space."""
    vocabulary = _vocabulary(more)
    rows = np.random.default_rng(seed).standard_normal((len(vocabulary), dimension))
    base = Base(sha256=hashlib.sha256(f"{seed}/{dimension}".encode()).hexdigest())
    space = Space.mint(
        base=base, pooling="mean", max_length=256, dimension=dimension, full_dimension=dimension, normalise=True
    )
    made = {tier: _tier(folder, tier, space, vocabulary, rows, number) for number, tier in enumerate(tiers)}
    document = TierDocument(kind="tier", tier=tiers[0])
    save_manifest(
        folder,
        Manifest(name=name, form="light", space=space, tiers=made, default_tier=tiers[0], document=document),
    )
    return folder


def _vocabulary(more: str) -> list[str]:
    notes = "".join(title + text for _, title, text, _ in NOTES if not title.isascii())
    characters = sorted(set(notes + MORE + more + "0123456789abcdefghijklmnopqrstuvwxyz。，.#-"))
    words = {word for _, title, text, _ in NOTES if title.isascii() for word in text.lower().replace(".", " ").split()}
    return ["[UNK]", *characters, *sorted((words | set(WORDS)) - set(characters))]


def _tier(folder: Path, name: str, space: Space, vocabulary: list[str], rows: np.ndarray, number: int) -> Tier:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    place = folder / "query" / name
    place.mkdir(parents=True)
    tokenizer = Tokenizer(models.WordLevel({token: id_ for id_, token in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(place / "tokenizer.json"))
    noisy = rows + 0.1 * number * np.random.default_rng(number).standard_normal(rows.shape)
    scales = (np.abs(noisy).max(axis=1) / 127).astype(np.float32)
    codes = np.rint(noisy / scales[:, None]).astype(np.int8)
    # Marks and unknown words weigh little, as a trained static tier has it.
    light = [id_ for id_, token in enumerate(vocabulary) if token in ("[UNK]", "。", "，", ".", "的", "the", "of", "a")]
    scales[light] *= 0.05
    np.save(place / "embeddings.npy", codes)
    np.save(place / "scales.npy", scales)
    files = {file: sha256_of(place / file) for file in ("tokenizer.json", "embeddings.npy", "scales.npy")}
    path = f"query/{name}"
    return Tier(kind="static", path=path, files=files, max_length=256, precision="int8", aligned_to=space.id)


class Counting:
    """An encoder that counts the texts it is given and hands them to a real one."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self.name = encoder, encoder.name
        self.texts: list[str] = []

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        return self._encoder.encode_documents(texts)


def jsonl(rows: Iterable[tuple[str, str, str, dict[str, object]]] = NOTES) -> str:
    """The notes as a source file."""
    import json

    lines = [{"_id": id_, "title": title, "text": text, **metadata} for id_, title, text, metadata in rows]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
