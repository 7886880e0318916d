"""A language model of the small world of ``tiny_data``, trained in seconds: it writes, and is often wrong.

It answers the prompts of hypothetical documents in words of its own about the right condition; of the aspect it is
unsure. So there is something to choose among, and something to learn from what was chosen.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from suwen.hyde.writing import DOMAINS
from suwen.llm.prompts import load_prompt
from suwen.training.recipe.tiny_data import Fact, facts

#: How it would say each aspect's answer, in the order of the aspects: some of the answer's words, in another order.
_SAYS = (
    "遗传、年龄和不良的生活习惯都可能造成{}，原因往往不止一个。",
    "起病时{}的表现常常轻微，不适会逐渐明显，有新的症状就该就诊。",
    "医生会按轻重为{}选择方案，规范治疗以后病情多数可以控制。",
    "服用{}的药物要听医生指导，不要自行停药或加量，留意不良反应。",
    "得了{}要少吃辛辣油腻，多吃水果蔬菜，饮食清淡、进餐规律。",
    "先做化验和体格检查，必要时用超声或拍片来明确{}的诊断。",
    "坚持锻炼、作息规律、限酒戒烟，再加上定期体检，就能预防{}。",
    "产科和专科医生会一起处理妊娠期的{}，尽量用对胎儿安全的办法。",
    "门诊的分诊台可以咨询{}，护士会按主要不适指引到科室。",
    "家长要观察患{}的孩子的体温和精神，让孩子休息，按时复诊。",
)
#: How often it names the right aspect: from the query alone, and shown the right document.
_ALONE, _SHOWN = 0.35, 0.65
_WIDTH, _LAYERS, _BATCH = 64, 2, 16
_IGNORED = -100
_prompt = lru_cache(load_prompt)


def make_writer(folder: Path, *, steps: int, seed: int) -> None:
    """Build the model and its tokenizer, and train it.

    Args:
        folder: Where they go, as transformers reads them.
        steps: Of training; 0 leaves a model that knows nothing.
        seed: Of weights and examples.
    """
    import torch
    import transformers

    dice = random.Random(seed)
    world = facts()
    tokenizer = _tokenizer([text for pair in _examples(world, dice, 400) for text in pair])
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=2 * _WIDTH,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=0,
        pad_token_id=1,
        bos_token_id=None,
    )
    make: Any = transformers.Qwen2ForCausalLM
    model = make(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 30, 2 * (steps - step) / steps)
        ids, labels = _batch(tokenizer, list(_examples(world, dice, _BATCH)))
        optimiser.zero_grad()
        model(input_ids=ids, attention_mask=(ids != 1).long(), labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _examples(world: list[Fact], dice: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """Prompts with what the model should say, right or wrong."""
    aspects = len(_SAYS)
    for _ in range(count):
        place = dice.randrange(len(world))
        fact, condition, aspect = world[place], _condition(world, place), place % aspects
        question = dice.choice(fact.questions)
        task = dice.choice(("hyde-query", "hyde-question", "hyde-target"))
        if task == "hyde-query":
            yield _asked(task, text=fact.answer), question
            continue
        right = dice.random() < (_ALONE if task == "hyde-question" else _SHOWN)
        says = _SAYS[aspect if right else dice.randrange(aspects)].format(condition)
        more = {} if task == "hyde-question" else {"target": fact.answer}
        yield _asked(task, text=question, **more), says


def _condition(world: list[Fact], place: int) -> str:
    """What a fact is about: its first aspect is asked as «…是怎么引起的»."""
    return world[place - place % len(_SAYS)].questions[0].removesuffix("是怎么引起的")


def _asked(name: str, **values: str) -> str:
    messages = _prompt(name, "zh").render(domain=DOMAINS["zh"], **values)
    return "\n\n".join(one.content for one in messages) + "\n"


def byte_pairs(texts: Iterable[str], size: int) -> tuple[Any, list[str]]:
    """A tokenizer like the Qwens' before it is wrapped: byte pairs; and its end and padding token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special, alphabet = ["<|im_end|>", "<|endoftext|>"], sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer, special


def _tokenizer(texts: list[str]) -> Any:
    import transformers

    tokenizer, special = byte_pairs(texts, 1200)
    make: Any = transformers.PreTrainedTokenizerFast
    return make(tokenizer_object=tokenizer, eos_token=special[0], pad_token=special[1], model_max_length=512)


def _batch(tokenizer: Any, examples: list[tuple[str, str]]) -> tuple[Any, Any]:
    """Token ids, padded, and what is learnt of them: what is said, and where it ends."""
    import torch

    rows = [(tokenizer(prompt)["input_ids"], tokenizer(said)["input_ids"]) for prompt, said in examples]
    longest = max(len(prompt) + len(said) + 1 for prompt, said in rows)
    ids = torch.full((len(rows), longest), 1)
    labels = torch.full((len(rows), longest), _IGNORED)
    for place, (prompt, said) in enumerate(rows):
        whole = torch.tensor([*prompt, *said, 0])
        ids[place, : len(whole)] = whole
        labels[place, len(prompt) : len(whole)] = whole[len(prompt) :]
    return ids, labels
