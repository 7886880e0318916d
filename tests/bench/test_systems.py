from __future__ import annotations

import math
import shutil
import string
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.bench.dense_systems import encode_side, rank_densely, similarity_of
from suwen.bench.endpoint_system import EndpointSystem
from suwen.bench.exact_search import DimensionMismatch
from suwen.bench.ranking_systems import ANALYSERS, BM25, lucene, read_run
from suwen.bench.suite_tasks import load_suite
from suwen.bench.system_specs import parse_systems
from suwen.bench.systems import RankingContext, Setting, SystemProblem, is_dense
from suwen.bench.task_data import Ranked, Source
from suwen.bench.vector_cache import VectorCache
from suwen.encoders.space import load_manifest, save_manifest
from suwen.errors import SuwenError
from suwen.index.engine import Ranking
from suwen.retrieve.fuse import fuse_hybrid
from suwen.text.segment import bigrams, words

SUITE = load_suite("cmirb")
SETTING = Setting(SUITE.tasks[0], SUITE.templates)
CONTEXT = RankingContext(VectorCache(None), 10)
TEXTS = ["高血压患者应低盐饮食", "糖尿病的早期症状", "孕妇可以接种流感疫苗", "胃痛反酸可能是慢性胃炎", "高血压与糖尿病"]
QUERIES = ["高血压怎么吃", "流感疫苗", "胃"]


def ranked(documents=TEXTS, queries=QUERIES, candidates=None) -> Ranked:
    ids = [f"d{n}" for n in range(len(documents))]
    asked = [f"q{n}" for n in range(len(queries))]
    return Ranked(ids, list(documents), asked, list(queries), {q: {"d0": 1} for q in asked}, Source(Path()), candidates)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("bm25", "write one of pair:PATH"),
        ("tfidf:words", "is not a system"),
        ("bm25:porter", "no analyser 'porter'; choose one of words, bigrams, lucene"),
        ("st:", "names no model"),
        ("st:model?prompts=mine", "choose one of model, suite, none"),
        ("hybrid:bm25:words", "fuses BM25 with an encoder"),
        ("hybrid:", "fuses BM25 with an encoder"),
        ("openai:localhost#m", "write openai:http"),
        ("openai:http://localhost/v1", "write openai:http"),
        ("run:/no/such/file", "no file or folder"),
        ("pair:/no/such/pair", "no pair at"),
    ],
)
def test_a_spec_that_is_not_understood_says_what_would_be(spec: str, words: str):
    with pytest.raises(SuwenError, match=words):
        parse_systems([spec])


def test_names_and_labels(light_pair: Path, bert_folder: Path):
    found = parse_systems(
        [
            f"pair:{light_pair}#all",
            f"mine=st:{bert_folder}",
            f"hybrid:words:st:{bert_folder}",
            "bm25:lucene",
            f"x=pair:{light_pair}#all",
        ]
    )
    assert [system.name for system in found] == [
        "pair:tiny-light#l2",
        "pair:tiny-light#l2-fp32",
        "pair:tiny-light#static",
        "mine",
        "hybrid:words:st:model",
        "bm25:lucene",
        "x#l2",
        "x#l2-fp32",
        "x#static",
    ]
    with pytest.raises(SystemProblem, match="two systems are called 'bm25:words': give them labels"):
        parse_systems(["bm25:words", "bm25:words"])
    with pytest.raises(SystemProblem, match="no tier 'l99'; choose one of l2, l2-fp32, static, all, document"):
        parse_systems([f"pair:{light_pair}#l99"])[0]


def test_a_second_tier_costs_only_its_queries(light_pair: Path, tmp_path: Path):
    context = RankingContext(VectorCache(tmp_path), 10)
    first, second = parse_systems([f"pair:{light_pair}#l2", f"pair:{light_pair}#static"])
    assert first.contract(SETTING, "document") == second.contract(SETTING, "document")
    assert first.contract(SETTING, "query") != second.contract(SETTING, "query")
    rank_densely(first, ranked(), SETTING, context)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npy")}
    rank_densely(second, ranked(), SETTING, context)
    fresh = [file for file in tmp_path.rglob("*.npy") if file not in before]
    assert len(before) == 2 and len(fresh) == 1
    assert all(file.stat().st_mtime_ns == then for file, then in before.items())


def test_a_light_pair_ranks_as_its_tier_does(light_pair: Path):
    from suwen.encoders.pair import Pair

    system = parse_systems([f"pair:{light_pair}#l2-fp32"])[0]
    found = rank_densely(system, ranked(), SETTING, CONTEXT)
    pair = Pair.load(light_pair)
    scores = pair.encoder("l2-fp32").encode_queries(QUERIES) @ pair.encoder("l2").encode_documents(TEXTS).T
    assert found.rows.tolist() == np.argsort(-scores, axis=1).tolist()
    assert system.similarity == pair.space.similarity
    assert found.query_ms > 0


