"""Names of fields in both languages: what they say stands there, and which say nothing."""

from __future__ import annotations

import pytest

from suwen.text.mask_labels import STEMS, WEAK, is_plain, kind_of_field


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        *(
            (field, "name")
            for field in ("姓名", "患者姓名", "患者", "主管医生", "patient_name", "PatientName", "last name")
        ),
        *((field, "phone") for field in ("电话", "联系电话", "手机号", "home_phone", "Tel", "cell")),
        *((field, "record") for field in ("住院号", "检查号", "病历号", "取药号", "MRN", "record_number", "accountNo")),
        *((field, "address") for field in ("住址", "家庭地址", "HomeAddress", "zip_code")),
        *(
            ("身份证号", "id_card"),
            ("护照号", "passport"),
            ("银行账号", "bank_card"),
            ("DOB", "birth"),
            ("出生日期", "birth"),
        ),
        *(("微信号", "account"), ("车牌", "plate"), ("InsuranceId", "insurance"), ("床号", "bed"), ("e-mail", "email")),
        *(
            (field, None)
            for field in (
                "药品名称",
                "疾病名称",
                "批号",
                "型号",
                "年龄",
                "诊断",
                "dose",
                "year",
                "drug_name",
                "id",
                "text",
                "",
            )
        ),
        *((field, None) for field in ("出生体重", "filename", "gene_name", "序号", "hospital name")),
    ],
)
def test_the_name_of_a_field_says_what_stands_in_it(field: str, kind: str | None) -> None:
    assert kind_of_field(field) == kind


def test_some_names_are_sure_and_every_weak_word_is_known() -> None:
    assert is_plain("姓名") and is_plain("patientName") and not is_plain("name") and not is_plain("患者")
    assert {stem for stems in STEMS.values() for stem in stems.split("|")} >= WEAK
