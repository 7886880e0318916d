"""Learn how much each sign of a Chinese name counts: ``src/suwen/text/name_weights.json``.

    python tools/train_name_weights.py CLEAN.jsonl.gz … [--names DICT] [--false 0.0008] [--seed 1]

The names are drawn from the lists of ``names_zh.txt`` and put beside the words of ``mask_context``, before clauses of
the clean text; what else looks like a name in the clean text is what it must tell them from. Neither the frames nor the
names are those of the sets in benchmarks/. ``--false`` is the share of clean sentences that may get a mask: a fifth of
the clean text is held out to set the bias by.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import rjieba
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression

from suwen.text import mask_zh
from suwen.text.mask_context import BEFORE, TITLE_AFTER
from suwen.text.mask_view import FILL, View
from suwen.text.mask_zh import _COMMON, candidates, lexicon
from suwen.text.split import sentences

OUT = Path(__file__).parents[1] / "src/suwen/text/name_weights.json"
VERBS = [
    "因",
    "诉",
    "于",
    "说",
    "称",
    "述",
    "已",
    "在",
    "来",
    "去",
    "也",
    "是",
    "又",
    "将",
    "自",
    "的",
    "今天",
    "昨天",
    "昨晚",
    "前天",
    "刚才",
    "一直",
    "要求",
    "表示",
    "同意",
    "否认",
    "来诊",
    "入院",
    "出院",
    "打电话",
    "发来",
    "发了",
    "写",
    "问",
    "住",
    "吃",
    "做",
    "恢复",
    "签字",
    "在场",
    "说他",
    "说她",
    "告诉",
    "反映",
    "反馈",
    "觉得",
    "认为",
    "建议",
    "查房",
    "会诊",
    "主刀",
    "值班",
    "负责",
    "复诊",
    "复查",
    "夜间",
    "目前",
    "既往",
    "近日",
    "及家属",
    "和家人",
]
ENDS = ("，男，", "，女，", "（男）", "，45岁，", "，", "。", "：", "、", " ", "；", "（", "，汉族，", "\n")


TITLES = TITLE_AFTER.pattern.split("|")[:-4]
#: Characters that many people have in their given names.
USUAL = (
    "英华玉秀文明兰金国春红丽梅平海珍荣军小桂云芳志建新永林生凤清杰超伟强敏静霞艳勇刚涛辉鹏飞波斌宇浩欣娟娜洁莉"
    "倩雪慧婷琳燕玲萍丹龙亮磊峰"
    "凯鑫旭阳博帅晨楠宁瑞佳颖莹蕾薇晶琴香花淑素东成学德福贵庆胜兵彬利民振光忠义良松柏晓雅梓涵子轩思雨嘉怡欢畅诗"
    "萌俊健康乐安然君豪天泽昊睿"
    "巧冬美爱琼彩翠菊莲贞芝仙珠月娥银素云芬妹根发财宝祥元木水火土山石川江河湖洋波浪"
)
AGENTS = [
    "目击者",
    "管理员",
    "被告人",
    "证人",
    "饲养员",
    "消防员",
    "厨师",
    "会计师",
    "骑士",
    "旁观者",
    "继承人",
    "经纪人",
    "保管员",
    "快递员",
    "摄影师",
    "主持人",
    "参赛者",
    "持有者",
]
FIELDS = [
    "审核医师",
    "报告医生",
    "主诊医生",
    "经办人",
    "采样者",
    "记录员",
    "值班护士",
    "手术者",
    "助手",
    "甲方",
    "家属",
    "女儿",
    "主任",
    "复核人",
    "执行者",
]


def clauses(paths: list[Path], rng: random.Random) -> list[str]:
    """Sentences of the clean files, in an order that is always the same."""
    found: dict[str, None] = {}
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                for text in strings(json.loads(line)):
                    for start, end in sentences(text):
                        if 6 <= end - start <= 120:
                            found.setdefault(text[start:end].strip())
    kept = list(found)
    rng.shuffle(kept)
    return kept


def strings(value: object) -> Iterator[str]:
    """Every text in a record."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def names_of(path: Path | None) -> list[str]:
    """The names in jieba's dictionary (MIT): well known ones, which the cutting of words knows too."""
    lines = path.read_text(encoding="utf-8").splitlines() if path else []
    words = [line.split()[0] for line in lines if line.endswith(" nr")]
    return [
        word
        for word in words
        if 2 <= len(word) <= 3
        and word[0] in _COMMON
        and lexicon().given.issuperset(word[1:])
        and word[:2] not in lexicon().words
    ]


def person(rng: random.Random, known: list[str]) -> str:
    """A name: mostly of a common surname, mostly of two more characters, mostly of characters names are made of."""
    if known and rng.random() < 0.3:
        return rng.choice(known)
    surnames = sorted(_COMMON) if rng.random() < 0.8 else sorted(lexicon().surnames)
    given = USUAL if rng.random() < 0.8 else sorted(lexicon().given)
    return rng.choice(surnames) + "".join(rng.choice(given) for _ in range(rng.choice((1, 1, 2, 2, 2))))


