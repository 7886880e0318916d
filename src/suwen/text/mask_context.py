"""What stands before and after Chinese names: roles, relations, titles, verbs. Lists of words, and where they end."""

from __future__ import annotations

import re
from functools import cache

from suwen.text.mask_view import HAN, compiled

#: Words right before a name, by what they are.
BEFORE: dict[str, str] = {
    "role": (
        "患者 病人 患儿 产妇 孕妇 伤者 死者 逝者 受试者 受检者 家属 婴儿 新生儿 参保人 献血者 接种者 申请人 "
        "报案人 预约人 代述人 委托人 "
        "受托人 代理人 当事人 证明 该患 学生 职工 居民 村民 司机 病号 供者 捐献者 就诊人 投保人 被保险人 受益人 "
        "收件人 陪护 护工 保姆 "
        "监护人 联系人 主诉人 陪同者 随访人 经办人 负责人 记录人 签字人 宝宝 男童 女童 男婴 女婴 志愿者 幸存者 "
        "感染者 密接者"
    ),
    "kin": (
        "母亲 父亲 妈妈 爸爸 老妈 老爸 我妈 我爸 他妈 她妈 他爸 她爸 奶奶 爷爷 外婆 外公 姥姥 姥爷 丈夫 妻子 "
        "老公 老婆 爱人 配偶 儿子 女儿 "
        "之子 之女 之妻 之夫 之母 之父 哥哥 弟弟 姐姐 妹妹 表哥 表弟 表姐 表妹 堂哥 堂弟 堂姐 堂妹 同学 同事 "
        "朋友 室友 邻居 闺蜜 男友 女友 "
        "男朋友 女朋友 孩子 小孩 家父 家母 叔叔 舅舅 姑姑 姨妈 阿姨 伯伯 婶婶 侄子 侄女 外甥 外甥女 孙子 孙女 "
        "外孙 婆婆 公公 岳父 岳母 媳妇 "
        "女婿 儿媳 嫂子 姐夫 妹夫 我哥 我姐 我弟 我妹 发小 搭档 队友 孩子他爸 孩子他妈 大伯 二叔 大姨 小姨 大舅 "
        "老乡 校友 战友 病友"
    ),
    "called": (
        "我叫 名叫 叫做 叫作 全名 本名 姓名 名字是 名字叫 我是 户名 开户人 开户名 署名 取名 曾用名 化名 真名 "
        "大名 人叫 爸叫 妈叫 友叫 子叫 "
        "儿叫 女叫 哥叫 姐叫 弟叫 妹叫 他叫 她叫 孩叫 生叫 士叫 夫叫 妻叫 亲叫 友叫 事叫 学叫 师叫"
    ),
    "title": (
        "主任医师 副主任医师 主治医师 住院医师 经治医师 管床医生 主管医生 医师 医生 大夫 主任 教授 院长 护士长 "
        "护士 护师 药师 技师 老师 "
        "同志 专家 学者 博士 院士 书记 主刀 术者 助手 麻醉师 麻醉医师 内科 外科 儿科 妇科 产科 骨科 眼科 皮肤科 "
        "放射科 检验科 病理科 麻醉科 "
        "急诊科 药剂科 心内科 神经科 口腔科 肿瘤科 超声科 护理部 医务科 班主任 校医 社工 营养师 心理师 治疗师 "
        "研究员 研究生 实习生"
    ),
    "toward": (
        "请 请问 找 邀 让 给 问 帮 替 陪 喊 约 送 接 劝 跟 随 叫 联系 通知 告知 感谢 尊敬的 亲爱的 抄送 烦 谢谢 "
        "麻烦 转告 拜托 邀请 祝 推荐 "
        "咨询 转交 授权 收到 收治 知道 讲 听 据 遵 嘱 看望 护理 照顾 抢救 安排 指派 委托 接诊 询问 提醒 兹有"
    ),
    "lead": (
        "由 经 与 和 及 向 是 为 在 对 把 被 来自 属于 同意 关于 等 以及 床 附件是 是我 归 的 看 见 查到 今 昨 "
        "科 室 部 站 组 家 院"
    ),
    "time": (
        "今日 今天 今晨 今早 昨日 昨天 昨晚 昨夜 前天 刚才 刚刚 上午 下午 早上 晚上 中午 上周 上月 本周 近日 "
        "当日 当晚 听说 据说 之前 后来 "
        "目前 现在 其中 另外 最近 去年 今年 随后 此时 期间 原来 好像 估计 可能 只有 记得 发现 看到"
    ),
}
#: Titles right after a name or a surname.
TITLE_AFTER = re.compile(
    "主任|副主任|主治医|住院医师|执业医师|主管医|经治医|管床医|医师|医生|大夫|教授|院长|护士|护师|老师|先生|"
    "女士|小姐|"
    "阿姨|大爷|大妈|大娘|大叔|大伯|叔叔|伯伯|奶奶|爷爷|婆婆|师傅|同志|博士|院士|律师|经理|科长|处长|校长|班长|"
    "药师|技师|治疗师|研究员|太太|夫人|您好|你好|之子|之女|之妻|之夫|之母|之父|姐|哥|嫂|收"
)
#: What makes a name likely whatever it is made of: before it, and after it.
STRONG = frozenset(("field", "role", "kin", "called", "title"))
SURE_AFTER = frozenset(("title", "sex", "kin", "human"))
_FORM_WORDS = (
    r"姓\s{0,4}名|曾用名|户\s?名|开户名|签\s?名|签字|签章|联系人(?:姓名)?|监护人|代理人|记录者|记录人|陈述者|"
    r"供史者|收件人|收货人|接种者|"
    r"申请人|报告人|检验者|审核者|操作者|审核人|送检医生|送检医师|主管医[生师]|责任护士|经治医[生师]|主刀|术者|"
    r"一助|二助|助手|麻醉|随访人|见证人|"
    r"知情同意人|委托人|受托人|转诊医生|预约人|投保人|受益人|被保险人|抄送|发件人|主诊"
)
#: The field of a form: what stands there is a name, whatever it looks like.
FORM = compiled(
    rf"(?:{_FORM_WORDS})(?:\([^()\n]{{1,8}}\)|及电话|/?签[名字])?(?:\s{{0,3}}[:=]\s{{0,6}}|\s{{1,6}}|\((?!签))"
)
#: A field of a form or a speaker in a dialogue, before its colon: here the name must look like one.
FIELD = compiled(
    r"(?:[者人师生士员助刀名方医]|主任|教授|护士长|家属|患儿|经治|麻醉|抄送|同事|女儿|儿子|配偶|父亲|母亲|致|主诊)"
    r"(?:\([^()\n]{1,8}\))?\s{0,2}$"
)
COLON = compiled(r":\s{0,6}")
SEX = compiled(
    rf"[,\s]{{1,6}}(?:性别\s?:?\s?)?(?:男|女)性?(?![{HAN}])|[,\s(]{{1,3}}(?:现年)?\d{{1,3}}\s?(?:岁|月龄|个月)|"
    rf"\((?:男|女)"
)
KIN_AFTER = compiled(
    r"\s?\((?:系|为|是|患者|病人)*之?(?:女儿|儿子|妻子|丈夫|父亲|母亲|妻|夫|子|女|父|母|配偶|家属|姐|妹|兄|弟|"
    r"哥|爱人|监护人|签字|收|代)"
    r"[,):;\s]"
)
#: After the name of a thing: an illness, a sign, an operation, a preparation that is called after somebody.
THING_AFTER = re.compile(
    "病(?![情史后危重程逝愈房人倒了得历案床区])|氏|综合[征症]|征(?!兆)|症|骨折|试验|细胞|反应|现象|手法|结节|"
    "量表|评分|"
    "指数|定律|定理|公式|曲线|医院|大学|[膏丸散汤饮丹霜酊](?![了药])|颗粒|片剂|胶囊|口服液|贴|蛇药|祛斑|麻痹|"
    "麻疹|痴呆|淋巴瘤|"
    "脑炎|甲状腺炎|肌病|肉瘤|体操|疗法|切口|手术|氏法|切迹|韧带|三角|腺|窦|囊|小体|杆菌|病毒|球菌|螺旋体|霉素"
)
#: What only a person does, right after a name.
HUMAN = compiled(
    r"(?:说|诉|称|述|主诉|告诉|告知|表示|要求|同意|认为|觉得|建议|指示|打电话|打来|发来|发了|写道|反映|签字|"
    r"签署|执行|巡视|予以|给予|交班|采血|接诊|操作|核对|否认|拒绝|查房|会诊|主刀|陪同|"
    r"代诉|代述|复诊|来诊|来电|来院|出院|入院|住院|就诊|发烧|摔|又吐|在场|到场|确诊|参加|参与|负责|值班|完成|"
    r"自述|自诉|今晨|今日|今天|昨天|昨晚|"
    r"昨日|前天|夜间|让我|让他|让她|跟我|给我|和我|问我|叫我|也得|也是|得了|去医院|去年|住在|家住|现年|生前|"
    r"系患者|是我|的家属|的病历|的报告|"
    r"的随访|的检查|及其|于今|于昨|于\d|因)"
)
#: What may come right after a name: it closes the name where no punctuation does.
FOLLOWED = compiled(
    r"(?:于|今|昨|系|自|执行|及|与|和|的|在|为|已|曾|来|转|突|反复|近|年|男|女|现|既往|签|行|住|病|家属|医|护|"
    r"陪|无|有|拒|向|术|经|并|由|当|再|复|"
    r"首|去|至|代|也|让|是|又|将|恢复|一直|未|对|从|被|把|给|跟|还|都|就|要|想|没|不|得|吃|做|到|讲|介绍|主持|"
    r"报告|电话|左|右|上|下|神志|身份|出生|"
    r"末次|联系|之|两|等|所|任|本|拟|请|该|您|你|了|过|着|呢|吗|吧)"
)


@cache
def _words_before() -> dict[str, str]:
    kinds: dict[str, str] = {}
    for kind, words in BEFORE.items():
        for word in words.split():
            kinds.setdefault(word, kind)
    return kinds


def before_words(text: str, end: int) -> str:
    """The class of the word of ``BEFORE`` that ends at a place, the longest that does; else nothing."""
    kinds = _words_before()
    for length in (5, 4, 3, 2, 1):
        if length <= end and (kind := kinds.get(text[end - length : end])):
            # 主诊医生是王丽, 患者为王丽: the link takes over from the word before it.
            linked = length == 1 and text[end - 1] in "是为叫" and before_words(text, end - 1) in STRONG
            return "called" if linked else kind
    return "agent" if end > 1 and text[end - 1] in "者人员师士" else ""