def test_a_full_pair_uses_its_own_two_routes(router_folder: Path):
    from sentence_transformers import SentenceTransformer

    system = parse_systems([f"pair:{router_folder}"])[0]
    model = SentenceTransformer(str(router_folder), device="cpu")
    assert system.name == "pair:tiny-full#query"
    queries, documents = (
        system.encode(texts, SETTING, side) for texts, side in ((QUERIES, "query"), (TEXTS, "document"))
    )
    assert np.allclose(queries, model.encode_query(QUERIES), atol=1e-5)
    assert np.allclose(documents, model.encode_document(TEXTS), atol=1e-4)
    both = parse_systems([f"pair:{router_folder}#document"])[0]
    assert np.allclose(both.encode(TEXTS, SETTING, "document"), documents, atol=1e-5)
    assert not np.allclose(both.encode(QUERIES, SETTING, "query"), queries, atol=0.1)
    assert both.contract(SETTING, "document") == system.contract(SETTING, "document")
    system.release()
    assert np.allclose(system.encode(QUERIES, SETTING, "query"), queries)


def test_prompts_come_from_the_model_the_suite_or_nobody(bert_folder: Path):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(bert_folder), device="cpu")
    suite = load_suite("cmedteb")
    setting = Setting(suite.tasks[0], suite.templates)
    own, theirs, none = parse_systems(
        [f"st:{bert_folder}", f"b=st:{bert_folder}?prompts=suite", f"c=st:{bert_folder}?prompts=none"]
    )
    put = f"<instruct>{suite.tasks[0].instruction.query}\n<query>胃痛"
    assert np.allclose(own.encode(["胃痛"], setting, "query"), model.encode(["查询: 胃痛"], prompt=""), atol=1e-6)
    assert np.allclose(theirs.encode(["胃痛"], setting, "query"), model.encode([put], prompt=""), atol=1e-6)
    assert np.allclose(none.encode(["胃痛"], setting, "query"), model.encode(["胃痛"], prompt=""), atol=1e-6)
    assert np.allclose(theirs.encode(["胃痛"], setting, "document"), none.encode(["胃痛"], setting, "document"))
    contracts = [str(system.contract(setting, "query")) for system in (own, theirs, none)]
    assert len(set(contracts)) == 3
    # The suite has no instruction for documents, but the model might have a prompt: three contracts there too.
    assert own.contract(setting, "document") != none.contract(setting, "document")


def test_an_instruction_may_hold_braces():
    task = SETTING.task.model_copy(
        update={"instruction": SETTING.task.instruction.model_copy(update={"query": "Q {x}"})}
    )
    setting = Setting(task, SETTING.templates.model_copy(update={"query": "[{instruction}] {text}!"}))
    assert setting.composed("query", ["a {text}"]) == ["[Q {x}] a {text}!"]


def test_two_models_of_one_space(bert_folder: Path, decoder_folder: Path):
    system = parse_systems([f"st:{bert_folder}+{decoder_folder}"])[0]
    assert system.encode(["a"], SETTING, "query").shape == system.encode(["a"], SETTING, "document").shape
    alone = parse_systems([f"st:{decoder_folder}"])[0]
    assert np.allclose(system.encode(TEXTS, SETTING, "document"), alone.encode(TEXTS, SETTING, "document"))
    assert system.contract(SETTING, "document") == alone.contract(SETTING, "document")


def test_two_models_of_different_width_are_refused(bert_folder: Path, tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    wide = SentenceTransformer(modules=list(SentenceTransformer(str(bert_folder), device="cpu"))[:2], device="cpu")
    wide.save(str(tmp_path / "wide"))
    system = parse_systems([f"st:{bert_folder}+{tmp_path / 'wide'}"])[0]
    with pytest.raises(DimensionMismatch, match=r"st:model\+wide: .*24 dimensions and the document side of 32"):
        rank_densely(system, ranked(), SETTING, RankingContext(VectorCache(tmp_path / "cache"), 10))


def test_dot_or_cosine_as_the_contract_says(bert_folder: Path, tmp_path: Path):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(bert_folder), device="cpu")
    model.similarity_fn_name = "dot"
    model.save(str(tmp_path / "dot"))
    dot, cosine = parse_systems([f"st:{tmp_path / 'dot'}", f"st:{bert_folder}"])
    assert (dot.similarity, cosine.similarity) == ("dot", "cosine")
    stated = Setting(SETTING.task.model_copy(update={"similarity": "cosine"}), SETTING.templates)
    assert (similarity_of(dot, SETTING), similarity_of(dot, stated)) == ("dot", "cosine")
    model.similarity_fn_name = "manhattan"
    model.save(str(tmp_path / "far"))
    with pytest.raises(SystemProblem, match="compares by manhattan"):
        parse_systems([f"st:{tmp_path / 'far'}"])[0].similarity


