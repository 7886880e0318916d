"""Ways people ask about a disease, a symptom or a procedure, as templates; ``unlabelled`` puts names in.

They are hand-written, not drawn from any data set: what is trained on them is how a question is put, not an answer.
"""

from __future__ import annotations

ONE_ZH = (
    *("{x}怎么治疗", "{x}怎么治", "{x}怎么办", "{x}如何治疗最好", "{x}能治好吗", "{x}可以根治吗", "{x}要不要紧"),
    *("{x}是什么病", "什么是{x}", "{x}是什么原因引起的", "{x}的病因", "为什么会得{x}", "{x}是怎么回事"),
    *("{x}有什么症状", "{x}的早期症状", "{x}的临床表现有哪些", "{x}的并发症", "{x}严重吗", "{x}会死人吗"),
    *("{x}吃什么药好", "{x}吃什么药好得快", "{x}用什么药膏", "{x}可以吃消炎药吗", "{x}的中药偏方", "{x}食疗方法"),
    *("{x}不能吃什么", "{x}吃什么好", "{x}可以喝酒吗", "{x}能吃鸡蛋吗", "{x}饮食要注意什么", "{x}的护理措施"),
    *("{x}挂什么科", "{x}去医院看哪个科", "{x}要做哪些检查", "{x}怎么诊断", "怎么判断是不是{x}", "{x}的鉴别诊断"),
    *("{x}会传染吗", "{x}遗传吗", "{x}会复发吗", "{x}多久能好", "{x}能活多久", "{x}治疗费用多少钱", "{x}如何预防"),
    *("得了{x}能不能怀孕", "孕妇{x}怎么办", "小孩{x}怎么办", "老人{x}吃什么药", "宝宝{x}需要去医院吗"),
    *("{x}一定要手术吗", "{x}手术后注意事项", "{x}术后恢复要多久", "{x}能不能运动", "{x}上班会不会影响", "{x}图片"),
    *("请问医生{x}该怎么处理", "我被诊断为{x}，应该怎么办", "我妈妈得了{x}，请问怎么治疗比较好"),
    *("最近总是{x}，是什么问题", "{x}好几天了还没有好", "{x}最新治疗方法", "{x}哪家医院治得好", "{x}的自我调理"),
)
TWO_ZH = (
    *("{x}和{y}有什么区别", "有{x}还{y}怎么回事", "{x}会引起{y}吗", "{x}伴有{y}怎么治疗", "{x}合并{y}吃什么药"),
    *("{x}、{y}是什么病的症状", "{x}是不是{y}引起的", "得了{x}又有{y}，应该挂什么科", "{x}患者出现{y}要紧吗"),
    *("{x}导致{y}怎么办", "{x}跟{y}有关系吗", "既往有{x}，现在{y}，需要做什么检查"),
)
ONE_EN = (
    *("what causes {x}", "what is {x}", "what are the symptoms of {x}", "how is {x} treated", "treatment for {x}"),
    *("how to treat {x} at home", "is {x} curable", "is {x} contagious", "is {x} hereditary", "is {x} dangerous"),
    *("how is {x} diagnosed", "tests for {x}", "who is at risk of {x}", "risk factors for {x}", "how to prevent {x}"),
    *("complications of {x}", "prognosis of {x}", "life expectancy with {x}", "early signs of {x}", "{x} in children"),
    *("{x} in pregnancy", "{x} in older adults", "best medicine for {x}", "diet for {x}", "foods to avoid with {x}"),
    *("can i exercise with {x}", "can {x} go away on its own", "how long does {x} last", "how common is {x}"),
    *("which doctor should i see for {x}", "side effects of drugs for {x}", "does {x} need surgery", "{x} vs normal"),
    *("i was diagnosed with {x}, what should i do", "my mother has {x}, is there a cure", "living with {x}"),
    *("latest research on {x}", "genetic changes related to {x}", "natural remedies for {x}", "pathophysiology of {x}"),
    *("nursing care for {x}", "how many people are affected by {x}"),
)
TWO_EN = (
    *("difference between {x} and {y}", "can {x} cause {y}", "{x} with {y}", "link between {x} and {y}"),
    *("i have {x} and {y}, what could it be", "treatment of {x} in patients with {y}", "does {x} increase risk of {y}"),
    *("is {y} a symptom of {x}",),
)
#: Questions that ask the same of one thing: any two of a line are a question and the title of a page that answers it.
SAME_ZH = (
    ("{x}怎么治疗", "{x}怎么治", "{x}如何治疗最好", "{x}怎么办", "{x}用什么方法治疗", "得了{x}应该怎么治"),
    ("{x}是什么原因引起的", "{x}的病因", "为什么会得{x}", "{x}是怎么回事", "{x}是怎么引起的"),
    ("{x}有什么症状", "{x}的早期症状", "{x}的临床表现有哪些", "{x}症状有哪些表现"),
    ("{x}吃什么药好", "{x}吃什么药好得快", "{x}用什么药", "治{x}的药有哪些"),
    ("{x}不能吃什么", "{x}饮食要注意什么", "{x}的饮食禁忌", "{x}忌口哪些食物"),
    ("{x}吃什么好", "{x}食疗方法", "{x}患者适合吃什么"),
    ("{x}挂什么科", "{x}去医院看哪个科", "{x}应该看什么科室"),
    ("{x}会传染吗", "{x}传染不传染", "{x}有没有传染性"),
    ("{x}遗传吗", "{x}会遗传给孩子吗", "{x}有遗传性吗"),
    ("{x}多久能好", "{x}要多长时间恢复", "{x}几天可以好"),
    ("{x}要做哪些检查", "{x}怎么诊断", "{x}怎么检查出来"),
    ("{x}能治好吗", "{x}可以根治吗", "{x}能彻底治愈吗"),
    ("{x}严重吗", "{x}要不要紧", "{x}有什么危害"),
    ("{x}一定要手术吗", "{x}不做手术可以吗", "{x}需要开刀吗"),
    ("{x}如何预防", "怎么预防{x}", "预防{x}的方法"),
)
#: How the title of a web page carries its question: site names before and after it.
TITLES_ZH = (
    *(
        "{x}_百度知道",
        "{x}？_百度知道",
        "{x}_寻医问药网",
        "{x}_39健康问答",
        "{x}_快速问医生",
        "{x}_有问必答_快速问医生",
    ),
    *(
        "{x}-好大夫在线",
        "{x}_家庭医生在线",
        "{x}_健康频道",
        "【{x}】_健康网",
        "{x} - 知乎",
        "{x}_飞华健康问答",
        "{x}|健康咨询",
    ),
    *(
        "{x}...",
        ":{x}",
        ":{x}_免费咨询",
        "{x}_养生网",
        "{x}-医生在线解答",
        "{x}_民福康",
        "{x}_搜狗问问",
        "{x}",
        "{x}？",
    ),
)
