"""Abbreviations of several senses, expanded or not by the rest of a query; written before the words that decide."""

from __future__ import annotations

import pytest

from suwen.text.synonyms import Synonyms, shipped

#: A query, the abbreviation, and what it must be taken for.
MEANT = """
AF anticoagulation | AF | 心房颤动
AF 抗凝 | AF | 心房颤动
AF heart rate control | AF | 心房颤动
patient with AF and stroke | AF | 心房颤动
AF ablation success | AF | 心房颤动
AF 吃华法林要查什么 | AF | 心房颤动
AF 心率快 | AF | 心房颤动
HF ejection fraction | HF | 心力衰竭
HF 患者 BNP 升高 | HF | 心力衰竭
HF 心脏扩大 | HF | 心力衰竭
MS relapse treatment | MS | 多发性硬化
MS 脱髓鞘 复发 | MS | 多发性硬化
MS optic neuritis | MS | 多发性硬化
OA knee injection | OA | 骨关节炎
OA 膝关节疼 | OA | 骨关节炎
PE d-dimer | PE | 肺栓塞
PE 溶栓 肺动脉 | PE | 肺栓塞
DM metformin dose | DM | 糖尿病
DM 血糖控制 | DM | 糖尿病
AD 皮肤瘙痒 | AD | 特应性皮炎
AD eczema cream | AD | 特应性皮炎
HD dialysis access | HD | 血液透析
HD 肾内科 透析充分性 | HD | 血液透析
RA methotrexate | RA | 类风湿关节炎
RA 晨僵 | RA | 类风湿关节炎
RA 关节肿痛 | RA | 类风湿关节炎
PDA 新生儿 布洛芬 | PDA | 动脉导管未闭
UC 便血 美沙拉秦 | UC | 溃疡性结肠炎
MI troponin rise | MI | 心肌梗死
MI 放支架后 | MI | 心肌梗死
CAP antibiotics | CAP | 社区获得性肺炎
ICI 肿瘤 心肌炎 | ICI | 免疫检查点抑制剂
PT INR 延长 | PT | 凝血酶原时间
Hp 阳性怎么根除 | Hp | 幽门螺杆菌
AF moderate pain | AF |
AF 恶心 | AF |
AF 点心 | AF |
AF as in fat absorption | AF |
amniotic fluid AF index fetal heart | AF |
AF 是什么意思 | AF |
HF before surgery | HF |
HF 恶心 | HF |
HF hay fever heart | HF |
MS 骨髓移植 | MS |
MS Excel | MS |
mitral stenosis MS neuro | MS |
mental status MS changes after stroke, neuro exam | MS |
MS 二尖瓣狭窄 神经 | MS |
OA ownership | OA |
OA optic atrophy hip | OA |
ICI update | ICI |
PDA 冠状动脉狭窄 | PDA |
PE: lungs clear | PE |
PE 体格检查 肺部无异常 | PE |
physical exam PE lung clear | PE |
DM皮肌炎 血糖正常 | DM |
dermatomyositis DM glucose normal | DM |
Alzheimer AD skin rash | AD |
AD 阿尔茨海默 皮肤瘙痒 | AD |
HD 亨廷顿 肾 | HD |
room air RA saturation joint pain | RA |
RA 氧饱和度 96% 关节 | RA |
RA 右心房 关节 | RA |
refractory anemia RA biologic | RA |
UC urinary catheter bowel | UC |
CAP chest abdomen pelvis CT lung | CAP |
PT physical therapy knee bleed | PT |
ICP 颅内压 怀孕 | ICP |
raised intracranial pressure ICP pregnancy | ICP |
RF radiofrequency joint | RF |
RF 射频 关节 | RF |
CVA stroke cough | CVA |
GAD吃什么药 | GAD | 广泛性焦虑障碍
GAD 抗体阳性 胰岛素 | GAD |
CIN 2级 HPV阳性 | CIN | 宫颈上皮内瘤变
CIN 造影剂 水化预防 | CIN |
contrast CIN prevention | CIN |
商场里的 AED 怎么用 | AED | 自动体外除颤器
AED 停药 癫痫 两年无发作 | AED |
AED levels in epilepsy | AED |
GBM 替莫唑胺 | GBM | 胶质母细胞瘤
抗GBM病 血浆置换 | GBM |
anti-GBM disease | GBM |
VSD 封堵 多大能做 | VSD | 室间隔缺损
VSD负压引流 多久换一次 | VSD |
PSA 偏高 前列腺 | PSA | 前列腺特异性抗原
PsA 生物制剂 | PsA | 银屑病关节炎
PsA treatment with secukinumab | PsA | 银屑病关节炎
CEA 升高 | CEA | 癌胚抗原
CEA versus stenting carotid | CEA |
CEA 颈动脉内膜剥脱术后 | CEA |
CTX 冲击治疗 狼疮肾炎 | CTX | 环磷酰胺
β-CTX 骨代谢 | CTX |
HMG 促排卵 | HMG | 尿促性素
HMG-CoA还原酶抑制剂 | HMG |
PCI 术后吃什么药 | PCI | 经皮冠状动脉介入治疗
PCI 预防性脑照射 | PCI |
CHD statin | CHD | 冠心病
cyanotic CHD | CHD |
SMA 基因治疗 | SMA | 脊髓性肌萎缩症
SMA综合征 肠系膜上动脉 | SMA |
AFP 高 肝 | AFP | 甲胎蛋白
AFP 急性弛缓性麻痹 | AFP |
AML 化疗 | AML | 急性髓系白血病
renal AML embolization | AML |
ACS 抗栓 | ACS | 急性冠脉综合征
ACS 腹腔间隔室综合征 | ACS |
SVT adenosine | SVT | 室上性心动过速
SVT 大隐静脉 浅静脉血栓 | SVT |
ALS 早期症状 | ALS | 肌萎缩侧索硬化
ALS 高级生命支持 | ALS |
OCD sertraline | OCD | 强迫症
OCD knee cartilage | OCD |
PROM at 34 weeks | PROM | 胎膜早破
PROM knee passive motion | PROM |
NAC 雾化 | NAC | 乙酰半胱氨酸
NAC breast neoadjuvant | NAC |
DCM 心脏移植 | DCM | 扩张型心肌病
DCM 颈椎 脊髓受压 | DCM |
双抗 支架后多久 | 双抗 | 双联抗血小板治疗
双抗 PD-1 CTLA-4 | 双抗 |
plan b for treatment if first drug fails | plan b |
portal hypertension | hypertension |
opioid respiratory depression | depression |
left ventricular stroke volume | stroke |
electric shock to the hand | shock |
hearing aids for the elderly | aids |
AIDS opportunistic infection | AIDS | 艾滋病
best diet for weight loss | weight loss |
unexplained weight loss | weight loss | 消瘦
rheumatic fever prophylaxis | fever |
"""
CASES = [tuple(part.strip() for part in line.split("|")) for line in MEANT.strip().splitlines()]