def naive_bm25(documents: list[list[str]], query: list[str], k1: float = 1.2, b: float = 0.75) -> list[float]:
    """Lucene's BM25 as its documentation states it, one document at a time."""
    mean = sum(map(len, documents)) / len(documents)
    found = []
    for tokens in documents:
        counts, total = Counter(tokens), 0.0
        for term in query:
            holding = sum(term in other for other in documents)
            if not counts[term]:
                continue
            idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            total += idf * counts[term] / (counts[term] + k1 * (1 - b + b * len(tokens) / mean))
        found.append(total)
    return found


@pytest.mark.parametrize("analyser", ANALYSERS)
def test_bm25_is_the_textbooks(analyser: str):
    cut = ANALYSERS[analyser]
    found = BM25(f"bm25:{analyser}", analyser).rank(ranked(), SETTING, CONTEXT)
    for number, query in enumerate(QUERIES):
        expected = naive_bm25([cut(text) for text in TEXTS], cut(query))
        hits = {row: score for row, score in zip(found.rows[number], found.scores[number], strict=True) if row >= 0}
        assert hits == pytest.approx({row: score for row, score in enumerate(expected) if score > 0}, rel=1e-5)
        assert list(hits.values()) == sorted(hits.values(), reverse=True)


@settings(max_examples=40, deadline=None)
@given(
    documents=st.lists(st.lists(st.sampled_from("abcd"), max_size=6), min_size=1, max_size=8),
    query=st.lists(st.sampled_from("abcde"), max_size=4),
)
def test_bm25_of_any_corpus(documents: list[list[str]], query: list[str]):
    data = ranked([" ".join(tokens) for tokens in documents], [" ".join(query)])
    found = BM25("bm25:lucene", "lucene").rank(data, SETTING, CONTEXT)
    expected = naive_bm25(documents, query) if any(documents) else [0.0] * len(documents)
    hits = {int(row): float(score) for row, score in zip(found.rows[0], found.scores[0], strict=True) if row >= 0}
    assert hits == pytest.approx({row: score for row, score in enumerate(expected) if score > 0}, rel=1e-4)


def test_bm25_keeps_the_best_and_breaks_ties_by_id():
    data = ranked(["a", "a", "b a", "a"], ["a"])
    assert BM25("bm25:lucene", "lucene").rank(data, SETTING, CONTEXT._replace(depth=2)).rows.tolist() == [[3, 1]]


def test_bm25_ranks_the_candidates_even_without_a_match():
    data = ranked(candidates=[[1, 0], [2], [0, 1, 3]])
    found = BM25("bm25:words", "words").rank(data, SETTING, CONTEXT)
    assert [[row for row in rows if row >= 0] for rows in found.rows.tolist()] == [[0, 1], [2], [3, 1, 0]]


def test_the_analysers_are_the_ones_they_say():
    assert ANALYSERS["words"] is words and ANALYSERS["bigrams"] is bigrams
    assert lucene("ＨｂＡ１ｃ升高 patient's COVID-19 药") == ["hba1c", "升高", "patient's", "covid", "19", "药"]
    assert lucene("") == []


def test_hybrid_is_the_fusion_of_its_legs(bert_folder: Path):
    hybrid, dense = parse_systems([f"hybrid:bigrams:st:{bert_folder}", f"st:{bert_folder}"])
    data = ranked()
    # Deeper than the context: the fusion is the retriever's whatever depth is asked for.
    deep = CONTEXT._replace(depth=200)
    words = BM25("bm25:bigrams", "bigrams")
    legs = [rank_densely(dense, data, SETTING, deep), words.rank(data, SETTING, deep)]
    found = hybrid.rank(data, SETTING, CONTEXT)
    for number in range(len(QUERIES)):
        there = [leg.rows[number] >= 0 for leg in legs]
        rankings = [
            Ranking(leg.rows[number][kept], leg.scores[number][kept].astype(np.float32))
            for leg, kept in zip(legs, there, strict=True)
        ]
        assert float(rankings[1].scores.max(initial=0.0)) <= words.most[number], "no passage has more than all of it"
        # The index adds two fields, and counts k1 + 1 times as much.
        like, most = 2 * (1.2 + 1), words.most[number]
        rankings[1] = rankings[1]._replace(scores=like * rankings[1].scores, most=like * most)
        vectors = dense.encode(data.documents, SETTING, "document").__getitem__
        fused = fuse_hybrid(dict(zip(("dense", "lexical"), rankings, strict=True)), 99, vectors=vectors)
        expected = dict(zip(fused.rows.tolist(), fused.scores.tolist(), strict=True))
        order = sorted(expected, key=lambda row: (expected[row], f"d{row}"), reverse=True)[: CONTEXT.depth]
        assert [row for row in found.rows[number].tolist() if row >= 0] == order
    assert not is_dense(hybrid) and is_dense(dense)


