"""Which passages are one hit: texts that differ in a word never are, those that differ in boilerplate are."""

from __future__ import annotations

import pytest

from suwen.corpora.records import Passage
from suwen.index.engine import StoredPassage
from suwen.retrieve.folding import Content, first_of_each

PILLS = (
    "阿莫西林成人每次服两片，每日三次，连服七天，饭后服用，青霉"
    "素过敏者停用并及时就医，服药期间多饮水并注意观察有无皮疹。"
)
FEVER = (
    "成人布洛芬用于退热和缓解轻至中度疼痛，每次200毫克，每4至6小时一次，24小时不超过4次，饭后服用可减轻胃部不适，"
    "胃溃疡患者应在医生指导下使用。"
)
POTASSIUM = (
    "血钾高于正常上限，提示高钾血症，应立即停用保钾利尿药并复查心电图，同时给予葡萄糖酸钙稳定心肌，必要时透析治疗。"
)
BONES = (
    "双能X线吸收法测得腰椎T值-2.5，髋部T值 -1.0，请结合年龄、骨折史和家族史评估骨折风险，并按医嘱补充钙剂和维生素D。"
)
LUNG = "患者左侧肺下叶可见结节，边界清楚，建议三个月后复查胸部CT，如增大则考虑手术切除并送病理检查明确性质，期间戒烟。"
KIDNEY = (
    "患者诊断为慢性肾脏病IV期，建议低盐优质低蛋白饮食，控制血压和血糖，避免肾毒性药物，定期复查肌酐和血钾，必要时随诊。"
)
STOMACH = (
    "幽门螺杆菌检测结果呈阳性，建议餐前服用质子泵抑制剂，并按照医嘱完成疗程，期间避免饮酒，疗程结束后再做呼气试验。"
)
CONTRAST = (
    "该患者对造影剂有过敏史，行增强检查前须告知医生，并备好抢救药品，检查后应留观半小时，多饮水以促进排泄，注意尿量。"
)
INJECTION = (
    "中老年2型糖尿病患者可每周皮下注射玛仕度肽一次，从小剂量开"
    "始逐渐加量，恶心和腹泻多在数周内减轻，有胰腺炎病史者慎用。"
)
ADVICE = (
    "Adults may take ibuprofen 200 mg every 4 to 6 hours for fe"
    "ver or mild to moderate pain, with food to reduce stomach "
    "upset; patients with a peptic ulcer should use it only under medical supervision, before meals."
)
TABLETS = (
    "Take two tablets once daily with food for high blood pressu"
    "re; do not stop suddenly, and call your doctor if you feel "
    "dizzy or your ankles swell during the first weeks of treatment."
)
STAGE = (
    "Patients with stage III disease may receive adjuvant savol"
    "itinib once recovery from surgery is complete, with liver "
    "tests every month and imaging of the chest every quarter during the first year."
)
VISIT = (
    "The patient denies chest pain on exertion and reports sta"
    "ble breathing over the past month; blood pressure is well "
    "controlled on current treatment and weight remains steady at each clinic visit."
)
DRIP = (
    "Infuse heparin 5 mU per minute through the left femoral ve"
    "in; target ratio <1.5 and recheck after 6 h, no; rash seen."
)

#: A text, what is replaced in it, and by what.
APART = [
    *((PILLS, "两片", "四片"), (PILLS, "每日三次", "每日两次"), (PILLS, "连服七天", "连服十天")),
    *((PILLS, "停用", "加用"), (PILLS, "及时", "不必"), (PILLS, "过敏者", "不过敏者"), (PILLS, "每日", "隔日")),
    *(
        (FEVER, "每4至6小时一次", "每4至6小时两次"),
        (FEVER, "毫克", "克"),
        (FEVER, "毫克", "微克"),
        (FEVER, "200", "20.0"),
    ),
    *((FEVER, "成人", "儿童"), (FEVER, "成人", "孕妇"), (FEVER, "饭后", "饭前"), (FEVER, "不超过", "至少")),
    *((FEVER, "布洛芬", "洛索洛芬"), (FEVER, "胃溃疡", "胃穿孔"), (FEVER, "减轻", "加重"), (FEVER, "4至6", "4.6")),
    *(
        (POTASSIUM, "立即", "暂缓"),
        (POTASSIUM, "停用", "加用"),
        (POTASSIUM, "高于", "低于"),
        (POTASSIUM, "给予", "停予"),
    ),
    *((LUNG, "左侧", "右侧"), (LUNG, "三个月", "六个月"), (LUNG, "清楚", "模糊"), (LUNG, "增大", "缩小")),
    *((KIDNEY, "IV期", "II期"), (KIDNEY, "低盐", "高盐"), (STOMACH, "阳性", "阴性"), (STOMACH, "餐前", "餐后")),
    *((CONTRAST, "有过敏史", "缺乏过敏史"), (CONTRAST, "有过敏史", "无，过敏史"), (CONTRAST, "半小时", "两小时")),
    *((INJECTION, "玛仕度肽", "玛泽度肽"), (INJECTION, "慎用", "可用"), (INJECTION, "每周", "每月")),
    *((ADVICE, "only under", "except under"), (ADVICE, "Adults", "Infants"), (ADVICE, "reduce", "increase")),
    *((ADVICE, "before", "after"), (ADVICE, "may take", "must not take"), (ADVICE, "200 mg", "200 mcg")),
    *((ADVICE, "4 to 6", "four to eight"), (ADVICE, "fever", "hypothermia"), (ADVICE, "ibuprofen", "zaltoprofen")),
    *((TABLETS, "two tablets once", "five tablets twice"), (TABLETS, "two tablets", "ten tablets")),
    *((TABLETS, "suddenly", "gradually"), (STAGE, "savolitinib", "sovaleritib"), (STAGE, "III", "II")),
    (VISIT, "denies chest pain on exertion and reports", "reports chest pain on exertion and denies"),
    *((DRIP, "5 mU", "5 MU"), (DRIP, "<1.5", ">1.5"), (DRIP, "left", "right"), (DRIP, "no; rash", "no rash")),
    *((BONES, "T值-2.5", "T值2.5"), (BONES, "-1.0", "1.0")),
    *((DRIP, "1.5", "15"), (DRIP, "1.5", "-1.5"), (FEVER, "24小时", "2，4小时"), (STOMACH, "呈阳性", "呈阳性？")),
]


