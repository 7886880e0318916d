"""Masking: what is personal goes, what is medical stays, masks keep who is who, and it always ends."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from suwen.choices import MASKED
from suwen.text.mask import KINDS, Masker, MaskError, mask, unmask, validate
from suwen.text.mask_numbers import is_id_card, passes_luhn

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from mask_personal_data import Tally
from personal_sentences import FROZEN, sentences, template_hash
from personal_sentences import KINDS as SLOT_KINDS

#: Pieces that rules look for, so that random texts hold half-finished finds of every kind.
PIECES = st.sampled_from(
    [
        *"王李高常明国伟男女，。：；、/ \n()（）[]@.-+0125",
        *(
            "患者",
            "医师签名：",
            "主任",
            "先生",
            "床",
            "床号",
            "姓名：",
            "住院号",
            "电话",
            "家住",
            "出生",
            "生于",
            "批号",
            "我叫",
        ),
        *("13912345678", "11010519491231002X", "0571-88886666", "1962年3月5日", "a@qq.com", "4111111111111111"),
        *(
            "江苏省南京市",
            "鼓楼区",
            "中山路8号",
            "302室",
            "[姓名1]",
            "[NAME2]",
            "[电话",
            "1]",
            "\ue000",
            "王小明",
            "因",
        ),
        *(
            "Dr. ",
            "Mr ",
            "John",
            "Smith",
            ", MD",
            "Name: ",
            "DOB ",
            "born ",
            "MRN ",
            "12 Oak Street",
            "bed 12",
            "212-555-0187",
        ),
        *("ＡＢ", "１３９", "張", "𠮷", "😀", "e\u0301", "Jones disease"),
    ]
)
TEXT = st.lists(PIECES | st.text(max_size=4), max_size=30).map("".join)


def masked(text: str) -> str:
    return mask(text).text


def test_the_templates_are_the_frozen_ones() -> None:
    assert template_hash() == FROZEN == "e62262f1f56e8e5c733b0075fec73581ff2ee3adf703c04411f9b8748f691a11"


def test_the_sentences_made_of_them_are_frozen_too() -> None:
    made = [(sentence.text, *map(tuple, sentence.gold)) for sentence in sentences(3380, seed=1)]
    assert (
        hashlib.sha256(repr(made).encode()).hexdigest()
        == "3eb4de5fd789fd9b16094cd70e3753b9a9cbf16f7f88fae9e92f078dd425a447"
    )


def test_the_invented_sentences_have_ten_kinds_and_say_where() -> None:
    made = sentences(2028, seed=2)
    assert {gold.kind for sentence in made for gold in sentence.gold} == set(SLOT_KINDS.values()) < set(KINDS)
    assert made[0].text[slice(*made[0].gold[0][:2])].isalnum() and len(made[0].text[slice(*made[0].gold[0][:2])]) == 18
    assert sum(sentence.held_out for sentence in made) > 400
    assert sentences(200, seed=2) == made[:200] != sentences(200, seed=3)


@pytest.mark.parametrize("held_out", [False, True])
def test_the_floors_on_the_invented_sentences(held_out: bool) -> None:
    tally = Tally()
    for sentence in sentences(2028, seed=4):
        if sentence.held_out is held_out:
            tally.add(sentence)
    table = tally.table()
    assert table["numbers"]["recall"] >= 0.98 and table["numbers"]["precision"] >= 0.95
    assert table["names"]["recall"] >= 0.9 and table["names"]["precision"] >= 0.85
    assert table["addresses"]["recall"] >= 0.9 and table["addresses"]["precision"] >= 0.85


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("患者，张秀英，女性，67岁。", "患者，[姓名1]，女性，67岁。"),
        ("入院记录　姓名：赵　磊　性别：男", "入院记录　姓名：[姓名1]　性别：男"),
        ("今日李国强主任医师、周敏主治医师查房。", "今日[姓名1]主任医师、[姓名2]主治医师查房。"),
        ("术者：王强、李娜；一助：赵敏", "术者：[姓名1]、[姓名2]；一助：[姓名3]"),
        ("电话：０５７１－８８８８６６６６", "电话：[电话1]"),
        ("身份證號：11010519491231002X，患者張國強，男", "身份證號：[身份证1]，患者[姓名1]，男"),
        ("家属手机18800001234", "家属手机[电话1]"),
        ("患者高明，男，45岁。", "患者[姓名1]，男，45岁。"),
        ("张女士的丈夫王先生代诉", "[姓名1]女士的丈夫[姓名2]先生代诉"),
        ("患儿，男，2019年5月3日出生", "患儿，男，[出生日期1]出生"),
        ("家住杭州市上城区清波街道劳动路12号，务农", "家住[地址1]，务农"),
        ("Pt John A. Doe, 45M, DOB 1/2/1978, MRN 12345678", "Pt [NAME1], 45M, DOB [BIRTH1], MRN [RECORD1]"),
        ("JOHN DOE was seen. Patient: DOE, JOHN", "[NAME1] was seen. Patient: [NAME1]"),
        ("Sincerely, Robert Chen, M.D.", "Sincerely, [NAME1], M.D."),
        ("Mrs Garcia's daughter, Maria Garcia, called", "Mrs [NAME1]'s daughter, [NAME2], called"),
        ("SSN 123456789, card 4111 1111 1111 1111", "SSN [SSN1], card [BANKCARD1]"),
        ("Moved to bed 12B; lives at 5 Oak Street.", "Moved to bed [BED1]; lives at [ADDRESS1]."),
    ],
)
def test_personal_data_is_masked(text: str, wanted: str) -> None:
    assert masked(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "帕金森病、阿尔茨海默病、川崎病、梅尼埃病与克罗恩病患者应分别处理。",
        "患者高热，男，3岁；患者安静，白天嗜睡，常有头晕，应在医师指导下用药。",
        "发现问题及时向医生报告，并及时和护士联系。",
        "病人和家属应向医生说明；由专科护士随访，全科医生复诊。",
        "阿莫西林0.5g，每日3次；肌酐138μmol/L，血小板186×10^9/L，D-二聚体13800ng/ml。",
        "诊断编码E11.9、S72.001A；国药准字H20043512，批号20210513，条码6901234567892。",
        "样本编号13812345678，标本号：13912345678。",
        "2021年3月5日入院，1994年修订标准，出生后3天出现黄疸，出生体重3200g，1962年出生。",
        "该院共有500张病床，床位30张，每日60元；急救电话120，热线12320、400-810-8899。",
        "浙江省温州市平阳县为流行区；北京市海淀区疾病预防控制中心。",
        "Patients with Crohn's disease or Parkinson disease take vitamin B12 500 mg; code K50.90.",
        "MR angiography and DR films in MS. Miss a dose? See a doctor. St. John's wort.",
        "Adults born between 1945 and 1965; raise the head of the bed 6 inches; a 500-bed hospital.",
        "Call 1-800-222-1222 or 911. Trial NCT01234567, lot 20210513, PMID: 33301246.",
    ],
)
def test_medicine_survives(text: str) -> None:
    assert mask(text) == (text, [])


def test_a_check_digit_decides_where_no_label_does() -> None:
    assert masked("见11010519491231002X。") == "见[身份证1]。"
    assert masked("见110105194912310021。") == "见110105194912310021。"
    assert masked("身份证110105194912310021。") == "身份证[身份证1]。"
    assert not is_id_card("990105194912310021") and is_id_card("110105491231002")
    assert passes_luhn("4111111111111111") and not passes_luhn("4111111111111112")


def test_the_same_person_has_the_same_mask() -> None:
    done = mask("患者王小明，男。陪同者李芳（妻子，139-1234-5678）。王小明诉头晕，回电13912345678。")
    assert done.text == "患者[姓名1]，男。陪同者[姓名2]（妻子，[电话1]）。[姓名1]诉头晕，回电[电话1]。"
    assert masked("Dr. Ann Lee wrote. Name: Lee, Ann") == "Dr. [NAME1] wrote. Name: [NAME1]"


def test_a_short_name_inside_a_word_is_left() -> None:
    assert masked("患者张力，男。肌张力正常。") == "患者[姓名1]，男。肌张力正常。"


def test_the_passages_of_a_document_share_their_masks() -> None:
    masker = Masker()
    masker.learn("患者王小明，男。")
    assert masker.mask("王小明来诊。医师签名：李强").text == "[姓名1]来诊。医师签名：[姓名2]"
    assert masker.mask("Seen again: 王小明。").text == "Seen again: [姓名1]。"
    assert masker.key == {"[姓名1]": "王小明", "[姓名2]": "李强"}
    assert unmask("[姓名1]、[姓名2]、[姓名3]", masker.key) == "王小明、李强、[姓名3]"


def test_numbers_go_on_from_counters_and_from_masks_in_the_text() -> None:
    counters = {"name": 4}
    assert mask("患者王小明，男。", counters=counters).text == "患者[姓名5]，男。"
    assert counters == {"name": 5}
    assert masked("[姓名3]与患者王小明，男。") == "[姓名3]与患者[姓名4]，男。"


def test_only_the_kinds_asked_for() -> None:
    text = "患者王小明，男，电话13912345678。"
    assert mask(text, kinds=["phone"]).text == "患者王小明，男，电话[电话1]。"
    assert mask(text, kinds=[]).spans == []
    with pytest.raises(MaskError, match="shoe cannot be masked: choose from id_card"):
        mask(text, kinds=["shoe"])


def test_validation_finds_what_is_left_and_strictly_what_may_be() -> None:
    text = "[姓名1]的电话13912345678，样本编号13812345678，身份证110105194912310021"
    assert [span.kind for span in validate(text)] == ["phone", "id_card"]
    loose = "样本编号13812345678，号110105194912310021，卡4111111111111112"
    assert validate(loose) == []
    assert [span.kind for span in validate(loose, strict=True)] == ["phone", "id_card", "bank_card"]
    assert [loose[start:end] == original for start, end, *_, original in validate(loose, strict=True)] == [True] * 3


@given(TEXT)
@example("[姓名1]王明，13912345678[电话")
@settings(max_examples=400)
def test_masking_twice_is_masking_once_and_offsets_hold(text: str) -> None:
    done = mask(text)
    assert mask(done.text) == (done.text, [])
    assert validate(done.text) == []
    last, rebuilt = 0, ""
    for start, end, kind, replacement, original in done.spans:
        assert last <= start < end and text[start:end] == original and kind in KINDS
        rebuilt += text[last:start] + replacement
        last = end
    assert rebuilt + text[last:] == done.text


@given(TEXT)
def test_a_key_brings_the_names_back(text: str) -> None:
    masker = Masker()
    done = masker.mask(text)
    assert len(set(masker.key)) == len({(span.kind, span.replacement) for span in done.spans})
    assert all(span.replacement in masker.key for span in done.spans)


@given(st.lists(TEXT, max_size=4))
def test_one_masker_masks_every_passage_for_good(texts: list[str]) -> None:
    masker = Masker()
    for text in texts:
        once = masker.mask(text).text
        assert masker.mask(once).text == once


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "1",
            "1 ",
            "0571-",
            "a",
            "a.",
            "a@",
            "a.b@c.",
            "A. ",
            "Ann ",
            "Ann-",
            "王",
            "患者王",
            "市区",
            "江苏省",
            "床1",
        ),
        *("生1962.", "- ", "Dr. Ann ", "12 Oak ", "姓 名 ", "(", "[姓名1", "[", "号1-", "+1 ", "患者：", "王明/"),
        "\ue000和王明",
    ],
)
def test_long_input_takes_steps_in_proportion(piece: str) -> None:
    """Ten times the text may take about ten times the steps of the interpreter, never a hundred times."""
    steps = [_steps(piece * count) for count in (300, 3000)]
    assert steps[1] < 20 * steps[0] + 2000
    assert masked(piece * 12000) is not None


def _steps(text: str) -> int:
    count = 0

    def step(*_: object) -> object:
        nonlocal count
        count += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        mask(text)
    finally:
        sys.settrace(before)
    return count


def test_the_command_offers_every_kind() -> None:
    assert tuple(KINDS) == MASKED
