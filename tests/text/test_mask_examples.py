"""Forms of names and numbers that other people's texts have, each by an example, and what must stay beside them."""

from __future__ import annotations

import pytest

from suwen.text.mask import mask, names_a_thing

NAMES = [
    ("患者阿依古丽·买买提，女，孕32周。", "患者[姓名1]，女，孕32周。"),
    ("瑞典专家托马斯·穆勒将于下周来访。", "瑞典专家[姓名1]将于下周来访。"),
    ("患者扎西次旺诉心悸。", "患者[姓名1]诉心悸。"),
    ("患者Jürgen Müller，德国籍。", "患者[姓名1]，德国籍。"),
    ("患者母亲张秀英陪同就诊。", "患者母亲[姓名1]陪同就诊。"),
    ("患儿李梓涵，5岁。", "患儿[姓名1]，5岁。"),
    ("死者赵国栋生前体健。", "死者[姓名1]生前体健。"),
    ("受试者钱多多完成访视。", "受试者[姓名1]完成访视。"),
    ("产妇孙丽华顺产一女婴。", "产妇[姓名1]顺产一女婴。"),
    ("张老师、王院长都说可以。", "[姓名1]老师、[姓名2]院长都说可以。"),
    ("李阿姨血压高，刘大爷摔倒了。", "[姓名1]阿姨血压高，[姓名2]大爷摔倒了。"),
    ("小王，明天来抽血。", "小[姓名1]，明天来抽血。"),
    ("老李的腿肿了。", "老[姓名1]的腿肿了。"),
    ("逄主任会诊，亓医生开药。", "[姓名1]主任会诊，[姓名2]医生开药。"),
    ("患者欧阳娜娜诉头晕，欧阳建国主任查房。", "患者[姓名1]诉头晕，[姓名2]主任查房。"),
    ("Dr. Jürgen Müller saw Mrs. Núñez.", "Dr. [NAME1] saw Mrs. [NAME2]."),
    ("CARTER, EMILY MD", "[NAME1] MD"),
    ("Nurse Thompson called; Mother Linda Brown agreed.", "Nurse [NAME1] called; Mother [NAME2] agreed."),
    ("患者王建国，男。次日复查，王建国未诉不适。", "患者[姓名1]，男。次日复查，[姓名1]未诉不适。"),
    ("Mr. John Carter came. Later Carter went home.", "Mr. [NAME1] came. Later [NAME2] went home."),
]
NUMBERS = [
    ("手机139.8765.4321", "手机[电话1]"),
    ("请打021 5432 1098", "请打[电话1]"),
    ("电话：13912345678/021-54321098", "电话：[电话1]/[电话2]"),
    ("电话：54321098/54321099", "电话：[电话1]/[电话2]"),
    ("手机一三九八七六五四三二一", "手机[电话1]"),
    ("检查号：20230045，病理号B2023-0456", "检查号：[病历号1]，病理号[病历号2]"),
    ("挂号单号88123，住院号（00412389）", "挂号单号[病历号1]，住院号（[病历号2]）"),
    ("护照号E12345678，车牌沪A12345", "护照号[护照1]，车牌[车牌1]"),
    ("医保号310115001234，保险单号PA2023000123", "医保号[病历号1]，保险单号[保险号1]"),
    ("微信：wx_strong88，QQ 123456789", "微信：[账号1]，QQ [账号2]"),
    ("主页https://weibo.com/u/123456，IP 192.168.10.25", "主页[网址1]，IP [IP地址1]"),
    ("家住南京市鼓楼区中山路8号，3单元502室。", "家住[地址1]。"),
    ("MR# 123456 Account # 98765432", "MR# [RECORD1] Account # [RECORD2]"),
    ("Text me at 2125550187 or (632)916-6848x12.", "Text me at [PHONE1] or [PHONE2]."),
    ("14426 Anderson Points Apt. 939, Jacksonhaven, AZ 50042", "[ADDRESS1]"),
]
KEPT = [
    "Sister Mary Joseph nodule is a sign of cancer.",
    "石大夫膏外用，每日一贴。",
    "帕金森病、雷诺综合征和何杰金病。",
    "玛丽·约瑟夫结节提示转移。",
    "年龄46岁，2021年3月，予0.5g，血压120/80mmHg，体重65kg。",
    "任何医生都不能保证；于医生指导下使用；班主任和值班医生。",
    "服用谷维素、金樱子和黄连素，喝白开水。",
    "批号20230415，国药准字H20051234，编号见1.2.3.4节。",
    "See https://www.nih.gov/health and version 2.10.3.4.",
    "Royal Air Force, Monte Carlo, Hepatitis B. Also Baby aspirin 81 mg.",
]


@pytest.mark.parametrize(("text", "wanted"), NAMES + NUMBERS)
def test_what_is_personal_goes(text: str, wanted: str) -> None:
    done = mask(text).text
    assert done == wanted
    assert mask(done).text == done


@pytest.mark.parametrize("text", KEPT)
def test_what_is_called_after_somebody_or_counts_something_stays(text: str) -> None:
    assert mask(text).text == text


def test_a_thing_is_told_from_a_person_by_what_follows() -> None:
    assert names_a_thing("帕金森", "患者有帕金森病。") and names_a_thing("Parkinson disease", "Parkinson disease")
    assert names_a_thing("Mary Joseph", "A Sister Mary Joseph nodule was seen.")
    assert not names_a_thing("帕金森", "帕金森医生发现了帕金森病。")
