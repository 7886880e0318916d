"""Write the measuring set of the masks: frames filled with names, numbers and addresses from Faker and other lists.

    pip install faker==40.54.0 && python benchmarks/make_unseen_sentences.py [--set development --seed 7]

The frames (unseen_frames.txt, unseen_record_frames.jsonl) and the lists below were written before the rules they
measure, and without reading them.
The result is committed, so that scoring needs no Faker. Nothing of it may be used to write rules: what the rules miss
here is reported and stays missed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from faker import Faker

HERE = Path(__file__).parent
FILLS = 4
NUMERALS = "零一二三四五六七八九"
ETHNIC = [
    "阿不都热合曼·吐尔逊",
    "古丽娜尔·艾合买提",
    "帕提曼·依明",
    "买买提江·卡德尔",
    "热依汗古丽·玉素甫",
    "艾尼瓦尔·司马义",
    "努尔兰·哈力克",
    "阿依努尔·木拉提",
    "沙吾提·阿吾提",
    "玛依拉·赛买提",
    "吾买尔·托合提",
    "佐热古丽·库尔班",
]
NO_DOT = [
    "次仁卓玛",
    "扎西顿珠",
    "巴图巴雅尔",
    "格桑曲珍",
    "其其格",
    "旦增罗布",
    "阿木古楞",
    "白玛央金",
    "斯琴高娃",
    "尼玛次仁",
]
FOREIGN = [
    "迈克尔·约翰逊",
    "玛丽亚·冈萨雷斯",
    "安德烈·伊万诺夫",
    "汉斯·施密特",
    "索菲·杜邦",
    "卡洛斯·费尔南德斯",
    "奥尔加·彼得罗娃",
    "詹姆斯·威尔逊",
    "艾哈迈德·哈桑",
    "乌韦·克劳泽",
    "伊莎贝拉·罗西",
    "彼得·范德梅尔",
]
RARE = [
    "阚丽娟",
    "逄志刚",
    "亓晓东",
    "仉文斌",
    "欧阳雪梅",
    "尉迟敬轩",
    "上官云飞",
    "端木晴",
    "璩美玲",
    "郗建平",
    "令狐子墨",
    "佘桂芝",
]
RARE_SURNAMES = ["阚", "逄", "亓", "欧阳", "上官", "郗", "佘", "司徒", "邸", "宓"]
DISTRICTS = ["朝阳区", "浦东新区", "天河区", "武侯区", "江宁区", "雨花区", "沙坪坝区", "和平区", "历下区", "二七区"]
CITIES = ["北京市", "上海市", "广州市", "成都市", "南京市", "长沙市", "重庆市", "沈阳市", "济南市", "郑州市"]
ROADS = [
    "建设路",
    "解放大道",
    "人民北路",
    "学府街",
    "中山三路",
    "科技园南路",
    "滨河东路",
    "和平巷",
    "幸福里",
    "迎宾大街",
]
ESTATES = ["锦绣花园", "翠湖家园", "阳光小区", "龙腾苑", "紫荆公寓", "万和城", "西城雅居", "桃源新村"]
VILLAGES = [
    "河南省商丘市睢县城郊乡李庄村3组",
    "四川省达州市渠县土溪镇天府村12号",
    "湖北省孝感市大悟县新城镇红畈村",
    "云南省昭通市镇雄县泼机镇老包寨村民小组",
    "山东省菏泽市曹县庄寨镇前张楼村46号",
]
WORDS = ["health", "sunny", "river", "maple", "lotus", "panda", "coffee", "summit", "bluebird", "orange"]
LOCALES = ("de_DE", "fr_FR", "es_ES", "pl_PL", "sv_SE", "it_IT", "en_IN", "tr_TR", "vi_VN")
TITLES = re.compile(r"^(?:\w+\.(?:-\w+\.)? ?)+|\s+(?:MD|DDS|PhD|DVM|Jr\.|II|III|IV|V)$")


class Fill:
    """One value for each slot: the same seed, the same values."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.zh, self.en = Faker("zh_CN"), Faker("en_US")
        self.others = [Faker(locale) for locale in LOCALES]
        for index, source in enumerate((self.zh, self.en, *self.others)):
            source.seed_instance(seed + index)

    def digits(self, count: int) -> str:
        return str(self.rng.randint(1, 9)) + "".join(str(self.rng.randint(0, 9)) for _ in range(count - 1))

    def name(self) -> str:
        return self.rng.choice(RARE) if self.rng.random() < 0.15 else self.zh.name()

    def surname(self) -> str:
        return self.rng.choice(RARE_SURNAMES) if self.rng.random() < 0.3 else self.zh.last_name()

    def name_en(self) -> str:
        return TITLES.sub("", self.en.name())

    def name_foreign(self) -> str:
        return TITLES.sub("", self.rng.choice(self.others).name())

    def latin(self) -> str:
        return self.name_foreign() if self.rng.random() < 0.5 else self.name_en()

    def mobile(self) -> str:
        number = self.zh.phone_number()
        parts = [number[:3], number[3:7], number[7:]]
        join = self.rng.choice(("", "", "", " ", "-", "."))
        return self.rng.choice(("", "", "", "", "+86 ")) + join.join(parts)

    def mobile_zh(self) -> str:
        digits = NUMERALS if self.rng.random() < 0.7 else NUMERALS.replace("零", "〇")
        return "".join(digits[int(digit)] for digit in self.zh.phone_number())

    def landline(self) -> str:
        code, number = self.rng.choice((("021", 8), ("010", 8), ("0571", 8), ("0755", 8), ("0371", 8), ("0917", 7)))
        digits = self.digits(number).replace("1", "2", 1)
        forms = (f"{code}-{digits}", f"{code} {digits[:4]} {digits[4:]}", f"（{code}）{digits}", f"{code}{digits}")
        return self.rng.choice((*forms, f"{code}-{digits}转{self.digits(3)}"))

    def record(self) -> str:
        long = self.rng.choice((6, 7, 8, 10, 12))
        prefix = self.rng.choice(("", "", "", "ZY", "MZ", "B2022-", "CT", "P"))
        return prefix + self.digits(long - len(prefix) if len(prefix) > 2 else long)

    def address(self) -> str:
        rng = self.rng
        if rng.random() < 0.3:
            address = self.zh.address()
            return address if rng.random() < 0.5 else address.rsplit(" ", 1)[0]
        if rng.random() < 0.2:
            return rng.choice(VILLAGES)
        place = rng.choice(CITIES) + rng.choice(DISTRICTS) if rng.random() < 0.7 else rng.choice(DISTRICTS)
        road = f"{rng.choice(ROADS)}{rng.randint(2, 899)}号"
        door = rng.choice(("", f"{rng.choice(ESTATES)}{rng.randint(1, 30)}栋{rng.randint(101, 2904)}室"))
        door = door or rng.choice(
            ("", f"{rng.randint(1, 9)}单元{rng.randint(101, 1804)}", f"院{rng.randint(2, 9)}号楼")
        )
        return place + road + door

    def address_en(self) -> str:
        return self.en.address().replace("\n", ", ")

    def email(self) -> str:
        return self.en.email() if self.rng.random() < 0.5 else f"{self.rng.choice(WORDS)}_{self.digits(4)}@163.com"

    def wechat(self) -> str:
        return self.rng.choice(WORDS) + self.rng.choice(("_", "", "-")) + self.digits(self.rng.choice((3, 4, 6)))

    def birth(self) -> str:
        day = self.zh.date_of_birth(minimum_age=18, maximum_age=90)
        forms = (f"{day.year}年{day.month}月{day.day}日", f"{day:%Y-%m-%d}", f"{day.year}.{day.month}.{day.day}")
        return self.rng.choice(forms)

    def birth_en(self) -> str:
        day = self.en.date_of_birth(minimum_age=18, maximum_age=90)
        return self.rng.choice((f"{day:%m/%d/%Y}", f"{day:%d %B %Y}", f"{day:%B} {day.day}, {day.year}"))

    def plate(self) -> str:
        tail = "".join(self.rng.choice("0123456789ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(4)) + self.digits(1)
        return self.rng.choice("京沪粤苏浙川鲁豫") + self.rng.choice("ABCDEF") + self.rng.choice(("", "·", " ")) + tail

    def insurance_en(self) -> str:
        return self.rng.choice(("XQH", "W", "1EG4-TE5-")) + self.digits(self.rng.choice((9, 4, 8)))

    def last_first(self) -> str:
        last, first = self.en.last_name(), self.en.first_name()
        return self.rng.choice((f"{last}, {first}", f"{last.upper()}, {first.upper()}"))

    def slots(self) -> dict[str, tuple[str, Callable[[], str]]]:
        """Slot: which group it belongs to, and how it is filled."""
        rng = self.rng
        names: dict[str, Callable[[], str]] = {
            "name": self.name,
            "surname": self.surname,
            "ethnic": lambda: rng.choice(ETHNIC),
            "nodot": lambda: rng.choice(NO_DOT),
            "foreign": lambda: rng.choice(FOREIGN),
            "latin": self.latin,
            "name_en": self.name_en,
            "name_foreign": self.name_foreign,
            "last": self.en.last_name,
            "first": self.en.first_name,
            "last_foreign": lambda: rng.choice(self.others).last_name(),
            "last_first": self.last_first,
            "initials": lambda: f"{self.en.first_name()[0]}. {self.en.last_name()}",
        }
        numbers: dict[str, Callable[[], str]] = {
            "mobile": self.mobile,
            "mobile_zh": self.mobile_zh,
            "landline": self.landline,
            "phone": self.en.phone_number,
            "record": self.record,
            "mrn": lambda: self.digits(rng.choice((6, 7, 8))),
            "account": lambda: rng.choice(("", "V", "A00")) + self.digits(rng.choice((7, 9))),
            "idcard": self.zh.ssn,
            "ssn": self.en.ssn,
            "bank": lambda: rng.choice(("6222", "6217", "6228")) + self.digits(rng.choice((12, 15))),
            "email": self.email,
            "email_en": self.en.email,
            "qq": lambda: self.digits(rng.choice((8, 9, 10))),
            "wechat": self.wechat,
            "url": lambda: f"https://{self.en.domain_name()}/u/{self.digits(6)}",
            "ip": self.en.ipv4,
            "passport": lambda: rng.choice(("E", "G", "EA", "C01X")) + self.digits(rng.choice((7, 8))),
            "passport_en": lambda: rng.choice("ABHK") + rng.choice("BKX") + self.digits(6),
            "plate": self.plate,
            "plate_en": self.en.license_plate,
            "insurance": lambda: self.digits(rng.choice((9, 10, 12))),
            "insurance_en": self.insurance_en,
            "policy": lambda: rng.choice(("P", "PA20", "BX-")) + self.digits(rng.choice((8, 10))),
            "postcode": self.zh.postcode,
            "birth": self.birth,
            "birth_en": self.birth_en,
            "bed": lambda: rng.choice(("", "+", "")) + str(rng.randint(1, 68)),
            "bed_en": lambda: f"{rng.randint(1, 9)}{rng.choice('0123456789AB')}",
        }
        addresses = {"address": self.address, "address_en": self.address_en}
        groups = {"names": names, "numbers": numbers, "addresses": addresses}
        return {slot: (group, make) for group, slots in groups.items() for slot, make in slots.items()}


def frames(path: Path) -> Iterator[tuple[str, str]]:
    """Each frame, with the genre whose heading stands over it."""
    genre = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            genre = line[2:]
        elif line:
            yield genre, line


def filled(frame: str, slots: dict[str, tuple[str, Callable[[], str]]]) -> tuple[str, list[list[int | str]]]:
    text, gold, end = "", [], 0
    for match in re.finditer(r"\{(\w+?)\d?(?:\|([^}]*))?\}", frame):
        text += frame[end : match.start()]
        group, make = slots[match[1]]
        value = match[2] or make()
        gold.append([len(text), len(text) + len(value), group, match[1]])
        text, end = text + value, match.end()
    return text + frame[end:], gold


def filled_record(frame: str, slots: dict[str, tuple[str, Callable[[], str]]]) -> dict[str, object]:
    """A record, the personal values that must be gone from it, and the slots they come from; {=slot} says one again."""
    values: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return values[match[2]]
        values[match[2]] = slots[match[2].rstrip("0123456789").removesuffix("_int")][1]()
        if match[2].endswith("_int"):
            values[match[2]] = re.sub(r"\D", "", values[match[2]])
        return values[match[2]]

    record = json.loads(re.sub(r"\{(=?)(\w+)\}", value, frame))
    gold = [[value, slots[slot.rstrip("0123456789").removesuffix("_int")][0]] for slot, value in values.items()]
    return record | {"gold": gold}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="unseen", help="unseen, or development: the set to write rules with.")
    parser.add_argument("--seed", type=int, default=20231)
    arguments = parser.parse_args()
    slots = Fill(arguments.seed).slots()
    with (HERE / f"{arguments.set}_sentences.jsonl").open("w", encoding="utf-8") as out:
        for _ in range(FILLS):
            for genre, frame in frames(HERE / f"{arguments.set}_frames.txt"):
                text, gold = filled(frame, slots)
                out.write(json.dumps({"genre": genre, "text": text, "gold": gold}, ensure_ascii=False) + "\n")
    if arguments.set != "unseen":
        return
    with (HERE / "unseen_records.jsonl").open("w", encoding="utf-8") as out:
        for _ in range(FILLS):
            for frame in (HERE / "unseen_record_frames.jsonl").read_text(encoding="utf-8").splitlines():
                out.write(json.dumps(filled_record(frame, slots), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
