"""Whatever is sent that the document allows, or does not allow, the answer is as the document says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core import signals
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentmemory.models import Memory
from tests.factories import AgentFactory
from tests.support.clients import Api, assistant, of_agent, of_space, result, user

schemathesis = pytest.importorskip("schemathesis")

from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import CHECKS  # noqa: E402
from schemathesis.core.parameters import ParameterLocation  # noqa: E402

pytestmark = pytest.mark.slow

SCHEMA = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application())
OPERATIONS = {operation.ok().label: operation.ok() for operation in SCHEMA.get_all_operations()}
EXAMPLES = settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# What a call that the document allows may be refused for, since no schema can say it: by the field that is named.
UNSAYABLE = {
    "key": "which characters can be printed",
    "owner": "whose token it is",
    "query.owner": "whose token it is",
    "query.scope": "whose token it is",
    "query.after": "whether a page was given out before",
    "header.Idempotency-Key": "whether the key was used for another call",
    "header.If-Match": "what the other condition says",
}
# What the database cannot hold, and what is a secret, is refused in any text.
IN_ANY_TEXT = ("NUL and lone surrogates", "holds a secret")
REFUSED, TAKEN = (CHECKS.get_one(name) for name in ("positive_data_acceptance", "negative_data_rejection"))


@pytest.fixture
def api(db: None) -> Iterator[Api]:
    """An agent that has one of everything.

    The test's transaction lives in its connection, which a request would end with itself.
    """
    api = of_agent(AgentFactory.create(handle="ada"))
    api.write("k", "The fox is red.", tags=["t"])
    api.say("s1", user("u1", "The fox."), assistant("a1"), result("r1"), user("u2", "More."))
    api.post("/sessions/s1/inputs", {"id": "i1", "prompt": "Go on."})
    ends = (signals.request_started, signals.request_finished)
    for signal in ends:
        signal.disconnect(close_old_connections)
    yield api
    for signal in ends:
        signal.connect(close_old_connections)


def names(case: Any, operation: str) -> dict[str, str]:
    """What the names in a path are called that lead somewhere."""
    memory = str(Memory.objects.values_list("pk", flat=True)[0])
    there = {"id": memory if "/history/" in operation else "s1", "key": "k", "uid": "u1", "input": "i1"}
    return {name: there[name] for name in case.path_parameters or {}}


@pytest.mark.parametrize("label", OPERATIONS)
def test_what_the_document_allows_is_answered_as_it_says(api: Api, label: str) -> None:
    assert api.space
    tokens = [api.token, of_space(api.space).token]

    @EXAMPLES
    @given(
        case=OPERATIONS[label].as_strategy(generation_mode=GenerationMode.POSITIVE),
        named=st.booleans(),
        token=st.sampled_from(tokens),
    )
    def answers(case: Any, named: bool, token: str) -> None:
        if named and case.path_parameters:
            case.path_parameters = names(case, label)
        check(case, token, excluded=[])

    answers()


@pytest.mark.parametrize("label", OPERATIONS)
def test_what_the_document_does_not_allow_is_refused_as_it_says(api: Api, label: str) -> None:
    @EXAMPLES
    @given(case=OPERATIONS[label].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def answers(case: Any) -> None:
        wrong = {place for place, info in case.meta.components.items() if info.mode == GenerationMode.NEGATIVE}
        # In queries and headers everything is a text, and what is not known is passed over.
        each = label == "POST /api/v1/batch" and answers_for_each(case.body)
        judged = wrong == {ParameterLocation.BODY} and not each
        check(case, api.token or "", excluded=[] if judged else [TAKEN])

    answers()


def answers_for_each(body: Any) -> bool:
    """Whether it is a batch as a whole: what is wrong with one of its memories is told with that one."""
    return isinstance(body, dict) and isinstance(body.get("memories"), list) and len(body["memories"]) <= 500


def check(case: Any, token: str, *, excluded: list[Any]) -> None:
    if case.query and "wait" in case.query:
        case.query["wait"] = 0
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
    answer = case.call(headers=headers)
    unfit = [REFUSED] if for_what_no_schema_says(answer) else []
    case.validate_response(answer, headers=headers, excluded_checks=[*excluded, *unfit])


def for_what_no_schema_says(answer: Any) -> bool:
    """Whether a call was refused for nothing but what the document cannot say, or on its own condition."""
    if answer.status_code == 412:
        return True
    errors: list[Any] = answer.json().get("errors", []) if answer.status_code == 422 else []
    return bool(errors) and all(
        error["field"] in UNSAYABLE or any(words in error["message"] for words in IN_ANY_TEXT) for error in errors
    )