def framed(clean: list[str], known: list[str], rng: random.Random) -> tuple[str, int, int]:
    """A name in a context, and where it is: any of the lefts with any of the rights, so that both count."""
    name, clause = person(rng, known), rng.choice(clean)
    kind = rng.choice(
        (
            "role",
            "role",
            "kin",
            "called",
            "title",
            "toward",
            "lead",
            "time",
            "bare",
            "bare",
            "bare",
            "field",
            "list",
            "agent",
            "enum",
        )
    )
    left = rng.choice(BEFORE[kind].split()) if kind in BEFORE else ""
    if kind == "enum":
        left = FILL * 3 + rng.choice(("", rng.choice(TITLES))) + "、"
    if kind == "agent":
        left = rng.choice(AGENTS)
    if kind == "field":
        left = rng.choice(FIELDS) + rng.choice(("：", ":", "： "))
    if kind == "list":
        left = rng.choice(FIELDS) + "：" + FILL * 3 + rng.choice("、，/ ")
    if kind in ("bare", "toward", "lead", "time", "enum") and rng.random() < 0.5:
        right = rng.choice((rng.choice(TITLES), rng.choice(ENDS[:5]), "，" + FILL * 4 + "，", FILL * 4))
    else:
        right = rng.choice(VERBS) if rng.random() < 0.6 and kind not in ("field", "list") else rng.choice(ENDS)
    if kind not in ("field", "list", "enum") and rng.random() < 0.25:
        right = ""  # 产妇孙丽华顺产: what follows is any word
    if rng.random() < 0.35:
        left = rng.choice(clean).rstrip("。！？.!?") + rng.choice("，。；") + left
    return left + name + right + clause, len(left), len(left) + len(name)


def rows(text: str, gold: tuple[int, int] | None) -> Iterator[tuple[dict[str, int], int]]:
    """The signs of every candidate, and whether it is the name; clean text has none."""
    for one in candidates(View.of(text).folded):
        if gold is None or one.end <= gold[0] or gold[1] <= one.start:
            if gold is None:
                yield dict.fromkeys(one.signs, 1), 0
        else:
            yield dict.fromkeys(one.signs, 1), int((one.start, one.end) == gold)


def main() -> None:
    """Fit the weights, set the bias on clean text held out, and write both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clean", type=Path, nargs="+", help="JSON lines with clean text.")
    parser.add_argument("--false", type=float, default=0.0008, help="The share of clean sentences that may get a mask.")
    parser.add_argument("--names", type=Path, help="jieba's dict.txt, for names that are well known.")
    parser.add_argument("--frames", type=int, default=40000)
    parser.add_argument("--most", type=int, default=160000, help="The most clean sentences.")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng, known = random.Random(arguments.seed), names_of(arguments.names)
    clean = [text for text in clauses(arguments.clean, rng) if re.search("[\u4e00-\u9fff]", text)][: arguments.most]
    held_out, used = clean[: len(clean) // 5], clean[len(clean) // 5 :]
    OUT.write_text(json.dumps({"weights": {"bias": 0}, "things": ""}), "utf-8")
    recurring = Counter(text[one.start : one.end] for text in used for one in candidates(View.of(text).folded))
    things = sorted(word for word, count in recurring.items() if count > 1 and rjieba.has_word(word))
    OUT.write_text(json.dumps({"weights": {"bias": 0}, "things": " ".join(things)}), "utf-8")
    mask_zh._learnt.cache_clear()
    mask_zh.things.cache_clear()
    made = [framed(used, known, rng) for _ in range(arguments.frames)]
    data = [row for text, start, end in made for row in rows(text, (start, end))]
    data += [row for text in used for row in rows(text, None)]
    vectors = DictVectorizer(dtype=np.float32)
    matrix = vectors.fit_transform([signs for signs, _ in data])
    labels = np.array([label for _, label in data])
    model = LogisticRegression(C=3.0, max_iter=500).fit(matrix, labels)
    weights = dict(zip(vectors.feature_names_, model.coef_[0].tolist(), strict=True))
    kept = {sign: round(weight, 2) for sign, weight in sorted(weights.items()) if abs(weight) >= 0.05}

    def score(signs: dict[str, int]) -> float:
        return sum(kept.get(sign, 0.0) for sign in signs)

    worst = sorted((max((score(s) for s, _ in rows(text, None)), default=-99.0), text) for text in held_out)
    bias = -worst[-1 - int(arguments.false * len(held_out))][0]
    bias = round(min(bias, float(model.intercept_[0]) + 2), 2)
    check = [framed(held_out, known, rng) for _ in range(4000)]
    found = sum(any(label and score(s) + bias > 0 for s, label in rows(text, (a, b))) for text, a, b in check)
    OUT.write_text(
        json.dumps(
            {"weights": {"bias": bias} | kept, "things": " ".join(things)}, ensure_ascii=False, indent=0, sort_keys=True
        )
        + "\n",
        "utf-8",
    )
    report = [
        f"{len(clean)} clean sentences, {labels.sum()} names of {len(labels)} candidates, {len(kept)} weights",
        f"{len(things)} words that look like names",
        f"bias {bias} (fitted {model.intercept_[0]:.2f}); found {found / len(check):.3f} of frames held out",
        *(f"  {value + bias:.2f} {text}" for value, text in worst[-25:]),
    ]
    sys.stdout.write("\n".join(report) + "\n")


if __name__ == "__main__":
    main()
