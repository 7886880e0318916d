"""Other names and spelling, over a small index of its own words; and one of each on a page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from in_memory import folder_in_memory
from suwen.corpora.records import Document
from suwen.encoders.pair import default_pair_path
from suwen.index.engine import IndexProblem
from suwen.retrieve.naming import is_code
from suwen.retrieve.retriever import Index
from suwen.retrieve.wording import FILE, corrections, own_list
from suwen.text.synonyms import Synonyms

TEXTS = {
    "clopidogrel": "放支架后通常需要服用氯吡格雷十二个月，不可自行停药，出现黑便应及时就诊。",
    "ibuprofen": "布洛芬可能刺激胃黏膜，宜饭后服用，有溃疡者不要使用。",
    "pressure": "高血压患者常有头晕，应当每天测量并记录。",
    "migraine": "Ibuprofen early in a migraine attack often helps; avoid taking it on many days.",
    "asthma": "支气管哮喘夜间多发，吸入激素是控制炎症的基石，患者应当坚持用药并随身携带急救药物。",
    "statins": "普伐他汀和氟伐他汀都可以降低胆固醇，睡前服用，注意复查肝功能与肌酸激酶水平。",
    "code": "J45.9 哮喘",
    "order": "检验单号 LX-20931 的标本溶血，请重新采血后送检，其余项目照常报告即可。",
}


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with folder_in_memory() as folder, Index.create(folder / "i", pair=default_pair_path()) as opened:
        opened.add([Document(id_, text) for id_, text in TEXTS.items()], encoder=opened.pair.encoder("static"))
        yield opened


def first(index: Index, query: str) -> str:
    return index.search(query, 3, tier="static")[0].document_id


def test_a_brand_finds_the_generic_and_says_so(index: Index) -> None:
    found = index.search("波立维要吃多久", 3, tier="static")
    assert found[0].document_id == "clopidogrel"
    assert found.also_searched == ("氯吡格雷",), "only what the index has"
    assert index.search("波立维要吃多久", 3, tier="static", synonyms=False).also_searched == ()


@pytest.mark.parametrize(
    ("query", "right", "document"),
    [
        ("布洛分伤不伤胃", "布洛芬", "ibuprofen"),
        ("高血亚头晕", "高血压", "pressure"),
        ("ibuprofin for migrane", "ibuprofen", "migraine"),
    ],
)
def test_slips_are_set_right(index: Index, query: str, right: str, document: str) -> None:
    found = index.search(query, 3, tier="static")
    assert right in found.also_searched and found[0].document_id == document


@pytest.fixture(scope="module")
def wide() -> Iterator[Index]:
    """An index that has the names which the queries below were turned into."""
    names = "不想活 酮咯酸 骨密度 肝硬化 促红素 胆囊炎 拉肚子 利巴韦林 病毒唑 甲亢 痛风 慢性胃炎 肝功能 降压药 房颤"
    english = (
        "color ablation digoxin healing overuse metformin warfarin reaction ureteral sulfate hypoglycemia infection"
    )
    with folder_in_memory() as folder, Index.create(folder / "i", pair=default_pair_path()) as opened:
        texts = {**{name: name for name in names.split()}, "english": english}
        opened.add([Document(id_, text) for id_, text in texts.items()], encoder=opened.pair.encoder("static"))
        yield opened


@pytest.mark.parametrize(
    "query",
    [
        *("孩子不想吃饭怎么办", "糖尿病酮症酸中毒", "高密度脂蛋白低", "脑动脉硬化", "胆红素高", "胆囊癌晚期"),
        *("孕妇肚子疼", "乙肝病毒清除不了", "慢性浅表性胃炎", "肝功不正常", "快速降压方法", "通风的房间"),
        *("colon cancer", "abortion", "drug overdose", "creatine", "dioxin", "hearing loss", "retraction of skin"),
        *("urethral cancer", "sulfite allergy", "hyperglycemia", "injections", "patient", "warfarins"),
    ],
)
def test_words_of_others_are_no_slips(wide: Index, query: str) -> None:
    with wide.engine.snapshot() as snapshot:
        assert corrections(query, snapshot, Synonyms([])) == {}


@pytest.mark.parametrize(
    ("query", "typed", "right"),
    [
        *(("甲抗吃什么", "甲抗", "甲亢"), ("得了痛疯怎么办", "痛疯", "痛风"), ("防颤", "防颤", "房颤")),
        *(("metformine dose", "metformine", "metformin"), ("warfrin", "warfrin", "warfarin")),
    ],
)
def test_what_was_meant_stands_beside_what_was_typed(wide: Index, query: str, typed: str, right: str) -> None:
    worded = wide.worded(query)
    assert worded.text == query and worded.meant == query.replace(typed, right)
    assert worded.also[typed][0] == right == worded.told[0]


def test_a_slip_in_traditional_characters_is_set_right(wide: Index) -> None:
    assert wide.worded("得了痛瘋怎麼辦").meant == "得了痛风怎麼辦"


def test_a_name_inside_of_other_words_is_not_read_as_another(index: Index) -> None:
    for query in ("可定期复查", "办法能治", "晚上感觉冷"):
        assert index.worded(query).meant == query
    worded = index.worded("吃可定，可定期复查")
    assert worded.meant == "吃瑞舒伐他汀，可定期复查"
    assert "瑞舒伐他汀" in worded.told, "what the encoder reads is told, whether the index has it or not"


def test_a_slip_between_two_drugs_is_left_alone(index: Index) -> None:
    # 普, 氟, 匹, 洛: each is one character away.
    assert index.search("浦伐他汀", 3, tier="static").also_searched == ()


def test_words_the_index_has_are_never_corrected(index: Index) -> None:
    assert index.search("stent attack", 3, tier="static").also_searched == ()
    assert first(index, "LX-20931") == "order"


def test_an_index_has_names_of_its_own(index: Index) -> None:
    assert index.search("大力丸", 3, tier="static").also_searched == ()
    index.engine.put_blob(FILE, "氯吡格雷, 大力丸\n".encode())
    assert index.search("大力丸要吃多久", 3, tier="static")[0].document_id == "clopidogrel"


def test_a_list_that_an_editor_wrote(index: Index) -> None:
    # As editors of Windows save it: with a mark, or not in UTF-8.
    index.engine.put_blob(FILE, "\ufeff大力丸, 氯吡格雷\r\n".encode())
    assert "氯吡格雷" in index.search("大力丸", 3, tier="static").also_searched
    index.engine.put_blob(FILE, "氯吡格雷, 大力丸\n".encode())


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("神仙水[\n".encode(), "line 2: '神仙水[' is no name"),
        ("神仙水\n".encode(), "line 2: a group needs two names"),
        ("神仙水, 氯吡格雷\n".encode("gb18030"), "line 2: it is not in UTF-8"),
    ],
)
def test_a_bad_line_stops_no_search(index: Index, caplog: pytest.LogCaptureFixture, bad: bytes, said: str) -> None:
    index.engine.put_blob(FILE, "氯吡格雷, 大力丸\n".encode() + bad + "布洛芬, 止痛灵\n".encode())
    for query, document in (("大力丸要吃多久", "clopidogrel"), ("止痛灵饭前吃吗", "ibuprofen")):
        assert index.search(query, 3, tier="static")[0].document_id == document
    [told] = [record.getMessage() for record in caplog.records]
    assert (
        said in told
        and f": left out of {index.engine.address}; correct it" in told
        and f"'suwen synonyms {index.engine.address} FILE'" in told
    )
    assert index.wordings.left_out() == told
    with pytest.raises(IndexProblem, match=r"the list of names of .* cannot be read .*'suwen synonyms"):
        own_list(index.engine)
    index.engine.put_blob(FILE, "氯吡格雷, 大力丸\n".encode())
    assert index.wordings.left_out() == ""


def test_of_many_bad_lines_a_few_are_named(index: Index) -> None:
    index.engine.put_blob(FILE, b"one\n" * 9 + "氯吡格雷, 大力丸\n".encode())
    assert "line 3: a group" in (told := index.wordings.left_out()) and "line 4" not in told and "and 6 more" in told
    index.engine.put_blob(FILE, "氯吡格雷, 大力丸\n".encode())


def test_a_bare_name_stands_under_an_answer_to_a_question_and_over_it_for_a_name(index: Index) -> None:
    assert first(index, "哮喘怎么办") == "asthma"
    assert first(index, "J45.9") == "code"


TWINS = {
    "first": "成人每次服用阿莫西林500毫克，每日三次，疗程七天，青霉素过敏者不能使用，出现皮疹应立即停药并就诊。",
    "twin": "成人每次服用阿莫西林500毫克，每日三次，疗程七天；青霉素过敏者不能使用，出现皮疹应立即停药并就诊！",
    "dose": "成人每次服用阿莫西林250毫克，每日三次，疗程七天，青霉素过敏者不能使用，出现皮疹应立即停药并就诊。",
    "unit": "成人每次服用阿莫西林500微克，每日三次，疗程七天，青霉素过敏者不能使用，出现皮疹应立即停药并就诊。",
    "negation": "成人每次服用阿莫西林500毫克，每日三次，疗程七天，青霉素过敏者能使用，出现皮疹应立即停药并就诊。",
    "drug": "成人每次服用阿奇霉素500毫克，每日三次，疗程七天，青霉素过敏者不能使用，出现皮疹应立即停药并就诊。",
}


def test_only_what_differs_in_nothing_that_matters_is_folded() -> None:
    with folder_in_memory() as folder, Index.create(folder / "i", pair=default_pair_path()) as opened:
        opened.add([Document(id_, text) for id_, text in TWINS.items()], encoder=opened.pair.encoder("static"))
        found = opened.search("阿莫西林怎么吃", 10, tier="static")
        assert {hit.document_id: len(hit.same) for hit in found if hit.same} in ({"first": 1}, {"twin": 1})
        assert len(found) == 5
        assert len(opened.search("阿莫西林怎么吃", 10, tier="static", fold=False)) == 6
        pages = [
            hit.id for start in (0, 2, 4) for hit in opened.search("阿莫西林怎么吃", 2, offset=start, tier="static")
        ]
        assert pages == [hit.id for hit in found]


@pytest.mark.parametrize(
    ("term", "chinese", "code"),
    [
        *(("v600e", False, True), ("lx-44807", False, True), ("3.512mmol", False, True), ("20231234", False, True)),
        *(
            ("39", True, False),
            ("2024", False, False),
            ("braf", True, True),
            ("braf", False, False),
            ("血压", True, False),
        ),
    ],
)
def test_codes_have_letters_and_digits_or_are_latin_among_chinese(term: str, chinese: bool, code: bool) -> None:
    assert is_code(term, chinese) is code


def rare(index: Index, query: str) -> list[str]:
    return [name.typed for name in index.worded(query).names if name.few]


@pytest.mark.parametrize(
    ("query", "bare"),
    [
        *(("波立维", True), ("波立维是什么", True), ("HLA-B*1502", True), ("J18.901", True), ("0.87 ng/mL", True)),
        *(("HAS-BLED", True), ("birefringent", True), ("克立硼罗", True), ("利奈唑胺 拓益", True)),
        *(
            ("波立维要吃多久饭后", False),
            ("cat food", False),
            ("高铁票", False),
            ("红烧肉", False),
            ("chocolate", False),
        ),
        *(("depression in the 1930s economy", False), ("how to paint", False)),
        *(("血压计怎么换电池", False), ("红烧肉", False)),
    ],
)
def test_a_bare_name_is_a_name_and_no_more(index: Index, query: str, bare: bool) -> None:
    assert index.worded(query).bare is bare


def test_rare_names_are_those_that_few_passages_have(index: Index) -> None:
    static = index.pair.encoder("static")
    index.add([Document(f"r{number}", f"{number}床用过利奈唑胺，与本次无关。") for number in range(3)], encoder=static)
    assert rare(index, "患者用利奈唑胺要注意什么") == ["利奈唑胺"]
    assert rare(index, "LX-20931是怎么回事") == ["lx-20931"]
    index.add([Document("r3", "利奈唑胺")], encoder=static)
    assert rare(index, "患者用利奈唑胺要注意什么") == []