@pytest.mark.parametrize(("query", "typed", "meant"), CASES)
def test_an_abbreviation_is_expanded_just_where_the_query_decides_it(query: str, typed: str, meant: str) -> None:
    found = [mention.names for mention in shipped().mentions(query) if mention.text == typed]
    assert [meant in names for names in found] == ([True] if meant else [])


def test_a_word_with_a_star_begins_others_and_one_without_is_whole() -> None:
    own = Synonyms.parse("甲病, A[rat heart* 心*]\n")
    taken = ("A rat", "A hearts", "A 心脏")
    left = ("A moderate", "A sweetheart", "A 恶心", "A 中心", "A ratio")
    assert [len(own.mentions(query)) for query in taken] == [1] * len(taken)
    assert [len(own.mentions(query)) for query in left] == [0] * len(left)


def test_a_word_with_a_minus_forbids() -> None:
    own = Synonyms.parse("甲病, A[heart -hay_fever -恶性]\n乙病, B[-x]\n")
    assert [mention.names for mention in own.mentions("A heart, B")] == [("甲病",), ("乙病",)]
    assert own.mentions("A heart and hay fever") == own.mentions("A heart 恶性") == own.mentions("B x") == []


def test_a_name_that_only_has_words_against_it_still_stands_for_the_others() -> None:
    own = Synonyms.parse("癌胚抗原, CEA[-carotid], CE[blood]\n")
    assert [mention.names for mention in own.mentions("癌胚抗原")] == [("CEA",)]
