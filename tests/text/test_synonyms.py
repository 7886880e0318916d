"""The list of names, shipped and parsed: which names a text mentions, and which it leaves open."""

from __future__ import annotations

import pytest

from suwen.text.fold import fold
from suwen.text.synonyms import BadSynonyms, Synonyms, kind_of, shipped, shipped_drugs


def test_the_shipped_list_is_large_and_no_name_means_two_things() -> None:
    names = [fold(name) for group in shipped().groups for name in group]
    assert len(shipped()) >= 1500
    assert sorted({name for name in names if names.count(name) > 1}) == []


@pytest.mark.parametrize(
    ("query", "typed", "meant"),
    [
        ("波立维要吃多久", "波立维", "氯吡格雷"),
        ("拜新同会不会脚肿", "拜新同", "硝苯地平"),
        ("络活喜", "络活喜", "氨氯地平"),
        ("心梗了怎么办", "心梗", "心肌梗死"),
        ("甲亢能吃海带吗", "甲亢", "甲状腺功能亢进症"),
        ("PCOS diet", "PCOS", "多囊卵巢综合征"),
        ("copd inhalers", "copd", "慢性阻塞性肺疾病"),
        ("波立維", "波立維", "氯吡格雷"),
    ],
)
def test_names_people_use(query: str, typed: str, meant: str) -> None:
    found = {mention.text: mention.names for mention in shipped().mentions(query)}
    assert meant in found[typed]


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("AF anticoagulation", "心房颤动"),
        ("AF 是什么意思", None),
        ("MS 脱髓鞘 复发", "多发性硬化"),
        ("MS Excel", None),
        ("RA 晨僵", "类风湿关节炎"),
        ("RA in physics", None),
    ],
)
def test_an_ambiguous_abbreviation_waits_for_the_rest_of_the_query(query: str, meant: str | None) -> None:
    found = [mention for mention in shipped().mentions(query) if mention.text in ("AF", "MS", "RA")]
    assert [meant in mention.names for mention in found] == ([True] if meant else [])


@pytest.mark.parametrize(
    ("query", "name"),
    [
        *(
            ("办法能治", "法能"),
            ("可威胁生命", "可威"),
            ("特耐药", "特耐"),
            ("感觉麻木", "上感"),
            ("晚上感觉冷", "上感"),
        ),
        *(("可定期复查", "可定"), ("属于中风险", "中风"), ("减少尿酸", "少尿"), ("全身强直", "强直")),
        *(("过多饮酒", "多饮"), ("更多尿酸", "多尿"), ("打针眼睛", "针眼"), ("输血透析", "血透")),
    ],
)
def test_a_name_by_chance_where_two_words_meet_is_none(query: str, name: str) -> None:
    assert name not in [mention.text for mention in shipped().mentions(query)]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        *(("我父亲波立维停了行吗", "波立维"), ("每天吃拜新同会不会脚肿", "拜新同"), ("老人络活喜能不能停", "络活喜")),
        *(("昨天心梗了怎么办", "心梗"), ("甲亢病人能吃海带吗", "甲亢"), ("得了痛风病怎么吃", "痛风")),
        *(("糖尿病人吃什么", "糖尿病"), ("他汀和可定一起吃", "可定"), ("孩子上感三天", "上感"), ("打血透的人", "血透")),
        *(("会不会中风", "中风"), ("双氯芬酸钠肠溶片", "双氯芬酸"), ("糖耐量偏高", "糖耐量")),
    ],
)
def test_names_stand_in_running_text(query: str, name: str) -> None:
    assert name in [mention.text for mention in shipped().mentions(query)]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        *(("慢性非萎缩性胃炎怎么办", []), ("non-allergic rhinitis", []), ("假性痛风", []), ("类白血病反应", [])),
        *(("非糖尿病肾病", []), ("副流感病毒", []), ("类天疱疮", []), ("non diabetic kidney disease", [])),
        *(("这类贫血", ["贫血"]), ("西地那非头痛", ["西地那非", "头痛"]), ("一副感冒药", ["感冒"])),
        *(("非小细胞肺癌", ["非小细胞肺癌"]), ("非霍奇金淋巴瘤", ["非霍奇金淋巴瘤"]), ("副伤寒", ["副伤寒"])),
        *(("人工流产后能洗衣服吗", ["人工流产"]), ("药物流产", []), ("多囊肝", []), ("流产后多久", ["流产"])),
        *(("极低密度脂蛋白", ["极低密度脂蛋白"]), ("心源性哮喘", ["心源性哮喘"]), ("白细胞介素6", ["白细胞介素"])),
    ],
)
def test_what_makes_another_thing_of_a_name_leaves_it_alone(query: str, names: list[str]) -> None:
    assert [mention.text for mention in shipped().mentions(query)] == names


def test_the_longest_name_wins_and_words_are_whole() -> None:
    own = Synonyms.parse("# names\n心衰, heart failure\n右心衰, right heart failure\nTIA, 小中风\n")
    assert [mention.text for mention in own.mentions("右心衰和TIA")] == ["右心衰", "TIA"]
    assert own.mentions("initial") == [] and len(own) == 3


def test_two_senses_that_both_fit_are_left_open() -> None:
    own = Synonyms.parse("甲, A[心 肝]\n乙, A[心]\n")
    assert own.mentions("A 心") == []
    assert [mention.names for mention in own.mentions("A 肝")] == [("甲",)]


@pytest.mark.parametrize("line", ["alone", "a, b[c", "a,,"])
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(BadSynonyms, match=r"mine\.txt, line 2"):
        Synonyms.parse(f"a, b\n{line}", "mine.txt")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            ("波立维", "drug"),
            ("门冬胰岛素30", "drug"),
            ("心梗", "disease"),
            ("热射病", "disease"),
            ("COPD", "disease"),
        ),
        *(("MI 胸痛 troponin", "disease"), ("头晕", ""), ("剖宫产", ""), ("金葡菌", ""), ("铁蛋白", ""), ("溶栓", "")),
    ],
)
def test_of_each_name_is_known_whether_it_is_a_drug_a_disease_or_neither(name: str, kind: str) -> None:
    assert kind_of(shipped().mentions(name)[0]) == kind


def test_the_drugs_of_the_list_are_those_above_its_diseases() -> None:
    drugs = shipped_drugs()
    assert 700 < len(drugs) < 800
    kinds = {kind_of(mention) for group in drugs.groups for name in group[:1] for mention in drugs.mentions(name)}
    assert kinds == {"drug"}
