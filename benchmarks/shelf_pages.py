"""Book pages with known answers: sentences by templates, put into drawn layouts. Renders and measures nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

EN = {
    "drug": "metoprolol bisoprolol ramipril spironolactone apixaban warfarin amiodarone digoxin furosemide atorvastatin".split(),
    "cond": "heart failure|atrial fibrillation|aortic stenosis|stable angina|mitral regurgitation|pericarditis|hypertension".split(
        "|"
    ),
    "part": "left ventricle|right atrium|mitral valve|aortic root|coronary sinus|pulmonary vein|septum".split("|"),
    "test": "echocardiography|an electrocardiogram|cardiac magnetic resonance|a stress test|coronary angiography".split(
        "|"
    ),
    "who": "older adults|pregnant women|patients with diabetes|children under 12 years|most patients".split("|"),
    "sign": "dyspnoea at rest|peripheral oedema|a new systolic murmur|palpitations|chest pain on exertion".split("|"),
}
EN_TEMPLATES = [
    "In {who} with {cond}, {drug} is started at {n} mg daily and doubled every {m} weeks.",
    "The {part} is best seen by {test}, which should be repeated after {m} months.",
    "A potassium level above {m}.{d} mmol/L means that {drug} must be stopped at once.",
    "Dr. Lindgren described {sign} in {n} of {N} cases of {cond} (approx. {n}%).",
    "{Drug} does not reduce mortality in {cond}, but it relieves {sign}.",
    "When {sign} appears, {test} is arranged within {n} hours, e.g. on the next morning.",
    "Compare the {part} vs. the {part2} in Fig. {m}, where the pressure was {n} mmHg.",
    "Beta-blockers such as {drug} are contraindicated if the heart rate is below {n} bpm.",
    "How often does {cond} recur after ablation of the {part}?",
    "The mean gradient across the valve was {n}.{d} mmHg in {who}, and it rose to {N} mmHg during exercise.",
    "Co-administration of {drug} and {drug2} raises the risk of bleeding, particularly in {who}.",
    "Treatment of {cond} rests on three things: rest, {drug} and regular follow-up.",
    "No. {m} of the national guideline advises {test} for {who} who report {sign}.",
    "Left ventricular ejection fraction below {n}% is an indication for {drug} in the absence of {sign}.",
]
ZH = {
    "drug": "美托洛尔 比索洛尔 雷米普利 螺内酯 阿哌沙班 华法林 胺碘酮 地高辛 呋塞米 阿托伐他汀".split(),
    "cond": "心力衰竭 心房颤动 主动脉瓣狭窄 稳定型心绞痛 二尖瓣反流 心包炎 高血压".split(),
    "part": "左心室 右心房 二尖瓣 主动脉根部 冠状静脉窦 肺静脉 室间隔".split(),
    "test": "超声心动图 心电图 心脏磁共振 负荷试验 冠状动脉造影".split(),
    "who": "老年患者 妊娠期妇女 糖尿病患者 12岁以下儿童 多数患者".split(),
    "sign": "静息时呼吸困难 下肢水肿 新出现的收缩期杂音 心悸 劳力性胸痛".split(),
}
ZH_TEMPLATES = [
    "{who}合并{cond}时，{drug}的起始剂量为每日{n} mg，每{m}周加倍。",
    "{part}的结构以{test}显示最为清楚，{m}个月后应当复查。",
    "血钾超过{m}.{d} mmol/L时必须立即停用{drug}。",
    "{N}例{cond}中有{n}例出现{sign}，约占{n}%。",
    "{drug}不能降低{cond}的死亡率，但可以缓解{sign}。",
    "出现{sign}者应在{n}小时内完成{test}；必要时转入监护病房。",
    "心率低于{n}次/分时禁用{drug}等药物！",
    "{part}消融之后{cond}是否容易复发？",
    "跨瓣平均压差为{n}.{d} mmHg，运动时升至{N} mmHg。",
    "{drug}与{drug2}合用会增加出血风险，{who}尤其需要注意。",
    "左心室射血分数低于{n}%且无{sign}者，可以考虑使用{drug}。",
    "指南建议对诉有{sign}的{who}进行{test}，并记录血压（mmHg）。",
]


@dataclass
class Layout:
    """How a book looks; every value is drawn."""

    language: str
    renderer: str
    columns: int
    size: float
    leading: float
    indent: bool
    justify: bool
    hyphenate: bool
    head: str
    foot: str
    citation: str
    items: str
    rules: bool
    serif: bool
    margin: int


@dataclass
class Element:
    """A piece of a book: its kind, its text or rows, and for paragraphs and lists the sentences in it."""

    kind: str
    text: str = ""
    rows: list[list[str]] = field(default_factory=list)


@dataclass
class Book:
    """A book to be rendered, and the sentences that must come back."""

    title: str
    layout: Layout
    elements: list[Element]
    sentences: list[str]


def draw_layout(draw: random.Random, language: str, renderer: str) -> Layout:
    zh = language == "zh"
    return Layout(
        language,
        renderer,
        columns=draw.choice([1, 2]),
        size=draw.choice([9.0, 10.0, 10.5, 11.0]),
        leading=draw.choice([1.25, 1.35, 1.5]),
        indent=draw.random() < (0.8 if zh else 0.5),
        justify=draw.random() < 0.5,
        hyphenate=not zh and draw.random() < 0.5,
        head=draw.choice(["title", "both", "sides", "none"]),
        foot=draw.choice(["number", "dashes", "words", "title"]),
        citation=draw.choice(["brackets", "names", "none"] if not zh else ["brackets", "none"]),
        items=draw.choice(["1.", "(1)", "•"] if not zh else ["1.", "（1）", "①"]),
        rules=draw.random() < 0.5,
        serif=draw.random() < 0.5,
        margin=draw.choice([48, 56, 68]),
    )


def draw_book(seed: int, language: str, renderer: str, pieces: int = 24) -> Book:
    """A book of so many pieces, all of it by the seed."""
    draw = random.Random(f"{seed}-{language}-{renderer}")
    layout = draw_layout(draw, language, renderer)
    title = "Manual of Clinical Cardiology" if language == "en" else "临床心脏病学手册"
    elements, truth, figures = [], [], 0
    for number in range(pieces):
        kind = draw.choices(["paragraph", "heading", "list", "caption", "table"], [10, 3, 2, 1.5, 1.5])[0]
        if number == 0 or (kind != "paragraph" and elements[-1].kind == kind):
            kind = "heading" if number == 0 else "paragraph"
        if kind == "paragraph":
            said = [_sentence(draw, language) for _ in range(draw.randint(3, 7))]
            truth += said
            joined = ("" if language == "zh" else " ").join(_cited(draw, one, layout) for one in said)
            elements.append(Element("paragraph", joined))
        elif kind == "list":
            for place in range(draw.randint(3, 4)):
                one = _sentence(draw, language)
                truth.append(one)
                elements.append(Element("item", f"{_marker(layout, place)} {one}"))
        elif kind == "heading":
            elements.append(Element("heading", _heading(draw, language, number)))
        else:
            figures += 1
            elements += _figure(draw, language, figures, kind)
    elements += _references(draw, language)
    return Book(title, layout, elements, truth)


def _slots(draw: random.Random, words: dict[str, list[str]]) -> dict[str, object]:
    drugs, parts = draw.sample(words["drug"], 2), draw.sample(words["part"], 2)
    chosen = {key: draw.choice(values) for key, values in words.items()}
    chosen |= {"drug": drugs[0], "drug2": drugs[1], "Drug": drugs[0].capitalize(), "part": parts[0], "part2": parts[1]}
    return chosen | {
        "n": draw.randint(11, 95),
        "m": draw.randint(2, 9),
        "N": draw.randint(101, 480),
        "d": draw.randint(1, 9),
    }


def _sentence(draw: random.Random, language: str) -> str:
    words, templates = (EN, EN_TEMPLATES) if language == "en" else (ZH, ZH_TEMPLATES)
    return draw.choice(templates).format(**_slots(draw, words))


def _cited(draw: random.Random, sentence: str, layout: Layout) -> str:
    if layout.citation == "none" or draw.random() > 0.25:
        return sentence
    number = draw.randint(1, 40)
    mark = f"[{number}]" if draw.random() < 0.6 else f"[{number},{number + 2}–{number + 4}]"
    if layout.citation == "names":
        mark = f"({draw.choice(['Larsen', 'Okafor', 'Wu'])} et al., {draw.randint(1998, 2024)})"
    return f"{sentence[:-1]}{'' if layout.language == 'zh' else ' '}{mark}{sentence[-1]}"


def _marker(layout: Layout, place: int) -> str:
    return "①②③④⑤"[place] if layout.items == "①" else layout.items.replace("1", str(place + 1))


def _heading(draw: random.Random, language: str, number: int) -> str:
    words = _slots(draw, EN if language == "en" else ZH)
    if language == "en":
        return (
            draw.choice(["{c} and its treatment", "{n}.{m} Assessment of the {p}", "Signs of {c}"]).format(
                c=str(words["cond"]).capitalize(), n=number + 1, m=words["m"], p=words["part"]
            )
            if draw.random() < 0.5
            else f"{str(words['cond']).capitalize()}: diagnosis"
        )
    return draw.choice(
        [
            f"第{number + 1}节 {words['cond']}",
            f"{words['cond']}的治疗",
            f"{number + 1}.{words['m']} {words['part']}的检查",
        ]
    )


def _figure(draw: random.Random, language: str, number: int, kind: str) -> list[Element]:
    words = _slots(draw, EN if language == "en" else ZH)
    if kind == "caption":
        said = (
            f"Figure {number}. View of the {words['part']} by {words['test']}."
            if language == "en"
            else f"图{number} {words['part']}的{words['test']}表现"
        )
        return [Element("figure"), Element("caption", said)]
    head = ["Drug", "Dose", "Interval"] if language == "en" else ["药物", "剂量", "间隔"]
    pool = (EN if language == "en" else ZH)["drug"]
    rows = [
        [one, f"{draw.randint(1, 90)} mg", f"{draw.choice([6, 8, 12, 24])} h"]
        for one in draw.sample(pool, draw.randint(3, 5))
    ]
    said = (
        f"Table {number}. Usual doses in {words['cond']}."
        if language == "en"
        else f"表{number} {words['cond']}的常用剂量"
    )
    return [Element("caption", said), Element("table", rows=[head, *rows])]


def _references(draw: random.Random, language: str) -> list[Element]:
    heading = Element("heading", "References" if language == "en" else "参考文献")
    names = ["Larsen T", "Okafor B", "Wu Q", "Meyer H"] if language == "en" else ["王立", "陈静", "李明", "赵宏"]
    entries = []
    for number in range(1, draw.randint(4, 7)):
        year, first = draw.randint(1998, 2024), draw.choice(names)
        if language == "en":
            said = f"{number}. {first}, {draw.choice(names)}. Outcomes of {draw.choice(EN['cond'])} in a national cohort. Heart J. {year};{number + 3}:{number}12–{number}19."
        else:
            said = f"[{number}] {first}, 等. {draw.choice(ZH['cond'])}的长期预后. 中国循环杂志, {year}, {number + 3}: {number}12-{number}19."
        entries.append(Element("reference", said))
    return [heading, *entries]
