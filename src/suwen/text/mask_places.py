"""Rules for addresses: Chinese ones on the folded text, American and European ones in their own case."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from suwen.text.mask_view import HAN, Found, View, compiled

_PLACES = Path(__file__).with_name("places_zh.txt")
# Words that begin with different letters, so that the search can skip what is none of them.
_LABEL = re.compile(
    r"(?:住|地址|现住|现居|家住|居住|居于|户籍|户口|常住|暂住|租住|寄到|寄至|寄往|送到|送至|快递到|快递至|发到|"
    r"收货|地点)"
    r"(?:所在)?[址所地]{0,2}\s{0,3}(?:[:于在为是]|\(现\):?)?\s{0,6}"
)
_RUN = re.compile(rf"[{HAN}0-9a-z#-]{{1,70}}")
_REGION = re.compile(r"省|自治区|市|自治州|州|盟|县|旗|区|镇|乡|街道|村|屯|社区")
_UNIT = re.compile(
    r"(?:省|自治区|市|州|盟|县|旗|区|镇|乡|街道|村民小组|村|屯|庄|寨|社区|小区|大道|路|街|巷|道|胡同|里|苑|园|"
    r"花园|家园|城|新村|公寓|大厦|广场|宿舍)"
    r"|[0-9a-z]{1,5}-?[0-9]{0,5}(?:号楼|号院|号|栋|幢|座|单元|室|弄|组|楼|层|门|户)"
    r"|(?<=[栋幢座楼元院])[0-9]{1,5}(?:-[0-9]{1,5}){0,2}(?![0-9a-z]|岁|床|次|天|年|月)"
)
_DOOR = re.compile(r"[0-9]{1,5}(?:号楼|号院|号|栋|幢|座|单元|室|弄|组|楼)|[路街道巷里][a-z]座|[0-9a-z]座")
_STREET_ZH = re.compile(r"(?:路|街|大道|巷|胡同|弄|小区|花园|苑|新村|公寓|家园|村|屯)")
_VILLAGE = re.compile(r"[县区市][^县区市]{1,8}[镇乡][^镇乡]{1,8}(?:村|寨|屯|庄|组)")
# A door that is written apart from its street: 中山路8号，3单元502室.
_DOOR_APART = re.compile(
    r"[,\s]{1,2}(?:[0-9a-z]{1,5}(?:号楼|号院|号|栋|幢|座|单元|室|楼|层|门)){1,4}(?:[0-9]{2,5}(?![0-9岁]))?"
)
_POSTCODE = re.compile(r"[,\s(]{1,2}(?:邮编:?)?[0-9]{6}(?![0-9a-z])")
_WIDEST_GAP = 12

_CAPITAL = r"[A-ZÀ-Þ][A-Za-zß-ÿ'.-]{0,20}"
_STATE = (
    r"(?:A[AEKLPRSZ]|C[AOT]|D[CE]|F[LM]|G[AU]|HI|I[ADLN]|K[SY]|LA|M[ADEHINOPST]|N[CDEHJMVY]|O[HKR]|P[ARW]|RI|S[CD]"
    r"|T[NX]|UT|V[AIT]|W[AIVY])"
)
_SUFFIX = (
    r"(?:Street|St|Avenue|Ave|Boulevard|Blvd|Road|Rd|Drive|Dr|Lane|Ln|Court|Ct|Way|Place|Pl|Terrace|Highway|Hwy|"
    r"Parkway|"
    r"Pkwy|Circle|Square|Trail|Loop|Crescent|Close|Gardens|Row|Alley|Plaza|Grove)(?:\b\.(?=[,\s.])|\b)"
)
_FLAT = r"(?:,? (?:Apt|Apartment|Suite|Ste|Unit|Room|Rm|Flat|#)\.? ?[A-Z0-9-]{1,6}\b)?"
_CITY = rf"(?:{_CAPITAL} ?){{1,4}}"
_TOWN = rf"(?:,? {_CITY}, ?(?:{_STATE}\b(?: \d{{5}}(?:-\d{{4}})?\b)?|[A-Z]{{1,2}}\d[A-Z0-9]? \d[A-Z]{{2}}\b))"
_STREET = compiled(
    r"(?<![\w.,/$-])(\d{1,6}[A-Z]? (?:[NSEW]{1,2}\.? )?(?:(?:[A-Z][A-Za-z']{1,20}\.?|\d{1,3}(?:st|nd|rd|th)|de|"
    r"la|of) ){1,5}"
    rf"{_SUFFIX}{_FLAT}{_TOWN}?)"
)
_ANY_STREET = compiled(
    rf"(?<![\w.,/$-])(\d{{1,6}}[A-Z]? (?:[A-Z][A-Za-z']{{1,20}}\.? ?){{1,4}}{_FLAT},? {_CITY}, ?{_STATE},? "
    rf"\d{{5}}(?:-\d{{4}})?\b)"
)
_MILITARY = compiled(
    r"(?<!\w)((?:PSC|Unit|USNS|USS|USCGC|USNV|CMR) [A-Za-z0-9 ]{1,30},? ?(?:Box \d{1,6},? ?)?[AFD]PO,? A[AEP] "
    r"\d{5}(?:-\d{4})?\b)"
)
_BOX = compiled(rf"(?<!\w)(P\.?\s?O\.? Box \d{{1,6}}{_TOWN}?)")
_GERMAN = re.compile(
    r"(?<!\w)([A-ZÄÖÜ][a-zäöüß-]{2,20}(?:straße|strasse|str\.|weg|platz|allee|gasse|ring) \d{1,4}[a-z]?(?:,? "
    r"\d{5} [A-ZÄÖÜ][a-zäöüß-]{2,20})?)"
)


@cache
def _place() -> re.Pattern[str]:
    """Where an address without a label may begin."""
    lines = _PLACES.read_text(encoding="utf-8").splitlines()
    provinces, cities = ("|".join(line.split()) for line in lines if not line.startswith("#"))
    return re.compile(f"{provinces}|{cities.replace('|', '市|')}市")


def chinese(view: View) -> Iterator[Found]:
    """Addresses after a label, or from a known province or city down to a door or a village."""
    text = view.folded
    for label in _LABEL.finditer(text):
        if end := _end_of(text, label.end(), labelled=True):
            yield Found(label.end(), end, "address")
    for known in _place().finditer(text):
        if end := _end_of(text, known.start(), labelled=False):
            yield Found(known.start(), end, "address")


def american(view: View) -> Iterator[Found]:
    """American addresses: number and street, with flat, city, state and postal code where they follow; some others."""
    text = view.plain
    if not _ANY_DIGIT.search(text):
        return
    for pattern in (_STREET, _ANY_STREET, _MILITARY, _BOX, _GERMAN):
        yield from (Found(*match.span(1), "address") for match in pattern.finditer(text))


_ANY_DIGIT = compiled(r"\d [A-Z]|(?:PSC|Unit|CMR|US\w+) \w|[Bb]ox \d|[a-zß.] \d")


def _end_of(text: str, start: int, *, labelled: bool) -> int | None:
    run = _RUN.match(text, start)
    if run is None:
        return None
    end, units = 0, 0
    for unit in _UNIT.finditer(run[0]):
        if unit.start() - end > _WIDEST_GAP:
            break
        end, units = unit.end(), units + 1
    body = run[0][:end]
    exact = _DOOR.search(body) or _VILLAGE.search(body)
    if units < 2 or not (_REGION.search(body) or (labelled and _STREET_ZH.search(body))):
        return None
    # A label that is a verb (送到, 住) may stand before a hospital: there a region alone says nothing.
    if not exact and not (labelled and (units > 2 or _STREET_ZH.search(body))):
        return None
    return _further(text, start + end)


def _further(text: str, end: int) -> int:
    """Past a door that is written apart, and the postal code."""
    while door := _DOOR_APART.match(text, end):
        end = door.end()
    postcode = _POSTCODE.match(text, end)
    return postcode.end() if postcode else end
