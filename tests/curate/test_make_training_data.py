"""``tools/make_training_data.py``, run as a program on a few hand-written rows."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suwen.corpora.training_rows import TrainingRow, read_training_rows
from suwen.curate.leakage import HeldOut, comparable, is_held_out, refuse_leaks

TOOL = Path(__file__).parents[2] / "tools" / "make_training_data.py"
ZH = [f"第{number}种慢性病的人能不能每天跑步" for number in range(40)]
EN = [f"can a patient with condition number {number} go running" for number in range(40)]
OUT_ZH, OUT_EN = ([text for text in texts if is_held_out(text)] for texts in (ZH, EN))
IN_ZH, IN_EN = ([text for text in texts if not is_held_out(text)] for texts in (ZH, EN))


def reply(text: str) -> str:
    return f"您好，关于{text}这个问题。建议先去医院检查，再慢慢增加运动量。祝您健康！"


def answer(text: str) -> str:
    return f"Thank you for asking {text}. Please see a doctor first, then start slowly. Stay well and drink water."


FILES: dict[str, list[dict[str, Any]]] = {
    "zh/huatuo-qa-a": [
        *({"query": text, "document": reply(text)} for text in ZH),
        {"query": "这一行和留出的一行答案相同", "document": reply(OUT_ZH[0])},
    ],
    "zh/toyhom-qa": [
        {
            "department": "内科",
            "query": "血压高能喝茶吗",
            "question": "我血压高，能喝浓茶吗？",
            "document": "可以少量喝淡茶。",
        },
        {
            "department": "内科",
            "query": "站起来头晕",
            "question": f"医生，{OUT_ZH[0]}呢",
            "document": "要先查血压再说。",
        },
    ],
    "zh/cmedir-dev": [{"query": "牙结石", "documents": [{"text": "牙结石怎么去除最好", "label": 3}]}],
    "zh/cmedqa-dev": [{"query": "鼻炎怎么办才好呢医生", "document": "鼻炎可以冲洗鼻腔，避免过敏原。", "label": 1}],
    "zh/cmedqq-dev": [{"a": "乳腺癌中期症状", "b": "乳腺癌中期有什么表现", "label": 1}],
    "zh/cmedqq-train": [
        {"a": "糖尿病饮食", "b": "糖尿病人吃什么", "label": 1},
        {"a": "糖尿病饮食", "b": "糖尿病会遗传吗", "label": 0},
        {"a": "糖尿病饮食", "b": "乳腺癌中期症状", "label": 0},
        {"a": "乳腺癌中期症状", "b": "乳腺癌中期的表现", "label": 1},
    ],
    "zh/kuake-qqr-train": [
        {"a": "打针要交多少费", "b": "打一针多少钱", "label": 2},
        {"a": "打针要交多少费", "b": "打吊针的收费", "label": 1},
        {"a": "打针要交多少费", "b": "医生上门的费用", "label": 0},
    ],
    "zh/covid-pairs-train": [{"category": "咳血", "a": "咳血怎么了", "b": "为什么咳血", "label": 1}],
    "zh/chip-cdn-train": [{"mention": "左肺切除", "standard": "肺叶切除术##全肺切除术"}],
    "zh/chip-cdn-dev": [{"mention": "右肺切除", "standard": "全肺切除术"}],
    "zh/imcs-symptom-train": [{"mention": "肚子疼", "standard": "腹痛"}, {"mention": "拉肚子", "standard": "腹泻"}],
    "zh/imcs-symptom-dev": [{"mention": "肚子好疼", "standard": "腹痛"}],
    "zh/procedure-codes": [
        {"code": str(number), "name": name}
        for number, name in enumerate(("肺叶切除术", "全肺切除术", "肺段切除术", "心脏移植术", "左肺活检术"))
    ],
    "zh/disease-aliases": [
        {"name": "甲状腺功能减退症", "aliases": ["甲减", "甲低"]},
        {"name": "牙石", "aliases": ["牙结石"]},
    ],
    "zh/disease-articles": [
        {
            "name": "百日咳",
            "intro": "百日咳是一种呼吸道传染病。多见于小儿。",
            "cause": "由百日咳杆菌引起，经飞沫传播。",
            "symptom": ["干咳", "低热"],
        }
    ],
    "zh/textbook-sentences": [{"text": "肺炎链球菌是常见的致病菌，青霉素为首选药物之一。"}],
    "zh-en/icd10-names": [{"en": "Cholera", "zh": "霍乱"}, {"en": "Home", "zh": "家"}],
    "zh-en/hpo-labels": [{"id": "HP:1", "en": "Short stature", "zh": "身材矮小"}],
    "en/nfcorpus/corpus": [
        {
            "id": f"M{n}",
            "text": f"statins trial number {n} abstract patients taking statins lived longer than group {n}",
        }
        for n in range(20)
    ],
    "en/nfcorpus/queries-dev": [{"id": "P1", "text": "cholesterol"}],
    "en/nfcorpus/queries-train": [{"id": "P2", "text": "do statins help"}, {"id": "P3", "text": "Cholesterol?"}],
    "en/nfcorpus/qrels-train": [
        *({"query": "P2", "document": f"M{n}", "score": 2 if n == 19 else 1} for n in range(20)),
        {"query": "P3", "document": "M1", "score": 1},
    ],
    "en/medquad-qa": [{"source": "s", "focus": "Asthma", "query": text, "document": answer(text)} for text in EN],
    "en/pubmedqa": [
        {
            "id": str(n),
            "query": text,
            "document": f"Methods of trial {n}. {answer(text)}",
            "conclusion": f"It is so {n}.",
        }
        for n, text in enumerate(EN)
    ],
    "en/medical-question-pairs": [
        {"a": text, "b": f"{way} {text}", "label": label}
        for text in EN
        for label, way in enumerate(("unlike this:", "in other words:"))
    ],
    "en/consult-qa": [{"source": "s", "query": text, "document": f"Hi. {answer(text)}"} for text in EN],
    "en/openstax-nursing": [{"id": "m1", "title": "Wound Care", "paragraphs": ["short", "Keep a wound clean. " * 10]}],
    "en/openstax-anatomy": [{"id": "m2", "title": "Introduction", "paragraphs": ["The body has many parts. " * 10]}],
}


def run(root: Path, out: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOL, root / "data", root / out, *options], check=False, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("training")
    for name, rows in FILES.items():
        file = root / "data" / f"{name}.jsonl.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(file, "wt", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
    done = run(root, "made", "--texts", "600")
    assert done.returncode == 0, done.stderr
    return root / "made"


def lines(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def rows_of(made: Path, name: str) -> list[TrainingRow]:
    return list(read_training_rows(made / "rows" / f"{name}.jsonl.gz"))


def every_row(made: Path) -> Iterator[TrainingRow]:
    for path in sorted((made / "rows").iterdir()):
        yield from read_training_rows(path)


def test_nothing_held_out_is_in_the_rows_or_the_texts(made: Path) -> None:
    held_out = HeldOut.read(made / "held-out.jsonl.gz")
    for text in (*OUT_ZH, *OUT_EN, reply(OUT_ZH[0]), "牙结石怎么去除最好", "乳腺癌中期症状", "右肺切除", "cholesterol"):
        assert held_out.hit(text) == text
    rows = list(refuse_leaks(every_row(made), held_out))
    texts = list(refuse_leaks([line["text"] for line in lines(made / "texts.jsonl.gz")], held_out))
    assert len(rows) > 300 and len(texts) > 300
    assert not any(text in row.query for row in rows for text in (*OUT_ZH, *OUT_EN))


def test_a_row_that_shares_a_document_with_a_held_out_one_is_held_out(made: Path) -> None:
    queries = [row.query for row in rows_of(made, "huatuo")]
    assert queries == IN_ZH and 0 < len(IN_ZH) < len(ZH)
    assert "这一行和留出的一行答案相同" in HeldOut.read(made / "held-out.jsonl.gz")


def test_answers_are_asked_in_several_ways(made: Path) -> None:
    assert [(row.query, row.pos) for row in rows_of(made, "toyhom")] == [
        ("血压高能喝茶吗", ("可以少量喝淡茶。",)),
        ("我血压高，能喝浓茶吗？", ("可以少量喝淡茶。",)),
        ("站起来头晕", ("要先查血压再说。",)),  # its question holds a held-out one, its title does not
    ]
    assert [(row.query, row.pos) for row in rows_of(made, "toyhom-titles")] == [
        ("血压高能喝茶吗", ("我血压高，能喝浓茶吗？",))
    ]
    medquad = rows_of(made, "medquad")
    assert [row.query for row in medquad] == [query for text in IN_EN for query in (text, "Asthma")]
    assert {row.pos[0] for row in rows_of(made, "pubmedqa")} >= {f"It is so {EN.index(text)}." for text in IN_EN}


def test_pairs_keep_the_wrong_partners_as_negatives(made: Path) -> None:
    assert [row[:3] for row in rows_of(made, "cmedqq")] == [("糖尿病饮食", ("糖尿病人吃什么",), ("糖尿病会遗传吗",))]
    kuake = {(row.query, row.pos[0], row.neg) for row in rows_of(made, "kuake-qqr")}
    assert ("打针要交多少费", "打一针多少钱", ("医生上门的费用",)) in kuake
    assert len(kuake) == 2  # the nearly right partner too
    assert all(row.neg == (f"unlike this: {row.query}",) for row in rows_of(made, "question-pairs"))


def test_a_question_finds_the_title_of_a_page_that_asks_the_same(made: Path) -> None:
    found = {(row.query, row.pos[0]) for row in rows_of(made, "web-titles")}
    assert any(query == "糖尿病饮食" and "糖尿病人吃什么" in title for query, title in found)
    assert any(query == "血压高能喝茶吗" and "血压高能喝茶吗" in title for query, title in found)


def test_terms_learn_from_names_that_look_alike(made: Path) -> None:
    (row,) = rows_of(made, "chip-cdn")
    assert row.pos == ("肺叶切除术", "全肺切除术") and set(row.neg) == {"肺段切除术", "左肺活检术"}
    assert {(row.query, row.pos[0]) for row in rows_of(made, "disease-aliases")} == {
        ("甲减", "甲状腺功能减退症"),
        ("甲低", "甲状腺功能减退症"),
    }
    names = {(row.query, row.pos[0]) for name in ("icd10", "hpo") for row in rows_of(made, name)}
    assert names == {
        ("Cholera", "霍乱"),
        ("霍乱", "Cholera"),
        ("Short stature", "身材矮小"),
        ("身材矮小", "Short stature"),
    }


def test_articles_abstracts_and_textbooks_become_rows(made: Path) -> None:
    asked = {row.pos[0]: row.query for row in rows_of(made, "disease-articles")}
    assert set(asked) == {
        "百日咳是一种呼吸道传染病。多见于小儿。",
        "由百日咳杆菌引起，经飞沫传播。",
    }  # two symptoms: too short
    assert all("百日咳" in query for query in asked.values())
    judged = rows_of(made, "nfcorpus")
    assert {row.query for row in judged} == {"do statins help"} and len(judged) == 12
    assert any("number 19" in row.pos[0] for row in judged)  # the one that is judged best
    assert rows_of(made, "unsup-nfcorpus")[0][:2] == (
        "statins trial number 0",
        ("patients taking statins lived longer than group 0",),
    )
    assert {row.query for row in rows_of(made, "openstax")} == {"Wound Care"}
    assert rows_of(made, "unsup-textbook")[0][:2] == ("肺炎链球菌是常见的致病菌，", ("青霉素为首选药物之一。",))
    assert all(row.type == "unsupervised" for row in rows_of(made, "unsup-huatuo"))


def test_texts_are_distinct_and_of_every_kind(made: Path) -> None:
    texts = lines(made / "texts.jsonl.gz")
    assert len({comparable(line["text"]) for line in texts}) == len(texts) <= 600
    assert {line["kind"] for line in texts} == {"query", "answer", "title", "sentence", "span", "name", "pattern"}
    assert {"甲减", "Short stature"} <= {line["text"] for line in texts if line["kind"] == "name"}
    counts = json.loads((made / "counts.json").read_text(encoding="utf-8"))
    assert counts["texts"]["total"] == len(texts) == sum(counts["texts"]["by language and kind"].values())
    assert {name: count for name, count in counts["rows"].items() if count} == {
        path.name.split(".")[0]: len(list(read_training_rows(path))) for path in (made / "rows").iterdir()
    }
    assert counts["held out"] == len(lines(made / "held-out.jsonl.gz"))


def test_a_seed_draws_the_same_and_a_folder_that_exists_is_left_alone(made: Path) -> None:
    for out, seed in (("again", "0"), ("other", "1")):
        assert run(made.parent, out, "--texts", "600", "--seed", seed).returncode == 0
    first, again, other = (lines(made.parent / out / "texts.jsonl.gz") for out in ("made", "again", "other"))
    assert first == again != other
    refused = run(made.parent, "made")
    assert refused.returncode == 1 and "exists" in refused.stderr


def test_a_missing_file_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    failed = run(tmp_path, "made")
    assert failed.returncode == 1 and "cmedir-dev.jsonl.gz is missing" in failed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


WRITTEN = [
    {"kind": "title", "x": "头晕怎么回事", "with": "", "lines": ["1. 头晕的常见原因", "标题：", "牙结石怎么去除最好"]},
    {"kind": "topic", "x": "痛风", "with": "", "lines": ["- 痛风能吃豆腐吗 => 痛风患者的饮食", "没有箭头的一行"]},
    {
        "kind": "question",
        "x": "…",
        "with": "痛风患者可以吃豆腐。",
        "lines": ["“痛风吃豆腐行吗”", "鼻炎怎么办才好呢医生"],
    },
    {"kind": "search", "x": "…", "with": "Gout and soy in the diet.", "lines": ["2) gout soy diet"]},
]


def test_what_a_language_model_wrote_becomes_rows_and_texts_but_nothing_held_out(made: Path) -> None:
    root = made.parent
    with gzip.open(root / "written.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(reply, ensure_ascii=False) + "\n" for reply in WRITTEN)
    done = run(root, "more", "--texts", "600", "--written", str(root / "written.jsonl.gz"))
    assert done.returncode == 0, done.stderr

    def pairs(name: str) -> list[tuple[str, str]]:
        return [(row.query, row.pos[0]) for row in rows_of(root / "more", name)]

    ((asked, title),) = pairs("written-titles")
    assert asked == "头晕怎么回事" and "头晕的常见原因" in title
    ((asked, title),) = pairs("written-topics")
    assert asked == "痛风能吃豆腐吗" and "痛风患者的饮食" in title
    assert pairs("written-questions") == [("痛风吃豆腐行吗", "痛风患者可以吃豆腐。")]
    assert pairs("written-search") == [("gout soy diet", "Gout and soy in the diet.")]
    texts = {row["text"]: row["kind"] for row in lines(root / "more" / "texts.jsonl.gz") if row["source"] == "written"}
    assert texts["痛风吃豆腐行吗"] == "query" and "鼻炎怎么办才好呢医生" not in texts
    assert "title" in texts.values()
