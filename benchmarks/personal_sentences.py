"""Sentences with invented personal data whose places are known, made of the frozen templates. No rule lives here."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TEMPLATES = Path(__file__).with_name("personal_templates.json")
#: What the file weighed when it was frozen, before the first rule was written.
FROZEN = "e62262f1f56e8e5c733b0075fec73581ff2ee3adf703c04411f9b8748f691a11"
#: Every fourth template of a language is held out: the rules were written without looking at how they fare on it.
HELD_OUT = 4
#: Which kind of personal data a slot holds; every other slot is something that must survive.
KINDS = {
    **dict.fromkeys(("id18", "id15"), "id_card"),
    **dict.fromkeys(("mobile", "landline", "phone_en"), "phone"),
    "email": "email",
    "bank": "bank_card",
    "record": "record",
    **dict.fromkeys(("bed", "bed_en"), "bed"),
    **dict.fromkeys(("birth_zh", "birth_en"), "birth"),
    **dict.fromkeys(("address_zh", "address_en"), "address"),
    **dict.fromkeys(("name_zh", "surname_zh", "name_en", "name_lf", "last_en", "name_init"), "name"),
    "ssn": "ssn",
}
MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905
_SLOT = re.compile(r"\{(\w+)\}")


class Gold(NamedTuple):
    """Personal data at ``text[start:end]``."""

    start: int
    end: int
    kind: str


class Sentence(NamedTuple):
    """A filled template, with all the personal data in it."""

    text: str
    gold: tuple[Gold, ...]
    language: str
    group: str
    template: int
    held_out: bool


def template_hash() -> str:
    return hashlib.sha256(TEMPLATES.read_bytes()).hexdigest()


def sentences(count: int, seed: int) -> list[Sentence]:
    """Fill the templates in turn, ``count`` times in all."""
    data = json.loads(TEMPLATES.read_text(encoding="utf-8"))
    filler = Filler(data["fillers"], random.Random(seed))
    templates = [
        (language, number, template)
        for language, group in data["templates"].items()
        for number, template in enumerate(group)
    ]
    return [_filled(filler, *templates[turn % len(templates)]) for turn in range(count)]


def _filled(filler: Filler, language: str, number: int, template: dict[str, str]) -> Sentence:
    text, gold, last = "", [], 0
    for slot in _SLOT.finditer(template["text"]):
        text += template["text"][last : slot.start()]
        value = filler(slot[1])
        if slot[1] in KINDS:
            gold.append(Gold(len(text), len(text) + len(value), KINDS[slot[1]]))
        text += value
        last = slot.end()
    text += template["text"][last:]
    held_out = number % HELD_OUT == HELD_OUT - 1
    return Sentence(text, tuple(gold), language, template["group"], number, held_out)


class Filler:
    """Something to stand in a slot, drawn at random."""

    def __init__(self, lists: dict[str, list[str]], chance: random.Random) -> None:
        self.lists = lists
        self.chance = chance
        self.made: dict[str, Callable[[], str]] = {
            name.removeprefix("_make_"): getattr(self, name) for name in dir(self) if name.startswith("_make_")
        }

    def __call__(self, slot: str) -> str:
        return self.made[slot]() if slot in self.made else self.pick(slot)

    def pick(self, name: str) -> str:
        return self.chance.choice(self.lists[name])

    def digits(self, count: int) -> str:
        return "".join(self.chance.choice("0123456789") for _ in range(count))

    def between(self, low: int, high: int) -> int:
        return self.chance.randint(low, high)

    def one(self, *forms: Any) -> str:
        return str(self.chance.choice(forms))

    def day(self, low: int, high: int) -> tuple[int, int, int]:
        return self.between(low, high), self.between(1, 12), self.between(1, 28)

    # Personal data.

    def _make_id18(self) -> str:
        year, month, day = self.day(1930, 2020)
        body = f"{self.one('11', '31', '32', '44', '51', '61')}{self.digits(4)}{year}{month:02}{day:02}{self.digits(3)}"
        weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
        check = "10X98765432"[sum(int(digit) * weight for digit, weight in zip(body, weights, strict=True)) % 11]
        return body + (check.lower() if self.chance.random() < 0.2 else check)

    def _make_id15(self) -> str:
        year, month, day = self.day(30, 85)
        return f"{self.one('11', '31', '32', '44', '51', '61')}{self.digits(4)}{year}{month:02}{day:02}{self.digits(3)}"

    def _make_mobile(self) -> str:
        head = f"1{self.between(3, 9)}{self.digits(1)}"
        middle, tail = self.digits(4), self.digits(4)
        plain = head + middle + tail
        return self.one(
            plain, plain, plain, f"{head} {middle} {tail}", f"{head}-{middle}-{tail}", f"+86 {plain}", f"+86{plain}"
        )

    def _make_landline(self) -> str:
        number = f"{self.between(2, 8)}{self.digits(7)}"
        area, long_area = self.one("010", "021", "025", "028"), self.one("0571", "0755", "0371")
        return self.one(
            f"{area}-{number}", f"({area}){number}", f"{long_area}-{number}", f"{long_area}-{number[1:]}", area + number
        )

    def _make_phone_en(self) -> str:
        area = self.one("212", "312", "415", "617", "713", "206")
        middle, tail = f"{self.between(2, 9)}{self.digits(2)}", self.digits(4)
        return self.one(
            f"{area}-{middle}-{tail}",
            f"({area}) {middle}-{tail}",
            f"{area}.{middle}.{tail}",
            f"+1 {area} {middle} {tail}",
            f"1-{area}-{middle}-{tail}",
        )

    def _make_email(self) -> str:
        user = self.pick("first_en").lower().replace("-", "_")
        return self.one(user, f"{user}.{self.digits(2)}", f"{user}_{self.digits(4)}", self.digits(9)) + (
            "@" + self.pick("mail")
        )

    def _make_bank(self) -> str:
        length = self.chance.choice((16, 19))
        body = self.one("622202", "621700", "622848", "436742", "552245") + self.digits(length - 7)
        doubled = [int(digit) * (2 if place % 2 == 0 else 1) for place, digit in enumerate(reversed(body))]
        total = sum(value - 9 if value > 9 else value for value in doubled)
        number = body + str(-total % 10)
        spaced = " ".join(number[place : place + 4] for place in range(0, length, 4))
        return self.one(number, number, spaced)

    def _make_record(self) -> str:
        return self.one(
            self.digits(8),
            self.digits(6),
            self.digits(10),
            f"ZY{self.digits(8)}",
            f"B{self.digits(7)}",
            f"{self.digits(4)}-{self.digits(5)}",
            f"M{self.digits(3)}-{self.digits(4)}",
        )

    def _make_bed(self) -> str:
        number = self.between(1, 99)
        return self.one(number, number, f"加{self.between(1, 9)}", f"A{number}", f"{self.between(1, 9)}-{number}")

    def _make_bed_en(self) -> str:
        return self.one(self.between(1, 99), f"{self.between(1, 40)}{self.one('A', 'B')}", f"B-{self.between(1, 40)}")

    def _make_birth_zh(self) -> str:
        return self._date_zh(*self.day(1925, 2023))

    def _make_birth_en(self) -> str:
        return self._date_en(*self.day(1925, 2023))

    def _make_address_zh(self) -> str:
        street = f"{self.pick('place')}{self.pick('road')}{self.between(1, 999)}号"
        flat = f"{self.between(1, 40)}栋{self.between(1, 3)}单元{self.between(101, 1904)}室"
        estate = f"{self.pick('place')}{self.pick('estate')}{self.between(1, 30)}号楼{self.between(101, 1904)}室"
        return self.one(street, street + flat, f"{street}{self.pick('estate')}{flat}", estate, self.pick("village"))

    def _make_address_en(self) -> str:
        street = f"{self.between(1, 9999)} {self.pick('street_en')}"
        flat = self.one("", f", Apt {self.between(1, 40)}B", f" Suite {self.between(100, 900)}")
        return self.one(f"{street}{flat}, {self.pick('city_en')}", f"{street}{flat}, {self.pick('city_en')}", street)

    def _make_name_zh(self) -> str:
        return self.pick("surname") + self.pick("given")

    def _make_surname_zh(self) -> str:
        return self.pick("surname_common")

    def _make_name_en(self) -> str:
        first, last = self.pick("first_en"), self.pick("last_en")
        return self.one(f"{first} {last}", f"{first} {last}", f"{first} {self.one('A', 'J', 'M')}. {last}")

    def _make_name_lf(self) -> str:
        return f"{self.pick('last_en')}, {self.pick('first_en')}"

    def _make_name_init(self) -> str:
        return f"{self.one('A', 'J', 'K', 'M', 'S')}. {self.pick('last_en')}"

    def _make_ssn(self) -> str:
        return f"{self.between(100, 665)}-{self.between(10, 99)}-{self.between(1000, 9999)}"

    # What must survive.

    def _date_zh(self, year: int, month: int, day: int) -> str:
        return self.one(
            f"{year}年{month}月{day}日",
            f"{year}年{month}月{day}日",
            f"{year}-{month:02}-{day:02}",
            f"{year}.{month:02}.{day:02}",
            f"{year}/{month}/{day}",
        )

    def _date_en(self, year: int, month: int, day: int) -> str:
        name = MONTHS[month - 1]
        return self.one(
            f"{month:02}/{day:02}/{year}",
            f"{name} {day}, {year}",
            f"{day} {name[:3]} {year}",
            f"{year}-{month:02}-{day:02}",
            f"{month}/{day}/{year % 100:02}",
        )

    def _make_date_zh(self) -> str:
        return self._date_zh(*self.day(2010, 2024))

    def _make_date_en(self) -> str:
        return self._date_en(*self.day(2010, 2024))

    def _make_year_zh(self) -> str:
        return str(self.between(1817, 2024))

    def _make_year_en(self) -> str:
        return str(self.between(1817, 2024))

    def _make_labid(self) -> str:
        return f"1{self.between(3, 9)}{self.digits(9)}"

    def _make_barcode(self) -> str:
        return f"69{self.digits(11)}"

    def _make_lot(self) -> str:
        return self.one(f"20{self.between(18, 24)}0{self.between(1, 9)}{self.between(10, 28)}", f"L{self.digits(7)}")

    def _make_nct(self) -> str:
        return f"NCT{self.digits(8)}"

    def _make_approval(self) -> str:
        return f"{self.one('H', 'Z', 'S')}{self.between(1990, 2023)}{self.digits(4)}"

    def _make_price_zh(self) -> str:
        return self.one(f"{self.between(10, 99999)}元", f"{self.between(10, 999)}.50元", f"¥{self.between(10, 9999)}")

    def _make_price_en(self) -> str:
        return self.one(f"${self.between(10, 999)}", f"${self.between(1, 99)},{self.digits(3)}")

    def _make_bp(self) -> str:
        return f"{self.between(90, 190)}/{self.between(50, 110)} mmHg"

    def _make_temp(self) -> str:
        return f"{self.between(36, 40)}.{self.digits(1)}℃"

    def _make_size(self) -> str:
        return self.one(f"{self.between(1, 9)}cm", f"{self.between(1, 9)}.{self.digits(1)}×{self.between(1, 9)}.2cm")

    def _make_volume(self) -> str:
        return f"{self.between(50, 2000)}ml"

    def _make_weight(self) -> str:
        return f"{self.between(1500, 4500)}g"

    def _make_count(self) -> str:
        return str(self.between(20, 99999))

    def _make_bedcount(self) -> str:
        return self.one(f"床位{self.between(100, 3000)}张", f"{self.between(100, 3000)}张病床")

    def _make_days(self) -> str:
        return f"{self.between(1, 14)}天"

    def _make_days_en(self) -> str:
        return f"{self.between(2, 14)} days"

    def _make_duration_zh(self) -> str:
        return f"{self.between(1, 30)}{self.one('天', '年', '个月', '周')}"

    def _make_age_zh(self) -> str:
        return f"{self.between(1, 99)}岁"

    def _make_age_en(self) -> str:
        return f"{self.between(18, 99)}-year-old"
