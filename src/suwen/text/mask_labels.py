"""The words that announce personal data, in a sentence and as the name of a field. No rule lives here."""

from __future__ import annotations

import re
from functools import cache

#: Words before a number, by the kind of the number; ``WEAK`` ones count only with 号, no., # or the like behind them.
STEMS: dict[str, str] = {
    "id_card": "居民身份证|身份证件|身份证|公民身份|社会保障|证件|id card|identity card|identification|national id",
    "passport": "护照|通行证|passport",
    "bank_card": "银行卡|信用卡|储蓄卡|借记卡|卡|账户|账|帐户|帐|credit card|debit card|card|bank account|iban",
    "phone": (
        "联系电话|家庭电话|电话|手机|联系方式|联系号码|传真|座机|固话|热线|致电|拨打|telephone|tel|phone|fax|"
        "cell|mobile"
        "|call|text me at|reached at|contact number"
    ),
    "ssn": "social security|ssn|ss",
    "birth": (
        "出生年月日|出生年月|出生日期|出生时间|出生日|出生于|出生|诞生于|诞生|生日|生于|date of birth|birth "
        "date|birthdate"
        "|birthday|birth|born|d.o.b|dob"
    ),
    "bed": "病床|床位|床",
    "record": (
        "住院|病历|病案|门诊|急诊|就诊卡|就诊|诊疗卡|诊疗|医保卡|医保|社保卡|登记|影像|挂号单|挂号|预约|患者|"
        "病人|档案|体检"
        "|检查|病理|超声|放射|申请单|报告单|报告|流水|处方|受试者|入组|随机|会员|工|学|证明书|诊断书|medical "
        "record|mrn"
        "|mr|patient id|patient|admission|chart|encounter|hospital|record|visit|account|acct|subject|case|claim|file"
        "|study|participant|employee|student"
    ),
    "insurance": (
        "保险单|保险|保单|insurance policy|insurance|policy|member id|member|subscriber id|subscriber|medicare|"
        "medicaid"
        "|group id|beneficiary"
    ),
    "account": "微信|wechat|weixin|vx|qq|支付宝|抖音|whatsapp|telegram|line id",
    "plate": "车牌|号牌|license plate|licence plate|plate|number plate",
    "ip": "ip地址|ip address|ip",
    "address": "邮政编码|邮编|zip code|postal code|postcode|zip",
}
#: Words that are too common to announce a number alone.
WEAK = frozenset(
    [
        "证件",
        "社会保障",
        "identification",
        "卡",
        "账",
        "帐",
        "账户",
        "帐户",
        "card",
        "床",
        "床位",
        "住院",
        "病历",
        "病案",
        "门诊",
        "急诊",
        "就诊",
        "诊疗",
        "医保",
        "登记",
        "影像",
        "挂号",
        "挂号单",
        "预约",
        "患者",
        "病人",
        "档案",
        "体检",
        "检查",
        "病理",
        "超声",
        "放射",
        "申请单",
        "报告单",
        "报告",
        "流水",
        "处方",
        "受试者",
        "入组",
        "随机",
        "会员",
        "工",
        "学",
        "证明书",
        "诊断书",
        "medical record",
        "mr",
        "patient",
        "admission",
        "chart",
        "encounter",
        "hospital",
        "record",
        "visit",
        "account",
        "acct",
        "subject",
        "case",
        "claim",
        "file",
        "study",
        "participant",
        "employee",
        "student",
        "保险单",
        "保险",
        "保单",
        "insurance policy",
        "insurance",
        "policy",
        "member",
        "subscriber",
        "medicare",
        "medicaid",
        "beneficiary",
        "ss",
        "ip",
        "birth",
        "zip",
        "plate",
    ]
)
#: Before 号 and a number: a thing and not a person.
THINGS = re.compile(
    r"(?:批|批件|标本|样本|样品|试剂|条码|条形码|货|产品|注册证?|准字|文|批准文|文献|基因|专利|型|版本|版|期|刊|"
    r"序|编|图|表|"
    r"公众|规格|伦理|通知|文件|信|称|符|代|逗|冒|引|括|问|叹|等|加|减|热线|服务|订阅)编?$"
)

