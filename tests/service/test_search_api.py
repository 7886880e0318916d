"""``POST /search``: the library's own answer, and each wrong question with its code."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suwen.corpora.records import Document
from suwen.encoders.importing import import_model
from suwen.retrieve.retriever import Index
from suwen.service.answers import SearchAnswer, json_answer

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from server import Server


def ask(client, **body: object) -> dict:
    reply = client.post("/search", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def code_of(client, **body: object) -> tuple[int, str, str | None]:
    reply = client.post("/search", json=body)
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["param"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "dense", "k": 3},
        {"mode": "lexical", "highlights": True},
        {"explain": True, "per_document": True, "offset": 1},
        {"where": {"year": {"gte": 2020}}, "tier": "static"},
    ],
)
def test_it_is_the_librarys_answer(served, options: dict) -> None:
    client, holder = served()
    told = ask(client, query="布洛芬退烧吗", **options)
    with Index.open(holder.settings.index) as index:
        expected = json.loads(json.dumps(asdict(index.search("布洛芬退烧吗", **options))))
    assert told.pop("index") == "notes"
    assert len(told.pop("request_id")) == 16
    assert set(told.pop("timings")) == set(expected.pop("timings"))
    assert [hit.pop("state") for hit in told["hits"]] == ["encoded"] * len(told["hits"])
    assert told == expected


def test_the_answer_has_the_documented_shape(client) -> None:
    told = ask(client, query="kidney stones", highlights=True, explain=True)
    SearchAnswer.model_validate(told)
    assert told["hits"][0]["document_id"] == "kidney"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"query": ""}, (422, "empty_query", "query")),
        ({"query": " ？！ "}, (422, "empty_query", "query")),
        ({"query": "药" * 8193}, (422, "text_too_long", "query")),
        ({"query": "药", "tier": "l6"}, (422, "unknown_tier", "tier")),
        ({"query": "药", "index": "other"}, (404, "unknown_index", "index")),
        ({"query": "药", "where": {"ward": 3}}, (422, "unknown_field", "where")),
        ({"query": "药", "where": {"year": {"above": 3}}}, (422, "bad_filter", "where")),
        ({"query": "药", "where": "year"}, (422, "bad_filter", "where")),
        ({"query": "药", "where": {"department": {"gte": 3}}}, (422, "bad_filter", "where")),
        ({"query": "药", "where": {"$or": [{"$and": [1]}]}}, (422, "invalid_request", "where")),
        ({"query": "药", "sort": "ward"}, (422, "unknown_field", "sort")),
        ({"query": "药", "facets": ["ward"]}, (422, "unknown_field", "facets")),
        ({"query": "药", "facets": ["year"] * 17}, (422, "invalid_request", "facets")),
        ({"query": "药", "k": 1001}, (422, "too_many", "k")),
        ({"query": "药", "k": 10, "offset": 9_999}, (422, "bad_search", "offset")),
    ],
)
def test_wrong_questions(client, body: dict, expected: tuple[int, str, str | None]) -> None:
    assert code_of(client, **body) == expected


def test_an_error_says_what_there_is_instead(client) -> None:
    said = client.post("/search", json={"query": "药", "tier": "l6"}).json()["error"]["message"]
    assert "choose one of static" in said
    said = client.post("/search", json={"query": "药", "where": {"ward": 3}}).json()["error"]["message"]
    assert "the fields are department, lang, year" in said


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("year=2021", {"year": "2021"}),
        ("NOT year>=2021", {"$not": {"year": {"gte": "2021"}}}),
        ("lang!=en AND department!=儿科", {"lang": {"ne": "en"}, "department": {"ne": "儿科"}}),
    ],
)
def test_a_filter_means_the_same_as_text_and_as_an_object(client, text: str, same: dict) -> None:
    every = ask(client, query="药", k=100)["hits"]
    found = [hit["id"] for hit in ask(client, query="药", k=100, where=text)["hits"]]
    assert found == [hit["id"] for hit in ask(client, query="药", k=100, where=same)["hits"]]
    assert 0 < len(found) < len(every)


def test_hits_are_sorted_and_counted_by_a_field(client) -> None:
    told = ask(client, query="药", k=100, mode="dense", sort="-year", facets=["year", "department"])
    years = [hit["metadata"].get("year", 0) for hit in told["hits"]]
    assert years == sorted(years, reverse=True) and len(set(years)) > 1
    documents = {hit["document_id"]: hit["metadata"] for hit in told["hits"]}
    for field, facet in told["facets"].items():
        for one in facet["values"]:
            assert one["count"] == sum(metadata.get(field) == one["value"] for metadata in documents.values())
    first = ask(client, query="药", k=2, mode="dense", sort="-year")["hits"]
    second = ask(client, query="药", k=2, offset=2, mode="dense", sort="-year")["hits"]
    assert [hit["id"] for hit in [*first, *second]] == [hit["id"] for hit in told["hits"][:4]]


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {"query": st.text(max_size=60)},
        optional={
            "k": st.integers(-1, 20) | st.none(),
            "mode": st.sampled_from(["hybrid", "dense", "lexical", "x"]),
            "where": st.dictionaries(
                st.sampled_from(["year", "department", "x", ""]),
                st.integers() | st.text(max_size=5) | st.lists(st.floats(allow_nan=False, allow_infinity=False)),
            )
            | st.text(max_size=20),
            "sort": st.sampled_from(["year", "-year", "x", ""]),
            "facets": st.lists(st.sampled_from(["year", "x"]), max_size=2),
            "offset": st.integers(-1, 20_000),
            "highlights": st.booleans(),
        },
    )
)
def test_no_question_is_a_fault(client, body: dict) -> None:
    reply = client.post("/search", json=body)
    assert reply.status_code in (200, 422), reply.text


def test_many_at_once_get_the_answers_of_one_at_a_time(client) -> None:
    queries = ["布洛芬", "肾结石", "kidney", "房颤抗凝", "咳嗽"]
    alone = {query: [hit["id"] for hit in ask(client, query=query)["hits"]] for query in queries}
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda query: (query, ask(client, query=query)), queries * 12))
    for query, told in together:
        assert [hit["id"] for hit in told["hits"]] == alone[query]


def test_numbers_that_orjson_does_not_write() -> None:
    assert json.loads(json_answer({"n": 2**70, "text": "好"}).body) == {"n": 2**70, "text": "好"}


def test_an_instruction_is_taken_where_the_pairs_prompt_has_a_place_for_one(served, instructed_pair, tmp_path) -> None:
    own = {"query": "布洛芬退烧吗", "mode": "dense", "instruction": "找意思相近的话"}
    client, _ = served()
    assert code_of(client, **own) == (422, "no_instruction", "instruction")
    embedded = {"input": "布洛芬退烧吗", "input_type": "query", "instruction": own["instruction"]}
    reranked = {"query": "布洛芬退烧吗", "documents": ["布洛芬可以退烧"], "instruction": own["instruction"]}
    for path, body in (("/v1/embeddings", embedded), ("/v1/rerank", reranked)):
        assert client.post(path, json=body).json()["error"]["code"] == "no_instruction"
    with Index.create(tmp_path / "instructed", pair=instructed_pair) as index:
        index.add([Document("fever", "布洛芬可以退烧止痛，胃溃疡病人慎用。")])
    client, holder = served(tmp_path / "instructed")
    assert client.get("/info").json()["pair"]["take_instruction"] == ["l2", "l2-fp32", "static"]
    scores = [hit["score"] for hit in ask(client, **own)["hits"]]
    assert scores != [hit["score"] for hit in ask(client, query=own["query"], mode="dense")["hits"]]
    vector = client.post("/v1/embeddings", json=embedded).json()["data"][0]["embedding"]
    expected = holder.index.pair.encoder().encode_queries([own["query"]], own["instruction"])[0]
    assert vector == pytest.approx(expected.tolist(), abs=1e-6)
    assert client.post("/v1/rerank", json=reranked).status_code == 200


def test_a_pair_of_released_weights_serves_several_at_once(served, models, tmp_path: Path) -> None:
    import_model(models.save_decoder(tmp_path / "BMRetriever-tiny"), tmp_path / "pair")
    with Index.create(tmp_path / "index", pair=tmp_path / "pair") as index:
        index.add([Document(f"d{number}", text) for number, text in enumerate(models.TEXTS)])
    client = served(tmp_path / "index").client
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda query: ask(client, query=query, k=3, mode="dense"), ["血压"] * 12))
    assert len({str(answer["hits"]) for answer in answers}) == 1
    assert len(answers[0]["hits"]) == 3 and answers[0]["tier"] == "model"


def test_hyde_searches_with_what_the_named_model_writes_and_is_refused_where_none_is(
    served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "尿酸结石多见于酸性尿，可以看尿液的酸碱度。"
    monkeypatch.delenv("SUWEN_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    client, _ = served()
    asked = {"query": "那个怎么办", "mode": "dense", "hyde": {"budget_ms": 60_000}}
    assert code_of(client, **asked) == (422, "no_hyde", "hyde")
    with Server(lambda _: says) as server:
        (tmp_path / "suwen.toml").write_text(
            f'[llm.endpoints.here]\nbase_url = "{server.url}"\n[llm.models.m]\nendpoint = "here"\nmodel = "scripted"\n'
            '[hyde]\nmodel = "m"\n',
            "utf-8",
        )
        found = ask(client, **asked)
        assert server.total == 1 and ask(client, query="那个怎么办", mode="dense")["notes"] == []
        assert server.total == 1, "it is off unless asked for"
    assert found["hits"][0]["document_id"] == "stone" and found["timings"]["write"] > 0
    assert found["notes"] == ["searched with 1 hypothetical document"]
    # The server is gone; what it wrote is kept, and what it did not write is not waited for.
    assert ask(client, **asked)["hits"] == found["hits"]
    assert "plain query" in ask(client, query="孩子咳嗽", hyde={"n": 2, "budget_ms": 100})["notes"][-1]
    # A file that the command line named counts, wherever the server was started.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert code_of(served(read_only=True)[0], **asked) == (422, "no_hyde", "hyde")
    assert ask(served(read_only=True, config=tmp_path / "suwen.toml")[0], **asked)["hits"] == found["hits"]