#: A text, and what it is also told as.
ONE = [
    *((PILLS, PILLS), (PILLS, PILLS.replace("，", ",").replace("。", ".")), (PILLS, PILLS.replace("，", "；", 2))),
    *((PILLS, "您好！" + PILLS), (PILLS, "你好，" + PILLS + "祝您早日康复！"), (PILLS, PILLS + "感谢您的咨询。")),
    *(
        (PILLS, PILLS + "以上内容仅供参考。"),
        (PILLS, PILLS + "\n来源：健康问答网"),
        (PILLS, PILLS + "（责任编辑：李明）"),
    ),
    *(
        (PILLS, PILLS + "\n发布时间：2021-03-05"),
        (PILLS, "发布时间：2019年8月1日\n" + PILLS),
        (PILLS, PILLS + "希望能帮到您。"),
    ),
    (PILLS + "发布时间：2021-03-05", PILLS + "发布时间：2023-11-30"),
    (
        PILLS,
        "阿莫西林成人每次服兩片，每日三次，連服七天，飯後服用，青黴素過敏者停用並及時就醫，服藥期間多飲水並注意觀察有無皮疹。",
    ),
    *((FEVER, FEVER.replace("200毫克", "200 毫克")), (FEVER, FEVER.replace("200", "２００").replace("24", "２４"))),
    *((FEVER, FEVER.replace("胃部不适", "胃部的不适")), (FEVER, FEVER.replace("胃溃疡患者", "此外，胃溃疡患者"))),
    *((FEVER, FEVER.replace("用于", "用于\n")), (LUNG, LUNG.replace("CT", " CT ")), (LUNG, LUNG.replace("CT", "ct"))),
    *((STOMACH, STOMACH.replace("建议", "建议你")), (CONTRAST + "您应多饮水。", CONTRAST + "你应多饮水。")),
    (FEVER, FEVER.replace("胃溃疡患者", "对于胃溃疡患者")),
    *((LUNG, LUNG.replace("建议", "请您建议")), (KIDNEY, KIDNEY.replace("IV", "ＩＶ")), (KIDNEY, "“" + KIDNEY + "”")),
    *(
        (STOMACH, STOMACH.replace("，", "、")),
        (CONTRAST, CONTRAST + "谢谢！"),
        (POTASSIUM, POTASSIUM + "本文由健康网整理。"),
    ),
    *((ADVICE, ADVICE.upper()), (ADVICE, ADVICE.replace("200 mg", "200mg")), (ADVICE, ADVICE.replace("; ", ". "))),
    *((ADVICE, "Hello, " + ADVICE), (ADVICE, ADVICE.replace("patients", "please note that patients"))),
    *((TABLETS, TABLETS + " Last updated: 5 March 2021."), (TABLETS, TABLETS + " Thank you for your question.")),
    *((STAGE, STAGE.replace("the chest", "chest")), (STAGE, STAGE.replace("with liver", "also with liver"))),
    *(
        (VISIT, VISIT.replace(" and ", "\nand ")),
        (VISIT, VISIT.replace("; ", " – ")),
        (VISIT, VISIT + "\n© 2023 www.example.org"),
    ),
    *((VISIT, "Please note that " + VISIT), (VISIT, VISIT + " This information is for educational purposes only.")),
]


def content(text: str, score: float = 0.5) -> Content:
    passage = Passage("p", 0, text, 0, len(text))
    return Content(StoredPassage(0, passage, {}, "encoder"), score)


@pytest.mark.parametrize(("text", "old", "new"), APART, ids=map(str, range(len(APART))))
def test_texts_that_differ_in_a_word_that_says_something_are_two(text: str, old: str, new: str) -> None:
    assert old in text
    other = text.replace(old, new, 1)
    assert not content(text).same_as(content(other))
    assert not content(other).same_as(content(text))


@pytest.mark.parametrize(("text", "other"), ONE, ids=map(str, range(len(ONE))))
def test_texts_that_differ_in_nothing_that_says_something_are_one(text: str, other: str) -> None:
    assert content(text).same_as(content(other))
    assert content(other).same_as(content(text))


def test_each_is_shown_once_in_its_order() -> None:
    texts = [PILLS, FEVER, PILLS + "谢谢！", PILLS.replace("两片", "四片"), FEVER.replace("，", ",")]
    contents = [content(text) for text in texts]
    assert [[contents.index(one) for one in group] for group in first_of_each(contents)] == [[0, 2], [1, 4], [3]]


def test_scores_far_apart_are_of_two_texts() -> None:
    assert not content(PILLS, 0.5).same_as(content(PILLS, 0.4))