_NAME_ZH = (
    r"姓名|名字|^(?:患者|病人|患儿|产妇|受试者|联系人|家属|监护人|医生|医师|护士|术者|主刀|麻醉师|记录人|审核人|"
    r"检验者|操作者)$|"
    r"(?:医生|医师|大夫|护士|护师|药师|技师|主任|教授|联系人|监护人|代理人|申请人|收件人|经办人|负责人|签名|"
    r"签字|操作者|检验者|审核者|记录者|陈述者)$|"
    r"^(?:姓|名|曾用名|昵称|户名|开户名|父亲|母亲|配偶|丈夫|妻子)$"
)
_NAME_EN = (
    r"^(?:name|given|family|patient|surname|nickname|physician|doctor|clinician|provider|nurse|surgeon|"
    r"attending|resident|guardian|"
    r"contact|spouse|mother|father|author|signature|signed by|witness|maiden name|next of kin|emergency contact)$|"
    r"(?:^| )(?:first|last|middle|given|family|full|patient|pt|doctor|physician|provider|contact|guardian|mother|"
    r"father|nurse|maiden|preferred|legal|user|customer|client|person|person's|patient's|subject|participant|"
    r"relative|"
    r"spouse|surgeon|staff|member|insured|subscriber|employee|author|sender|recipient) ?names?$|"
    r"(?:^| )(?:firstname|lastname|fullname|surname|forename|physician|surgeon|clinician|dictated by|signed by|"
    r"reviewed by|verified by)$"
)
#: Names of fields, by the kind of what stands in them; the first that fits.
_FIELDS: tuple[tuple[str, str], ...] = (
    ("id_card", r"身份证|公民身份|证件号|社会保障号|(?:^| )(?:id ?card|national id|identity number)"),
    ("passport", r"护照|通行证|passport"),
    ("bank_card", r"银行卡|银行账|信用卡|储蓄卡|银行帐|开户账|credit card|card number|bank account|iban"),
    ("email", r"邮箱|电子邮件|(?:^| )e ?mail"),
    ("phone", r"电话|手机|联系方式|传真|座机|(?:^| )(?:tel|telephone|phone|mobile|cell|cellphone|fax)(?: |$)"),
    ("ssn", r"(?:^| )(?:ssn|social security)"),
    ("birth", r"出生(?!体重|地|史|缺陷|情况|身长)|生日|(?:^| )(?:dob|birth ?date|birthday|date of birth)"),
    ("bed", r"床号|床位号|(?:^| )bed(?: ?(?:no|number))?$"),
    ("address", r"住址|地址|户籍|现住|邮编|(?:^| )(?:address|street|zip|zipcode|zip code|postcode|postal code)(?: |$)"),
    ("insurance", r"保险单?号|保单|(?:^| )(?:insurance|policy|member|subscriber) ?(?:id|no|number)"),
    ("account", r"微信|支付宝|(?:^| )(?:qq|wechat|weixin|whatsapp)"),
    ("plate", r"车牌|(?:^| )(?:license plate|licence plate|plate)"),
    ("url", r"网址|主页|(?:^| )(?:url|homepage|website)(?: |$)"),
    ("ip", r"(?:^| )ip(?: ?地址| address)?$"),
    ("name", f"{_NAME_ZH}|{_NAME_EN}"),
    (
        "record",
        r"(?:住院|病历|病案|门诊|急诊|就诊|诊疗|医保|社保|登记|影像|挂号|预约|患者|病人|档案|体检|检查|病理|"
        r"超声|申请单|报告|处方|流水|受试者|工|学)"
        r"(?:卡|单)?(?:编?号码?|id)|"
        r"(?:^| )(?:mrn|(?:medical record|record|patient|account|acct|chart|admission|encounter|visit|hospital|case|"
        r"subject|claim) ?(?:id|no|num|number))$",
    ),
)
# 药品名称, disease name, file_name: a name, and nobody's. 地址 of a web page or a memory is no home.
_NOBODYS = re.compile(
    r"药|病名|疾病|诊断|医院|科室|项目|名称|产品|文件|公司|单位名|学校|检验项|手术名|drug|disease|diagnosis|"
    r"file|hospital|"
    r"department|test name|product|company|brand|generic|column|field name|task|model|dataset|tag name|class|gene"
)
_NUMBER_ZH = re.compile(r"[\u4e00-\u9fff]号码?$")
_SURE_NAME = re.compile(
    r"姓名|曾用名|户名|签名|(?:^| )(?:first|last|middle|given|family|full|patient|pt|doctor|physician|provider|"
    r"guardian|mother|"
    r"father|nurse|maiden|legal|patient's|spouse|surgeon|insured) ?name$|^(?:surname|forename|firstname|"
    r"lastname|fullname)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@cache
def kind_of_field(name: str) -> str | None:
    """Which kind of personal data a field of this name holds, or None.

    >>> kind_of_field("姓名"), kind_of_field("PatientName"), kind_of_field("home_phone"), kind_of_field("药品名称")
    ('name', 'name', 'phone', None)
    """
    words = re.sub(r"[\s_./:-]+", " ", _CAMEL.sub(" ", name)).strip().lower()
    if not words or len(words) > 40:
        return None
    kind = next((kind for kind, pattern in _FIELDS if re.search(pattern, words)), None)
    if kind is None and _NUMBER_ZH.search(words) and not THINGS.search(words.rstrip("号码")):
        kind = "record"
    return None if kind == "name" and _NOBODYS.search(words) else kind


@cache
def is_plain(name: str) -> bool:
    """Whether a field's name says for sure that names of people stand in it: 姓名 does, name and 患者 do not."""
    return _SURE_NAME.search(re.sub(r"[\s_./:-]+", " ", _CAMEL.sub(" ", name)).strip().lower()) is not None


@cache
def kind_of_stem() -> dict[str, str]:
    """Every word of ``STEMS`` with its kind; a word of two kinds belongs to the first."""
    found: dict[str, str] = {}
    for kind, stems in STEMS.items():
        for stem in stems.split("|"):
            found.setdefault(stem, kind)
    return found


@cache
def stem_pattern() -> re.Pattern[str]:
    """Any of the words, the longest first; literal first letters are what lets the search skip the rest."""
    return re.compile("|".join(map(re.escape, sorted(kind_of_stem(), key=len, reverse=True))), re.ASCII)