def test_hybrid_reads_the_vectors_it_looks_at_from_the_cache(bert_folder: Path, tmp_path: Path):
    (hybrid,) = parse_systems([f"hybrid:bigrams:st:{bert_folder}"])
    cached = CONTEXT._replace(cache=VectorCache(tmp_path, shard_size=2))
    plain = hybrid.rank(ranked(), SETTING, CONTEXT)
    for _ in range(2):
        found = hybrid.rank(ranked(), SETTING, cached)
        assert found.rows.tolist() == plain.rows.tolist()
    assert hybrid.contract(SETTING, "document")["moved"]


def test_an_endpoint_is_asked_again_when_it_fails_for_a_while(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    replies = iter([(500, {}, {}), (429, {"Retry-After": "3"}, {}), None])
    server.before = lambda body: next(replies)
    waited: list[float] = []
    system = EndpointSystem("openai:x", server.url, "m", wait=waited.append)
    found = system.encode(["胃痛", "", "b"], SETTING, "query")
    assert found.tolist() == [server.vector("胃痛"), server.vector(" "), server.vector("b")]
    assert waited == [0.5, 3.0]
    assert server.headers[-1]["Authorization"] == "Bearer sk-test"
    assert server.requests[-1]["model"] == "m"
    assert "sk-test" not in str(system.contract(SETTING, "query"))


def test_an_endpoint_gets_long_lists_in_pieces(server):
    texts = [string.ascii_letters[: n % 50] or "x" for n in range(150)]
    system = parse_systems([f"openai:{server.url}#m"])[0]
    assert system.encode(texts, SETTING, "document").shape == (150, 16)
    assert [len(request["input"]) for request in server.requests] == [64, 64, 22]
    assert system.name == "openai:m" and system.similarity == "cosine"


def test_an_endpoint_may_take_the_suites_instructions(server):
    suite = load_suite("cmedteb")
    system = parse_systems([f"openai:{server.url}#m?prompts=suite"])[0]
    system.encode(["胃痛"], Setting(suite.tasks[0], suite.templates), "query")
    assert server.texts() == [f"<instruct>{suite.tasks[0].instruction.query}\n<query>胃痛"]


@pytest.mark.parametrize(
    ("reply", "words", "asked"),
    [
        ((401, {}, {"error": "bad key"}), r"HTTP 401: .*bad key.*OPENAI_API_KEY", 1),
        ((503, {}, {}), "HTTP 503.*run it again to go on", 5),
        ((200, {}, {"data": []}), "0 vectors for 1 texts", 1),
        ((200, {}, {"object": "chat"}), "not a list of vectors", 1),
        ((200, {}, {"data": [{"index": 0, "embedding": "AAAA"}]}), "not a list of vectors", 1),
    ],
)
def test_an_endpoint_that_does_not_embed_says_why(reply, words: str, asked: int, server):
    server.before = lambda body: reply
    system = EndpointSystem("openai:x", server.url, "m", wait=lambda _: None)
    with pytest.raises(SystemProblem, match=words):
        system.encode(["a"], SETTING, "query")
    assert len(server.requests) == asked


def test_an_endpoint_that_is_not_there():
    system = EndpointSystem("openai:x", "http://127.0.0.1:9/v1", "m", wait=lambda _: None)
    with pytest.raises(SystemProblem, match=r"did not answer .*refused"):
        system.encode(["a"], SETTING, "query")


def test_queries_are_cached_by_their_own_contract(server, tmp_path: Path):
    system = parse_systems([f"openai:{server.url}#m"])[0]
    context = RankingContext(VectorCache(tmp_path), 10)
    first = encode_side(system, QUERIES, SETTING, context)
    assert np.array_equal(first, encode_side(system, QUERIES, SETTING, context))
    assert len(server.requests) == 1


def trec(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_run_made_elsewhere(tmp_path: Path):
    file = trec(
        tmp_path / "bm.run",
        "q0 Q0 d1 1 3.5 x",
        "q0 Q0 d0 2 3.5 x",
        "q0 Q0 d2 3 9e0 x",
        "",
        "q9 Q0 d0 1 1 x",
        "q2\tQ0\td4\t1\t-1\tx",
    )
    found = parse_systems([f"run:{file}"])[0].rank(ranked(), SETTING, CONTEXT)
    assert found.rows.tolist() == [[2, 1, 0], [-1, -1, -1], [4, -1, -1]]
    among = parse_systems([f"run:{file}"])[0].rank(ranked(candidates=[[0, 1], [2], [4]]), SETTING, CONTEXT)
    assert among.rows.tolist() == [[1, 0], [-1, -1], [4, -1]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("q0 Q0 d1 1 nan x", r"m\.run:2: query 'q0' scores document 'd1' as 'nan', which is no number"),
        ("q0 Q0 d1 1 high x", "as 'high', which is no number"),
        ("q0 d1 3.5", "3 columns; a run has `query Q0 document rank score tag`"),
        ("q0 Q0 d0 2 1.0 x", "ranks document 'd0' twice"),
        ("q0 Q0 zz 2 1.0 x", "'zz' is not in the corpus"),
    ],
)
def test_a_bad_run_names_the_line(line: str, words: str, tmp_path: Path):
    file = trec(tmp_path / "m.run", "q0 Q0 d0 1 2.5 x", line)
    with pytest.raises(SystemProblem, match=words):
        parse_systems([f"run:{file}"])[0].rank(ranked(), SETTING, CONTEXT)


def test_a_run_of_other_queries_is_refused(tmp_path: Path):
    file = trec(tmp_path / "m.run", "A7 Q0 d0 1 2.5 x")
    with pytest.raises(SystemProblem, match="it has 'A7', the task has 'q0'"):
        parse_systems([f"run:{file}"])[0].rank(ranked(), SETTING, CONTEXT)


def test_a_folder_of_runs_goes_by_task(tmp_path: Path):
    trec(tmp_path / f"{SETTING.task.name}.trec", "q0 Q0 d3 1 2.5 x")
    system = parse_systems([f"run:{tmp_path}"])[0]
    assert system.rank(ranked(), SETTING, CONTEXT).rows[0].tolist() == [3]
    other = Setting(SUITE.tasks[1], SUITE.templates)
    with pytest.raises(SystemProblem, match=f"no run of {SUITE.tasks[1].name}; call it {SUITE.tasks[1].name}.trec"):
        system.contract(other, "query")


def test_scores_of_a_run_keep_their_digits(tmp_path: Path):
    file = trec(tmp_path / "m.run", "q0 Q0 d0 1 0.12345678901 x", "q0 Q0 d1 1 0.12345678902 x")
    assert [row[3] for row in read_run(file)] == [0.12345678901, 0.12345678902]
    assert parse_systems([f"run:{file}"])[0].rank(ranked(), SETTING, CONTEXT).rows[0].tolist() == [1, 0]


def test_a_pair_says_when_a_tier_stands_in_for_its_document_encoder(
    adapter_pair: Path, base_folder: Path, static_pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUWEN_BASE", raising=False)
    alone = parse_systems([f"pair:{adapter_pair}"])[0]
    assert alone.name.endswith(" (documents by l2)")
    assert "documents by" not in parse_systems([f"pair:{adapter_pair}#document"])[0].name
    assert "documents by" not in parse_systems([f"pair:{static_pair}"])[0].name, "its tier is its document encoder"
    monkeypatch.setenv("SUWEN_BASE", str(base_folder))
    with_base = parse_systems([f"pair:{adapter_pair}"])[0]
    assert "documents by" not in with_base.name


def test_a_frozen_adapter_without_a_tier_is_its_document_encoder_on_both_sides(
    adapter_pair: Path, base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = Path(shutil.copytree(adapter_pair, tmp_path / "frozen"))
    bare = {"form": "full", "tiers": {}, "default_tier": None}
    save_manifest(frozen, load_manifest(frozen).model_copy(update=bare))
    monkeypatch.delenv("SUWEN_BASE", raising=False)
    for spec in (f"pair:{frozen}", f"pair:{frozen}#all"):
        (system,) = parse_systems([spec])
        assert system.name.endswith("#document")
    with pytest.raises(SuwenError, match="SUWEN_BASE"):
        system.encode(["胃痛"], SETTING, "query")
    monkeypatch.setenv("SUWEN_BASE", str(base_folder))
    assert parse_systems([f"pair:{frozen}"])[0].encode(["胃痛"], SETTING, "query").shape == (1, 24)
