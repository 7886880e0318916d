"""The probe of a space: stored texts and vectors that another form of the same document encoder must reproduce.

Where documents come half-way to a tier, the probe has both: the document encoder's own vectors, and what is stored.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from suwen.durable import replacing, write_json
from suwen.encoders.query import Encoder, Vectors
from suwen.encoders.space import DamagedPair, Space, SpaceMismatch, load_manifest
from suwen.errors import SuwenError

#: Another file format or precision of the same weights stays above this; other weights do not.
LEAST_COSINE = 0.995
#: The probe's vectors once they have come half-way to a tier.
MET = "halfway.npy"

_TEXTS = (
    "高血压患者饮食上应该注意什么？",
    "二型糖尿病的早期症状有哪些",
    "冠状动脉粥样硬化性心脏病的危险因素包括吸烟、高血脂和缺乏运动。",
    "孩子发烧到三十九度，手脚冰凉，要不要马上去医院？",
    "阿司匹林和氯吡格雷可以一起吃吗",
    "慢性胃炎伴糜烂，幽门螺杆菌阳性，怎么治疗比较好。",
    "妊娠期甲状腺功能减退应监测促甲状腺激素，并调整左甲状腺素的剂量。",
    "腰椎间盘突出压迫神经，左腿麻木半个月",
    "接种流感疫苗后胳膊疼是正常反应吗？",
    "急性心肌梗死的典型表现是持续的胸骨后压榨样疼痛，可向左肩放射。",
    "失眠多梦，白天没有精神，吃什么中药调理",
    "乙肝表面抗原阳性，肝功能正常，需要抗病毒治疗吗",
    "白内障手术后多久可以洗头",
    "血常规显示血红蛋白 85 g/L，属于中度贫血。",
    "痛风急性发作期可用秋水仙碱、非甾体抗炎药或糖皮质激素。",
    "What are the first symptoms of type 2 diabetes?",
    "Aspirin reduces the risk of a second heart attack but raises the risk of bleeding.",
    "How long does the flu last in a healthy adult",
    "Metformin is usually the first drug given for high blood sugar.",
    "chest pain that spreads to the left arm",
    "Vitamin D deficiency in older people is linked to falls and fractures.",
    "Is it safe to take ibuprofen while breastfeeding?",
    "The patient was admitted with shortness of breath and swelling of both legs.",
    "side effects of statins",
    "Hand washing lowers the spread of infections in hospital wards.",
    "HbA1c 7.5%，空腹血糖 8.2 mmol/L，需要调整用药吗？",
    "COVID-19 感染后咳嗽三周不好怎么办",
    "CT 提示右肺上叶磨玻璃结节，直径 6 mm，建议随访。",
    "MRI of the knee shows a torn anterior cruciate ligament.",
    "儿童哮喘的长期控制以吸入糖皮质激素为主，应定期评估症状控制水平和肺功能，必要时升级或降级治疗。" * 4,
    "Hypertension is often silent for years; it damages the heart, the brain and the kidneys before it is noticed. "
    * 8,
    "头晕",
)


class ProbeFailed(SuwenError):
    """An encoder does not give the vectors of the space it claims."""


def probe_texts() -> list[str]:
    """The 32 texts of the probe: Chinese and English, questions and statements, from two characters to hundreds."""
    return list(_TEXTS)


def write_probe(folder: Path, vectors: Vectors) -> None:
    """Store the probe in a pair's folder: ``probe.json`` and ``probe.npy``, the document encoder's vectors."""
    if vectors.shape[0] != len(_TEXTS):
        raise ProbeFailed(f"{vectors.shape[0]} vectors for {len(_TEXTS)} texts: encode probe_texts()")
    write_json(folder / "probe.json", {"texts": _TEXTS})
    with replacing(folder / "probe.npy") as stream:
        np.save(stream, vectors.astype(np.float32))


def read_probe(folder: Path) -> tuple[list[str], Vectors]:
    """The texts of a pair's probe and the vectors they must get.

    Raises:
        DamagedPair: The folder has no probe that can be read.
    """
    return _read(folder, "probe.npy")


def read_stored_probe(folder: Path, space: Space) -> tuple[list[str], Vectors]:
    """The texts of a pair's probe and the vectors they have in a space: come half-way to a tier where documents do.

    Raises:
        DamagedPair: The folder has no such probe that can be read.
    """
    return _read(folder, "probe.npy" if space.halfway is None else MET)


def _read(folder: Path, vectors: str) -> tuple[list[str], Vectors]:
    try:
        texts = json.loads((folder / "probe.json").read_text(encoding="utf-8"))["texts"]
        stored = np.load(folder / vectors, allow_pickle=False).astype(np.float32)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedPair(f"{folder} has no probe that can be read ({error}): export the pair again") from error
    return texts, stored


def verify_probe(encoder: Encoder, folder: Path) -> float:
    """Check that an encoder gives the vectors stored in a pair's folder.

    Returns:
        The least cosine over the probe's texts.

    Raises:
        ProbeFailed: It is under 0.995.
        SpaceMismatch: The encoder names another space than the folder.
        DamagedPair: The folder has no probe that can be read.
    """
    texts, stored = read_probe(folder)
    pair, space = load_manifest(folder), getattr(encoder, "space", None)
    if space is not None and space.dimension != pair.space.dimension:
        raise SpaceMismatch(pair.space.id, space.id, needed_name=pair.name, got_name=encoder.name)
    whose = f"{pair.name} ({pair.space.id})"
    meeting = getattr(encoder, "meeting", None)
    if meeting is None:
        return check_probe(encoder, texts, stored, whose)
    own = encoder.alone.encode_documents(texts)  # type: ignore[attr-defined]
    least = _check(own, stored, encoder.name, whose)
    try:
        return min(
            least, _check(meeting.begin(texts)(own), read_stored_probe(folder, pair.space)[1], encoder.name, whose)
        )
    except ProbeFailed as problem:
        raise ProbeFailed(
            f"the document encoder is right, but its vectors do not come half-way as they did when {pair.name} was "
            f"made: the tier {meeting.tier.name!r} gives other vectors on this machine ({problem})"
        ) from problem


def check_probe(encoder: Encoder, texts: list[str], stored: Vectors, whose: str) -> float:
    """Check that an encoder gives texts their stored vectors; gives the least cosine, or raises ``ProbeFailed``."""
    return _check(encoder.encode_documents(texts), stored, encoder.name, whose)


def _check(given: Vectors, stored: Vectors, name: str, whose: str) -> float:
    least = float(row_cosines(given, stored).min())
    if least < LEAST_COSINE:
        raise ProbeFailed(
            f"{name} is not the document encoder of {whose}: the least cosine over "
            f"{len(stored)} probe texts is {least:.4f}, under {LEAST_COSINE}. Check its weights, prompt, pooling and "
            f"end token, or use the base the pair names"
        )
    return least


def row_cosines(left: Vectors, right: Vectors) -> Vectors:
    """The cosine of each row with its counterpart."""
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray((left * right).sum(axis=1) / np.maximum(lengths, 1e-12))
