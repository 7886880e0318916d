"""Rules for personal data made of digits: identity and bank cards, phones, e-mail, records, beds, births.

Both languages; every rule reads the folded text, so patterns are in lower case and simplified characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from suwen.text.mask_view import Place, View, compiled, places

# What follows a number that is a quantity, and what stands before one that names a thing and not a person.
_QUANTITY = r"(?!\s?(?:元|万|亿|例|个|人次|%|‰|/|×|[munpk]?g\b|[munpk]?g/|[mdu]?l\b|iu|u/|mmol|单位))"
_THING = compiled(
    r"(?:批号|标本|样本|样品|试剂|条码|条形码|货号|产品|注册证|准字|编码|批准文号|文献|基因|"
    r"\b(?:lot|batch|catalog(?:ue)?|cat|specimen|accession|sample|barcode|upc|nct|pmid|isbn|issn|doi|rs|model|serial|grant))"
    r"[a-z]?(?:编?号码?)?[\s:#.]*(?:为|是|no\.?|number|id)?[\s:#.]*$"
)
_FREE = r"(?<![\da-z._/%-])"
_LINK = r"(?:号码?|编号)?\s{0,3}(?:为|是|:|#|is\b|no\b\.?|number\b)?[\s:#]{0,4}"

_EMAIL = compiled(
    r"(?<![a-z0-9._%+-])([a-z0-9._%+-]{1,64}@(?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,24})(?![a-z0-9-]|\.[a-z0-9])"
)

_ID_LABELLED = compiled(
    rf"(?:身份证(?:件)?|公民身份|证件|\bid card){_LINK}(\d{{6}}[ -]?\d{{8}}[ -]?\d{{3}}[\dx]|\d{{15}})(?![\da-z])"
)
_ID_18 = compiled(r"(?<![\da-z._-])(\d{6}[ -]?\d{8}[ -]?\d{3}[\dx])(?![\da-z])")
_ID_15 = compiled(r"(?<![\da-z._-])(\d{15})(?![\da-z])")
_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_PROVINCES = frozenset(re.findall("..", "1112131415212223313233343536374142434445465051525354616263646571818283"))

_CARD_LABELLED = compiled(
    rf"(?:银行卡|信用卡|储蓄卡|(?<![诊疗保疗])卡号|账号|账户|\bcard|\baccount){_LINK}"
    r"(\d{4}(?:[ -]?\d{4}){2,3}(?:[ -]?\d{1,3})?)(?![\da-z])"
)
_CARD = compiled(r"(?<![\da-z._-])([3-6]\d{3}(?:[ -]?\d{4}){3}(?:[ -]?\d{1,3})?)(?![\da-z])")

_MOBILE = compiled(rf"{_FREE}((?:(?:\+|00)?86[ -]?)?1[3-9]\d([ -]?)\d{{4}}\2\d{{4}})(?![\da-z]|[.-]\d){_QUANTITY}")
_LANDLINE = compiled(
    r"(?<![\da-z._/%-])((?:(?:\+|00)86[ -]?)?"
    r"(?:\(0(?:10|2\d|[3-9]\d\d)\)\s?|0(?:10|2\d|[3-9]\d\d)(?:-(?=\d)|[ -]?(?=[2-8])))\d{7,8}"
    rf"(?:(?:-|转)\d{{1,5}})?)(?![\da-z]|\.\d){_QUANTITY}"
)
_AMERICAN = compiled(
    r"(?<![\da-z._/%-])((?:\+?1[-. ])?(?:\((?P<round>[2-9]\d\d)\)\s?|(?P<area>[2-9]\d\d)[-. ])[2-9]\d\d([-. ])\d{4})"
    r"(?![\da-z]|[.-]\d)"
)
_ABROAD = compiled(r"(?<![\w+])(\+\d{1,3}(?:[ -]\d{1,4}){2,5})(?![\da-z]|\.\d)")
_PHONE_LABELLED = compiled(
    rf"(?:电话|手机|联系方式|传真|座机|\btel(?:ephone)?\b\.?|\bphone\b|\bfax\b|\bcell\b|\bmobile\b){_LINK}"
    r"(\(?\+?\d[\d ()-]{5,18}\d)(?![\da-z])"
)
# Lines of services belong to nobody; they are part of good advice and must survive.
_SERVICE = compiled(
    r"[48]00[ -]?\d{3,4}[ -]?\d{3,4}$|9[56]\d{3,6}$|1[012]\d{1,3}$"
    # The country code stands apart, or every mobile phone that begins with 1800 or 1888 would be free of charge.
    r"|(?:\+?1[-. ])?\(?8(?:00|33|44|55|66|77|88)\)?[-. ]?\d{3}[-. ]?\d{4}$"
)

_SSN = compiled(r"(?<![\da-z.-])((?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4})(?![\da-z]|-\d)")
_SSN_LABELLED = compiled(
    r"\b(?:ssn|ss ?#|social security)(?: ?(?:number|no\.?|#))?(?: is)?[\s:#]{0,4}(\d{3}[ -]?\d\d[ -]?\d{4})(?!\d)"
)

_RECORD = compiled(
    r"(?:(?:住院|病历|病案|门诊|急诊|就诊|就诊卡|诊疗卡|医保|医保卡|社保卡|登记|影像|挂号|患者|病人|档案|体检)"
    r"(?:编?号码?|id号?)|(?<![a-z])id号"
    r"|\b(?:mrn|medical record|patient id|admission|chart|encounter|hospital|record|visit)"
    r"(?: ?(?:number|no\.?|#|id)|(?<=mrn)|(?<=patient id)))"
    r"\s{0,3}(?:为|是|is\b)?[\s:#]{0,4}(?=[a-z-]{0,6}\d)([a-z]{0,4}-?\d[\da-z]{0,19}(?:-[\da-z]{1,12}){0,3})(?![\da-z])"
)

_BED = compiled(
    r"(?:床位?号|病床号)\s{0,3}(?:为|是)?[\s:#]{0,4}([加+]?[a-z]?-?\d{1,4}(?:-\d{1,3})?)(?![\da-z.])"
    r"|(?<![\da-z._/%+每共约有设张-])([加+]?[a-z]?-?\d{1,3}(?:-\d{1,2})?)\s?床(?![位旁边上下单榻头前垫以])"
    r"|\bbed(?: ?(?:no\.?|number|#))?[\s:#]{1,3}((?:[a-z]-?)?\d{1,3}[a-z]?)(?![\da-z/%]|\.\d|\s?-\s?\d)"
    r"(?!\s?(?:to|or|and|-|–)?\s?\d{0,3}\s?-?"
    r"(?:inch|cm|feet|foot|hour|min|night|time|day|week|month|year|h\b|or more|degree|mg|people|patient))"
)

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DATE = (
    r"(?:(?:19|20)\d\d\s?年\s?\d{1,2}\s?月(?:\s?\d{1,2}\s?[日号])?|(?:19|20)\d\d[-./]\d{1,2}(?:[-./]\d{1,2})?"
    r"|(?:19|20)\d{6}|\d{1,2}[-./]\d{1,2}[-./](?:(?:19|20)\d\d|\d\d)"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? (?:19|20)\d\d|\d{{1,2}} {_MONTH},? (?:19|20)\d\d|{_MONTH},? (?:19|20)\d\d)"
    r"(?![\da-z])"
)
_BIRTH = compiled(
    r"(?:出生(?:年月日?|日期|时间|日)?|诞生|(?<![a-z\u4e00-\u9fff])生|(?<=者|人|儿|女|妇|性)生|生日"
    r"|\bd\.?o\.?b\b\.?|\bdate of birth\b|\bbirth ?da(?:te|y)\b|\bborn\b)"
    rf"\s{{0,3}}(?:于|为|是|:|on\b|in\b|is\b|was\b)?[\s:]{{0,4}}({_DATE})"
    rf"|(?<![\d./-])({_DATE})\s?(?:出生|生(?!存|活|效|产|长|病|化))"
)


def email(view: View) -> Iterator[Place]:
    """Mail addresses."""
    return places(_EMAIL, view.folded)


def id_card(view: View) -> Iterator[Place]:
    """Chinese identity numbers: any after their label, elsewhere only those whose parts and check digit are right."""
    yield from places(_ID_LABELLED, view.folded)
    yield from places(_ID_18, view.folded, lambda match: is_id_card(match[1]))
    yield from places(_ID_15, view.folded, lambda match: is_id_card(match[1]) and not _of_a_thing(match, view))


def bank_card(view: View) -> Iterator[Place]:
    """Bank and credit cards: any after their label, elsewhere those whose Luhn digit is right."""
    yield from places(_CARD_LABELLED, view.folded)
    yield from places(_CARD, view.folded, lambda match: passes_luhn(match[1]) and not _of_a_thing(match, view))


def phone(view: View) -> Iterator[Place]:
    """Phones of people: mobile, landline, American and foreign; the public lines of services are left."""

    def of_a_person(match: re.Match[str]) -> bool:
        long = 7 <= sum(map(str.isdigit, match[1])) <= 15
        return long and not _SERVICE.match(match[1]) and not _of_a_thing(match, view)

    for pattern in (_PHONE_LABELLED, _MOBILE, _LANDLINE, _AMERICAN, _ABROAD):
        yield from places(pattern, view.folded, of_a_person)


def ssn(view: View) -> Iterator[Place]:
    """American social security numbers."""
    yield from places(_SSN_LABELLED, view.folded)
    yield from places(_SSN, view.folded)


def record(view: View) -> Iterator[Place]:
    """Numbers of records, admissions and visits, after their label."""
    return places(_RECORD, view.folded, lambda match: sum(map(str.isdigit, match[1])) >= 3)


def bed(view: View) -> Iterator[Place]:
    """Beds, the number alone: after a label or before 床, and never a count of beds."""
    return _any_group(_BED, view)


def birth(view: View) -> Iterator[Place]:
    """Dates of birth, to the month or the day. A year alone points at nobody and stays."""
    return _any_group(_BIRTH, view)


def is_id_card(number: str) -> bool:
    """Whether 15 or 18 characters can be an identity number: province, date and, of 18, the check digit.

    >>> is_id_card("11010519491231002X"), is_id_card("110105194912310021")
    (True, False)
    """
    number = re.sub("[ -]", "", number).upper()
    date = number[6:14] if len(number) == 18 else "19" + number[6:12]
    month, day = int(date[4:6]), int(date[6:])
    if number[:2] not in _PROVINCES or not 1 <= month <= 12 or not 1 <= day <= 31 or not "1880" < date[:4] < "2100":
        return False
    if len(number) == 15:
        return True
    total = sum(int(digit) * weight for digit, weight in zip(number, _ID_WEIGHTS, strict=False))
    return "10X98765432"[total % 11] == number[17]


def passes_luhn(number: str) -> bool:
    """Whether the last digit of a card number is the one the others ask for.

    >>> passes_luhn("4111 1111 1111 1111"), passes_luhn("4111 1111 1111 1112")
    (True, False)
    """
    digits = [int(digit) for digit in reversed(number) if digit.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _of_a_thing(match: re.Match[str], view: View) -> bool:
    return _THING.search(view.before(match.start())) is not None


def _any_group(pattern: re.Pattern[str], view: View) -> Iterator[Place]:
    return (Place(*match.span(match.lastindex or 0)) for match in pattern.finditer(view.folded))
