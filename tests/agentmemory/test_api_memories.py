"""The JSON views of memories: keys, versions, scopes, pages, batches, history."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentmemory.authorship import Author
from agentmemory.models import Agent, Memory, MemorySource
from agentmemory.services import curation, distilled
from tests.factories import AgentFactory, MemoryFactory, MessageFactory, SessionFactory
from tests.support.clients import Api, of_agent

FIELDS = {
    "id", "key", "origin", "scope", "owner", "content", "tags", "importance", "pinned", "version", "access_count",
    "last_accessed_at", "created_at", "updated_at", "expires_at", "merged_from",
}  # fmt: skip

KEYS = [
    "plain",
    "a/b/c",
    "/leads/with/a/slash",
    "ends/with/a/slash/",
    "a//b",
    "what?&x=1#y",
    "100%",
    "%2F",
    "a%2Fb",
    "./../dots/..",
    "with space + plus",
    "grüße/日本語/🦊",
    "👩‍💻",
    '"quotes" \\ back',
    "a;b,c:d@e",
    "k" * 200,
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_the_whole_rest_of_the_path(api: Api, key: str) -> None:
    path = f"/memories/{quote(key, safe='')}"
    assert api.put(path, {"content": "It."}).status == 201
    assert api.get(path).body["key"] == key
    assert [row["key"] for row in api.get("/memories").body["items"]] == [key]
    assert api.delete(path).body["deleted"] is True
    assert api.get(path).status == 404


def test_a_slash_may_be_encoded_or_not(api: Api) -> None:
    api.write("a/b", "One key.")
    assert api.get("/memories/a/b").body["content"] == "One key."
    assert api.get("/memories/a%2Fb").body["content"] == "One key."
    assert api.get("/memories/a%252Fb").status == 404


@pytest.mark.parametrize("key", ["", "%20", "%09%20", "distilled%3Ax", "%20distilled:x", "a%0Ab", "a%00b", "k" * 201])
def test_a_key_that_cannot_be_is_refused(api: Api, key: str) -> None:
    answer = api.put(f"/memories/{key}", {"content": "It."})
    assert answer.status == 422
    assert answer.body["errors"][0]["field"] == "key"
    assert api.get(f"/memories/{key}").status == 404
    assert api.delete(f"/memories/{key}").body == {"deleted": False}


def test_a_key_is_trimmed(api: Api) -> None:
    api.write("  padded  ")
    assert api.get("/memories/padded").status == 200
    assert api.get("/memories/%20padded").body["key"] == "padded"


def test_a_memory_has_the_members_of_the_contract(api: Api) -> None:
    answer = api.put(
        "/memories/all",
        {
            "content": "  Trimmed. ",
            "context": "words",
            "tags": ["b", "a", "b", " "],
            "importance": 1,
            "pinned": True,
            "expires_at": "2999-01-01T01:00:00+01:00",
        },
    )
    assert answer.status == 201
    assert answer.headers["ETag"] == '"1"'
    assert answer.headers["Cache-Control"] == "no-store"
    assert set(answer.body) == FIELDS
    expected = {
        "key": "all", "origin": "curated", "scope": "mine", "owner": "ada", "content": "Trimmed.", "tags": ["b", "a"],
        "importance": 1.0, "pinned": True, "version": 1, "access_count": 0, "last_accessed_at": None,
        "expires_at": "2999-01-01T00:00:00Z", "merged_from": [],
    }  # fmt: skip
    assert {name: answer.body[name] for name in expected} == expected
    assert answer.body["created_at"].endswith("Z")
    read = api.get("/memories/all")
    assert set(read.body) == FIELDS | {"sources"}
    assert set(api.get("/memories").body["items"][0]) == FIELDS


def test_a_second_write_updates_and_keeps_what_is_left_out(api: Api) -> None:
    first = api.write("k", tags=["a"], pinned=True, importance=0.9, expires_at="2999-01-01T00:00:00Z")
    again = api.put("/memories/k", {"content": "Else.", "tags": None})
    assert again.status == 200
    assert again.headers["ETag"] == '"2"'
    assert again.body["id"] == first["id"]
    assert again.body["created_at"] == first["created_at"]
    kept = ("tags", "pinned", "importance", "expires_at")
    assert [again.body[name] for name in kept] == [["a"], True, 0.9, "2999-01-01T00:00:00Z"]
    cleared = api.put("/memories/k", {"content": "Else.", "tags": [], "pinned": False, "expires_at": None}).body
    assert (cleared["tags"], cleared["pinned"], cleared["expires_at"]) == ([], False, None)


def test_a_write_after_a_deletion_makes_a_new_row(api: Api) -> None:
    first = api.write("k")
    assert api.delete("/memories/k").body == {"deleted": True, "id": first["id"]}
    assert api.delete("/memories/k").body == {"deleted": False}
    again = api.put("/memories/k", {"content": "New."})
    assert again.status == 201
    assert again.body["version"] == 1
    assert again.body["id"] != first["id"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": " \n "},
        {"content": 42},
        {"content": None},
        {"content": ["a"]},
        {"content": "x" * 10_001},
        {"content": "nul \0"},
        {"content": "lone \ud800"},
        {"content": "x", "context": "c" * 4_001},
        {"content": "x", "context": "\ud800"},
        {"content": "x", "tags": "a"},
        {"content": "x", "tags": [1]},
        {"content": "x", "tags": ["t" * 51]},
        {"content": "x", "tags": [str(n) for n in range(51)]},
        {"content": "x", "tags": ["\0"]},
        {"content": "x", "scope": "all"},
        {"content": "x", "scope": "everyone"},
        {"content": "x", "importance": 1.1},
        {"content": "x", "importance": -0.1},
        {"content": "x", "importance": "0.5"},
        {"content": "x", "importance": True},
        {"content": "x", "importance": 10**400},
        {"content": "x", "pinned": 1},
        {"content": "x", "pinned": "yes"},
        {"content": "x", "expires_at": "2999-01-01T00:00:00"},
        {"content": "x", "expires_at": "tomorrow"},
        {"content": "x", "expires_at": 4102444800},
        {"content": "x", "expires_at": "9999-12-31T23:59:59-12:00"},
        {"content": "x", "expires_at": "0001-01-01T00:00:00+12:00"},
        {"content": "x", "expires_at": "2999-02-30T00:00:00Z"},
    ],
)
def test_what_breaks_a_rule_is_refused_and_not_written(api: Api, body: dict[str, Any]) -> None:
    answer = api.put("/memories/k", body)
    assert answer.status == 422, answer
    assert answer.kind == "blank"
    assert answer.body["errors"]
    assert api.get("/memories/k").status == 404


def test_the_longest_values_are_kept(api: Api) -> None:
    tags = [f"{n:050}" for n in range(50)]
    body = {"content": "🦊" * 10_000, "context": "c" * 4_000, "tags": tags}
    assert api.put(f"/memories/{quote('ü' * 200)}", body).status == 201


def test_members_that_are_not_known_are_ignored(api: Api) -> None:
    assert api.put("/memories/k?unknown=1", {"content": "x", "later": {"a": [1]}}).status == 201


def test_a_secret_is_refused_with_its_kinds_unless_it_is_to_be_kept(api: Api) -> None:
    secret = "-----BEGIN " + "PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END " + "PRIVATE KEY-----"
    refused = api.put("/memories/k", {"content": f"Use {secret}"})
    assert refused.status == 422
    assert refused.body["kinds"]
    assert refused.body["kinds"][0] in refused.body["detail"]
    assert "MIIEvQ" not in refused.text
    assert api.put("/memories/k?secrets=keep", {"content": f"Use {secret}"}).status == 201
    assert api.put("/memories/k?secrets=maybe", {"content": "x"}).status == 422


# --- versions ---


def test_if_match_guards_a_write(api: Api) -> None:
    api.write("k")
    assert api.put("/memories/k", {"content": "2"}, If_Match='"1"').status == 200
    moved = api.put("/memories/k", {"content": "3"}, If_Match='"1"')
    assert moved.status == 412
    assert moved.kind == "version-moved"
    assert api.get("/memories/k").body["content"] == "2"
    assert api.put("/memories/k", {"content": "3"}, If_Match='"7", "2"').status == 200
    assert api.put("/memories/k", {"content": "4"}, If_Match="*").status == 200


@pytest.mark.parametrize("tag", ['W/"1"', '"one"', '"01x"', '"99999999999999999999999"', '""'])
def test_a_tag_that_is_no_version_here_matches_nothing(api: Api, tag: str) -> None:
    api.write("k")
    assert api.put("/memories/k", {"content": "2"}, If_Match=tag).status == 412


@pytest.mark.parametrize("tag", ["1", "abc", '"1', '1"', "", '"1" "2"'])
def test_a_header_of_another_shape_is_refused(api: Api, tag: str) -> None:
    api.write("k")
    assert api.put("/memories/k", {"content": "2"}, If_Match=tag).status == 422
    assert api.get("/memories/k").body["version"] == 1


@pytest.mark.parametrize("tag", ["*", '"1"'])
def test_if_match_needs_a_memory_that_is_there(api: Api, tag: str) -> None:
    assert api.put("/memories/k", {"content": "2"}, If_Match=tag).status == 412
    assert api.get("/memories/k").status == 404


def test_if_none_match_creates_only(api: Api) -> None:
    assert api.put("/memories/k", {"content": "1"}, If_None_Match="*").status == 201
    again = api.put("/memories/k", {"content": "2"}, If_None_Match="*")
    assert (again.status, again.kind) == (412, "version-moved")
    assert api.put("/memories/k", {"content": "2"}, If_None_Match='"1"').status == 422


def test_if_match_guards_a_deletion_too(api: Api) -> None:
    api.write("k")
    assert api.delete("/memories/k", If_Match='"2"').status == 412
    assert api.delete("/memories/k", If_Match='"1"').body["deleted"] is True


# --- scopes ---


def test_m3_the_same_rule_holds_in_read_list_search_and_delete(api: Api, other: Api) -> None:
    api.write("k", "The fox of mine.")
    api.write("k", "The fox of all.", scope="space")
    other.write("k", "The fox of another.")
    assert api.get("/memories/k").body["content"] == "The fox of mine."
    assert api.get("/memories/k?scope=space").body["content"] == "The fox of all."
    for scope, seen in {"mine": ["mine"], "space": ["space"], "": ["mine", "space"]}.items():
        query = f"&scope={scope}" if scope else ""
        assert sorted(row["scope"] for row in api.get(f"/memories?limit=9{query}").body["items"]) == seen
        assert sorted(row["scope"] for row in api.get(f"/search?q=fox{query}").body["items"]) == seen
    assert api.delete("/memories/k?scope=space").body["deleted"] is True
    assert api.get("/memories/k").body["content"] == "The fox of mine."
    assert api.delete("/memories/k").body["deleted"] is True
    assert api.delete("/memories/k").body == {"deleted": False}
    assert other.get("/memories/k").body["content"] == "The fox of another."


def test_reads_and_deletions_follow_one_order(api: Api) -> None:
    assert api.agent is not None
    for owner in (api.agent, None):
        for origin in Memory.Origin.values:
            MemoryFactory.create(owner=owner, space=api.agent.space, origin=origin, key="k")
    order = [("mine", "curated"), ("mine", "distilled"), ("space", "curated"), ("space", "distilled")]
    for scope, origin in order:
        found = api.get("/memories/k").body
        assert (found["scope"], found["origin"]) == (scope, origin)
        assert api.delete("/memories/k").body["id"] == found["id"]
    assert api.get("/memories/k").status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/memories/k"), ("GET", "/memories"), ("GET", "/search?q=k"), ("DELETE", "/memories/k")],
)
def test_an_agent_token_cannot_ask_for_all_or_for_an_owner(api: Api, method: str, path: str) -> None:
    api.write("k")
    join = "&" if "?" in path else "?"
    for query in ("scope=all", "owner=ada", "owner=nobody", "scope=mine&owner=ada", "scope=theirs"):
        assert api.call(method, f"{path}{join}{query}").status == 422, query
    assert api.get("/memories/k").status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/memories/k"), ("GET", "/memories"), ("GET", "/search?q=fox"), ("DELETE", "/memories/k")],
)
def test_a_space_token_names_the_owner_of_what_is_mine(api: Api, whole_space: Api, method: str, path: str) -> None:
    api.write("k", "The fox.")
    join = "&" if "?" in path else "?"
    assert whole_space.call(method, f"{path}{join}scope=mine").status == 422
    assert whole_space.call(method, f"{path}{join}scope=mine&owner=nobody").status == 404
    assert whole_space.call(method, f"{path}{join}owner=ada").status == 422
    answer = whole_space.call(method, f"{path}{join}scope=mine&owner=ada")
    assert answer.status == 200
    assert api.agent is not None
    assert str(Memory.objects.get().pk) in answer.text


def test_a_space_token_sees_shared_rows_and_all_when_it_asks(api: Api, other: Api, whole_space: Api) -> None:
    api.write("a", "The fox of ada.")
    other.write("g", "The fox of grace.")
    assert whole_space.put("/memories/s", {"content": "The fox of all."}).body["scope"] == "space"
    for path in ("/memories?limit=9", "/search?q=fox"):
        assert [row["key"] for row in whole_space.get(path).body["items"]] == ["s"]
        assert sorted(row["key"] for row in whole_space.get(f"{path}&scope=all").body["items"]) == ["a", "g", "s"]
    assert whole_space.get("/memories/a").status == 404
    assert whole_space.get("/memories/a?scope=all").body["owner"] == "ada"


def test_a_space_token_writes_for_an_owner(api: Api, whole_space: Api) -> None:
    assert whole_space.put("/memories/k", {"content": "x", "scope": "mine"}).status == 422
    assert whole_space.put("/memories/k?owner=ada", {"content": "x"}).status == 422
    assert whole_space.put("/memories/k?owner=nobody", {"content": "x", "scope": "mine"}).status == 404
    assert whole_space.put("/memories/k?owner=ada", {"content": "x", "scope": "mine"}).body["owner"] == "ada"
    assert api.get("/memories/k").body["scope"] == "mine"
    assert api.put("/memories/k?owner=ada", {"content": "x"}).status == 422


# --- reading ---


def test_m6_a_read_counts_one_access_exactly(api: Api) -> None:
    made = api.write("k")
    counts = [api.get("/memories/k").body["access_count"] for _ in range(3)]
    assert counts == [0, 1, 2]
    listed = api.get("/memories").body["items"][0]
    assert listed["access_count"] == 3
    assert listed["last_accessed_at"] is not None
    assert (listed["version"], listed["updated_at"]) == (1, made["updated_at"])
    assert api.put("/memories/k", {"content": "New."}).body["access_count"] == 3


def _distilled(agent: Agent, key: str = "fact", *, version: int = 1) -> Memory:
    session = SessionFactory.create(agent=agent, name="s1")
    texts = ["Before. " * 100, "The database is PostgreSQL.", "noise", "After."]
    rows = [MessageFactory.create(session=session, seq=n + 1, text=text) for n, text in enumerate(texts)]
    type(rows[2]).objects.filter(pk=rows[2].pk).update(is_speech=False)
    source = distilled.Source(message=rows[1], quote="is PostgreSQL", verified=True)
    finding = distilled.Finding(key=key, content="It uses PostgreSQL.", tags=(), context="", sources=[source])
    return distilled.write(session=session, finding=finding, pass_id=7).memory


def test_d10_a_single_read_shows_what_a_memory_rests_on(api: Api) -> None:
    assert api.agent is not None
    memory = _distilled(api.agent)
    curation.edit(memory_id=memory.pk, author=Author(kind="operator", name="op"), reason="kept", pinned=True)
    (source,) = api.get("/memories/fact").body["sources"]
    assert source == {
        "session": "s1",
        "uid": "m2",
        "seq": 2,
        "quote": "is PostgreSQL",
        "verified": True,
        "before": ("Before. " * 100)[:500],
        "after": "After.",
    }


def test_sources_of_earlier_contents_and_gone_ones_do_not_count(api: Api) -> None:
    assert api.agent is not None
    memory = _distilled(api.agent)
    curation.edit(memory_id=memory.pk, author=Author(kind="operator", name="op"), reason="wrong", content="SQLite.")
    assert api.get("/memories/fact").body["sources"] == []
    assert MemorySource.objects.filter(memory=memory).count() == 1


def test_m4_a_shared_memory_does_not_show_the_conversation_it_came_from(api: Api, other: Api, whole_space: Api) -> None:
    assert api.agent is not None
    memory = _distilled(api.agent)
    curation.share(memory_id=memory.pk, author=Author(kind="operator", name="op"), reason="useful")
    assert other.get("/memories/fact").body["sources"] == []
    assert len(api.get("/memories/fact").body["sources"]) == 1
    assert len(whole_space.get("/memories/fact").body["sources"]) == 1


def test_m4_sources_of_a_session_that_is_gone_are_shown_to_their_memorys_owner_alone(
    api: Api, other: Api, whole_space: Api
) -> None:
    assert api.agent is not None
    memory = _distilled(api.agent)
    assert api.delete("/sessions/s1?memories=keep").body == {"deleted": True}
    assert len(api.get("/memories/fact").body["sources"]) == 1
    curation.share(memory_id=memory.pk, author=Author(kind="operator", name="op"), reason="useful")
    assert other.get("/memories/fact").body["sources"] == []
    assert len(whole_space.get("/memories/fact").body["sources"]) == 1


# --- pages ---


def test_pages_go_through_everything_once_in_the_order_of_updates(api: Api) -> None:
    for n in range(7):
        api.write(f"k{n}", tags=["odd"] if n % 2 else [])
    api.write("k2", "Again.")
    seen: list[str] = []
    after = ""
    while True:
        page = api.get(f"/memories?limit=3{after}").body
        seen += [row["key"] for row in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
        # What is written meanwhile moves to the front and disturbs no page.
        api.write("k6", f"Again {len(seen)}.")
    assert seen == ["k2", "k6", "k5", "k4", "k3", "k1", "k0"]
    assert [row["key"] for row in api.get("/memories?tag=odd").body["items"]] == ["k5", "k3", "k1"]
    assert api.get("/memories?origin=distilled").body == {"items": [], "next": None}


@pytest.mark.parametrize("after", ["x", "!!", "WzFd", "bnVsbA", "W10", "ü", "%00", "WyIyMDI2LTAxLTAxIiwgIngiXQ"])
def test_a_page_that_no_list_gave_is_refused(api: Api, after: str) -> None:
    assert api.get(f"/memories?after={quote(after, safe='%')}").status == 422


@pytest.mark.parametrize("limit", ["0", "-1", "501", "x", "1.5", "", "1" * 400])
def test_a_limit_out_of_bounds_is_refused(api: Api, limit: str) -> None:
    assert api.get(f"/memories?limit={limit}").status == 422
    assert api.get(f"/search?q=x&limit={limit}").status == 422


def test_a_search_gives_at_most_fifty(api: Api) -> None:
    assert api.get("/search?q=x&limit=50").status == 200
    assert api.get("/search?q=x&limit=51").status == 422
    assert api.get("/search").status == 422
    assert api.get("/search?q=%00").status == 422


def test_a_list_takes_as_many_queries_for_many_rows_as_for_few(api: Api) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert api.get("/memories?limit=500").status == 200
        return len(captured)

    api.write("first")
    api.get("/memories")
    few = queries()
    body = {"memories": [{"key": f"k{n}", "content": "x", "scope": "space"} for n in range(60)]}
    assert api.post("/batch", body).status == 200
    assert queries() == few


# --- search and context ---


def test_a_search_says_what_found_a_memory_and_counts_it(api: Api) -> None:
    api.write("db", "The database is PostgreSQL.")
    found = api.get("/search?q=database")
    assert set(found.body) == {"items", "next", "pending"}
    (item,) = found.body["items"]
    assert set(item) == FIELDS | {"score", "matched"}
    assert (item["matched"], item["access_count"], found.body["pending"]) == (["text"], 0, 0)
    assert 0 < item["score"] <= 1
    assert "explain" in api.get("/search?q=database&explain=true").body["items"][0]
    assert api.get("/memories/db").body["access_count"] == 2
    assert api.get("/search?q=zzzz").body["items"] == []


def test_the_context_is_marked_bounded_and_names_nothing_twice(api: Api) -> None:
    api.write("pinned", "The fox is pinned.", pinned=True)
    for n in range(20):
        api.write(f"fox{n}", "The fox runs. " * 60)
    context = api.get("/context?q=fox&max_chars=900").body
    assert set(context) == {"core", "relevant", "text"}
    assert len(context["text"]) <= 900
    assert context["core"][0]["key"] == "pinned"
    keys = [row["key"] for row in context["core"] + context["relevant"]]
    assert len(keys) == len(set(keys))
    assert all(len(row["content"]) <= 500 for row in context["relevant"])
    assert api.get("/context").body["relevant"] == []
    assert api.get("/context?max_chars=0").status == 422
    assert {row["access_count"] for row in api.get("/memories").body["items"]} == {0}


# --- batches ---


def test_one_bad_memory_of_a_batch_refuses_none_of_the_others(api: Api) -> None:
    items: list[Any] = [
        {"key": "a", "content": "1", "tags": ["t"]},
        {"key": "distilled:x", "content": "1"},
        {"key": "b", "content": 42},
        {"content": "1"},
        {"key": 5, "content": "1"},
        "no object",
        {"key": "a", "content": "2"},
        {"key": " ", "content": "2"},
        {"key": "c", "content": "\ud800"},
        {"key": "z/ü", "content": "3", "scope": "space"},
    ]
    answer = api.post("/batch", {"memories": items})
    assert answer.status == 200
    rows = answer.body["items"]
    assert [row["status"] for row in rows] == [201, 422, 422, 422, 422, 422, 200, 422, 422, 201]
    assert [row["key"] for row in rows] == ["a", "distilled:x", "b", None, None, None, "a", " ", "c", "z/ü"]
    assert all(set(row) == {"key", "status", "id", "version", "error"} for row in rows)
    assert all((row["error"] is None) == (row["status"] < 300) for row in rows)
    assert rows[0]["id"] == rows[6]["id"]
    assert rows[6]["version"] == 2
    assert api.get("/memories/a").body["content"] == "2"
    assert api.get("/memories/z/%C3%BC").body["scope"] == "space"


def test_a_batch_has_its_bounds_and_its_shape(api: Api) -> None:
    memory = {"key": "k", "content": "x"}
    assert api.post("/batch", {"memories": [memory] * 501}).status == 413
    assert api.post("/batch", {"memories": [{**memory, "key": f"k{n}"} for n in range(500)]}).status == 200
    assert api.post("/batch", {"memories": []}).body == {"items": []}
    for body in ({}, {"memories": memory}, [memory], {"memories": None}):
        assert api.post("/batch", body).status == 422


def test_a_batch_of_a_space_token_names_its_owner(api: Api, whole_space: Api) -> None:
    mine = {"key": "m", "content": "x", "scope": "mine"}
    shared = {"key": "s", "content": "x"}
    rows = whole_space.post("/batch", {"memories": [mine, shared]}).body["items"]
    assert [row["status"] for row in rows] == [422, 201]
    rows = whole_space.post("/batch?owner=ada", {"memories": [mine, shared]}).body["items"]
    assert [row["status"] for row in rows] == [201, 200]
    assert api.get("/memories/m").body["owner"] == "ada"
    assert api.post("/batch?owner=ada", {"memories": [mine]}).status == 422


# --- history ---


def test_m5_history_tells_who_when_and_what(api: Api) -> None:
    memory = api.write("k", "One.")
    api.write("k", "Two.")
    curation.edit(memory_id=memory["id"], author=Author(kind="operator", name="olga"), reason="typo", content="Two!")
    api.delete("/memories/k")
    versions = api.get(f"/history/{memory['id']}").body["items"]
    assert [row["version"] for row in versions] == [1, 2, 3, 4]
    assert [row["who"] for row in versions] == [
        {"kind": "agent", "name": "ada"},
        {"kind": "agent", "name": "ada"},
        {"kind": "operator", "name": "olga"},
        {"kind": "agent", "name": "ada"},
    ]
    assert [row["what"] for row in versions] == ["written", "changed", "changed", "deleted"]
    assert [row["content"] for row in versions] == ["One.", "Two.", "Two!", "Two!"]
    assert versions[2]["reason"] == "typo"
    assert all(row["when"].endswith("Z") for row in versions)
    first = api.get(f"/history/{memory['id']}?limit=3").body
    rest = api.get(f"/history/{memory['id']}?limit=3&after={first['next']}").body
    assert [row["version"] for row in first["items"] + rest["items"]] == [1, 2, 3, 4]
    assert rest["next"] is None


def test_history_names_the_pass_of_a_distilled_memory(api: Api) -> None:
    assert api.agent is not None
    memory = _distilled(api.agent)
    assert api.get(f"/history/{memory.pk}").body["items"][0]["who"] == {"kind": "pass", "name": "7"}


def test_m4_history_is_seen_by_those_who_may_see_the_memory(api: Api, other: Api, whole_space: Api) -> None:
    memory = api.write("k", "Private before.")
    path = f"/history/{memory['id']}"
    assert other.get(path).status == 404
    assert other.get(path).told == other.get("/history/00000000-0000-4000-8000-000000000000").told
    assert whole_space.get(path).status == 200
    curation.share(memory_id=memory["id"], author=Author(kind="operator", name="olga"), reason="useful")
    curation.edit(
        memory_id=memory["id"], author=Author(kind="operator", name="olga"), reason="", content="Shared since."
    )
    seen = other.get(path)
    assert [row["version"] for row in seen.body["items"]] == [2, 3]
    assert [row["version"] for row in api.get(path).body["items"]] == [1, 2, 3]
    stranger = of_agent(AgentFactory.create())
    assert stranger.get(path).status == 404
    for name in ("x", "1", "%00", memory["id"] + "0"):
        assert api.get(f"/history/{name}").status == 404


def test_a_batch_locks_in_the_order_of_keys_so_that_two_never_wait_for_each_other(api: Api) -> None:
    items = [{"key": key, "content": "x"} for key in ("b", "a", "c")]
    with CaptureQueriesContext(connection) as captured:
        rows = api.post("/batch", {"memories": items}).body["items"]
    inserts = [query["sql"] for query in captured if 'INSERT INTO "agentmemory_memory" ' in query["sql"]]
    assert [row["key"] for row in rows] == ["b", "a", "c"]
    assert [next(key for key in "abc" if f"'{key}'" in sql) for sql in inserts] == ["a", "b", "c"]
