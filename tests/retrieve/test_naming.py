"""What a passage is about beside what a query names: other drugs and diseases, told by the lists of names."""

from __future__ import annotations

import pytest

from suwen.retrieve.naming import about_others
from suwen.text.synonyms import Synonyms, shipped


def others(query: str, text: str, title: str = "") -> bool:
    about = about_others(shipped().mentions(query))
    return about is not None and about(title, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("心肌梗死溶栓时间", "急性脑梗死发病4.5小时内，符合条件者可静脉溶栓。"),
        ("heart attack thrombolysis window", "Ischemic stroke is treated with alteplase within 4.5 hours."),
        ("糖尿病的人能喝牛奶吗", "高血压患者可以喝牛奶，没有什么影响。"),
        ("阿司匹林吃多久", "利伐沙班一般服用三个月，之后复查。"),
        ("波立维和奥美拉唑能一起吃吗", "华法林的作用受许多药物影响，要查凝血。"),
    ],
)
def test_a_text_that_begins_with_another_name_and_has_none_of_the_querys_is_about_others(query: str, text: str) -> None:
    assert others(query, text)
    assert others(query, "里面没有别的名称。", title=text.split("，")[0])


@pytest.mark.parametrize(
    ("query", "text"),
    [
        # by the same name, another name, in the title, further down
        ("心肌梗死溶栓时间", "急性心肌梗死发病12小时内可溶栓，脑梗死是4.5小时。"),
        ("心肌梗死溶栓时间", "脑梗死发病4.5小时内可以溶栓，心梗则是12小时。"),
        ("波立维要吃多久", "阿司匹林要长期吃，氯吡格雷一般一年。"),
        # a part or a kind of it
        ("中风后多久能溶栓", "缺血性卒中发病4.5小时内可静脉溶栓。"),
        ("2型糖尿病怎么吃", "糖尿病患者要控制总热量，少吃甜食。"),
        # the drug is that of the query, though the disease is not
        ("高血压能吃布洛芬吗", "布洛芬用于痛风急性期的止痛，饭后服用。"),
        # of another kind, of none, and not at the beginning
        ("心肌梗死吃什么药", "阿司匹林每天一次，长期服用。"),
        ("心肌梗死怎么治", "发病后应立即拨打急救电话，平卧休息。"),
        ("心肌梗死怎么治", "发病后应立即就医，有高血压者控制血压。"),
        # the query names neither drug nor disease
        ("溶栓时间", "急性脑梗死发病4.5小时内可静脉溶栓。"),
        ("头晕怎么办", "高血压患者头痛时应测血压。"),
    ],
)
def test_any_other_text_is_not(query: str, text: str) -> None:
    assert not others(query, text)


def test_names_of_an_indexs_own_list_count_as_the_querys() -> None:
    own = Synonyms.parse("氯吡格雷, 小白片")
    about = about_others(own.mentions("小白片要吃多久"))
    assert about is not None
    assert about("", "阿司匹林要长期服用。")
    assert not about("", "阿司匹林要长期服用，小白片一年。")
