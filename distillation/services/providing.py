"""What operators do with providers: pause, resume, try out. Each is on record with who and why (D24)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from agentmemory.errors import AgentMemoryError, Invalid, NotFound
from agentmemory.models import Activity, Provider
from agentmemory.services import activity, redaction
from distillation.models import Cursor
from distillation.services import gates, resolution
from sessions_exec.llm import anthropic_client
from sessions_exec.llm.messages import Endpoint, ModelCallFailed, ModelRequest

TEST = "test provider"
TEST_SECONDS = 30.0
TEST_TOKENS = 256
CHARS_KEPT = 1_000

_WITHOUT_A_CALL = {
    Provider.Kind.OFFLINE: "Nothing was called. It takes out sentences by their wording, here, without a model or key.",
    Provider.Kind.ACP: "Nothing was called. It runs agents, cannot be used for extraction; its sessions are skipped.",
}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What one tiny call brought: `text`, or the `error` as it came. `called`: whether one was made at all."""

    called: bool
    ok: bool
    model: str = ""
    text: str = ""
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0


@transaction.atomic
def pause(*, provider_id: int, operator: str, reason: str) -> None:
    """Stop all calls to a provider until somebody resumes it. Raises `NotFound`, and `Invalid` where it is paused so.

    This pause and the one that failures bring (D19) stand beside each other: neither ends the other.
    """
    provider = _locked(provider_id)
    if provider.stopped_at is not None:
        raise Invalid(f"{provider.stopped_by} paused it already.", field="stopped_at")
    provider.stopped_at, provider.stopped_by, provider.stopped_reason = timezone.now(), _who(operator), reason[:500]
    provider.save(update_fields=["stopped_at", "stopped_by", "stopped_reason"])
    activity.record("pause provider", who=_who(operator), target=provider, reason=reason)


@transaction.atomic
def resume(*, provider_id: int, operator: str, reason: str) -> None:
    """End every pause of a provider, an operator's and one that failures brought. Raises `NotFound`."""
    provider = _locked(provider_id)
    detail = {"paused_by": provider.stopped_by} if provider.stopped_at else {"after_failures": provider.failures}
    Provider.objects.filter(pk=provider.pk).update(
        stopped_at=None, stopped_by="", stopped_reason="", failures=0, paused_until=None, paused_reason=""
    )
    # What waited for it is looked at again at once, not at the next tick.
    waiting = Cursor.objects.behind().filter(waits_for__startswith=f"{gates.BLOCKED}: provider {provider} ")
    waiting.update(requested_at=timezone.now(), enqueued_at=None)
    activity.record("resume provider", who=_who(operator), target=provider, reason=reason, detail=detail)


def try_out(*, provider_id: int, operator: str, reason: str) -> Tried:
    """Make one tiny call, also while the provider is paused or switched off, and keep what came back on record.

    It changes no pause and counts in no budget. Raises `NotFound`.
    """
    provider = Provider.objects.filter(pk=provider_id).first()
    if provider is None:
        raise NotFound("There is no such provider.")
    tried = _try(provider)
    detail = {name: value for name, value in dataclasses.asdict(tried).items() if value not in ("", 0)}
    activity.record(TEST, who=_who(operator), target=provider, reason=reason, detail=detail)
    return tried


def last_test(provider: Provider) -> Activity | None:
    """The newest test of a provider; what came back is in its `detail`, as in `Tried`."""
    return activity.newest(TEST, target=provider)


def answered_tests(providers: Iterable[int]) -> dict[int, datetime]:
    """When an operator's test of each of these providers last brought an answer, where one did."""
    tests = Activity.objects.filter(
        act=TEST,
        target_type=Provider._meta.label_lower,
        target_id__in=[str(pk) for pk in providers],
        detail__contains={"ok": True, "called": True},
    )
    found = tests.order_by().values_list("target_id").annotate(at=Max("at"))
    return {int(pk): at for pk, at in found}


def _try(provider: Provider) -> Tried:
    kind = Provider.Kind(provider.kind)
    if kind in _WITHOUT_A_CALL:
        return Tried(called=False, ok=True, text=_WITHOUT_A_CALL[kind])
    model = resolution.default_model(provider)
    try:
        endpoint = resolution.endpoint(provider)
    except AgentMemoryError as error:
        return Tried(called=False, ok=False, model=model, error=str(error))
    if endpoint is None:
        return Tried(called=False, ok=False, model=model, error="it is reached over no network")
    return _call(endpoint, model)


def _call(endpoint: Endpoint, model: str) -> Tried:
    """No transaction is open meanwhile (A2)."""
    bounded = dataclasses.replace(endpoint, timeout_seconds=min(endpoint.timeout_seconds, TEST_SECONDS))
    request = ModelRequest(model=model, system="You answer in one word.", prompt="Say: ready", max_tokens=TEST_TOKENS)
    begun = time.monotonic()
    try:
        reply = anthropic_client.complete(bounded, request)
    except ModelCallFailed as failure:
        return Tried(ok=False, error=_kept(f"{failure.kind}: {failure.message}"), **_came(failure, model, begun))
    return Tried(ok=True, **_came(reply, model, begun))


def _came(back: Any, model: str, begun: float) -> dict[str, Any]:
    return {
        "called": True,
        "model": model,
        "text": _kept(back.text),
        "input_tokens": back.input_tokens,
        "output_tokens": back.output_tokens,
        "seconds": round(time.monotonic() - begun, 2),
    }


def _kept(text: str) -> str:
    return redaction.clean_text(text)[:CHARS_KEPT]


def _locked(provider_id: int) -> Provider:
    provider = Provider.objects.select_for_update().filter(pk=provider_id).first()
    if provider is None:
        raise NotFound("There is no such provider.")
    return provider


def _who(operator: str) -> str:
    return f"operator:{operator}"
