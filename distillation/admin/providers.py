"""Providers as distillation uses them: paused and resumed, tried out, and how much they were asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from agentmemory.admin import providers as base
from agentmemory.admin.acts import Act, Asked, Did, Undo
from agentmemory.admin.base import ConsoleList
from agentmemory.console import figures, goes, labels, links, permissions
from agentmemory.errors import AgentMemoryError
from agentmemory.models import Provider
from agentmemory.services.providers import pause_line
from distillation.services import calls, operations, providing, states


class NoAnswer(AgentMemoryError):
    """A test brought none. The text is the provider's own."""


def _pause(provider: Provider, asked: Asked) -> str:
    providing.pause(provider_id=provider.pk, operator=asked.operator, reason=asked.reason)
    return f"{provider} is paused: nothing calls it until somebody resumes it."


def _resume(provider: Provider, asked: Asked) -> Did:
    providing.resume(provider_id=provider.pk, operator=asked.operator, reason=asked.reason)
    said = f"{provider} may be called again; what waited for it goes on at the next tick."
    return Did(said=said, undo=Undo(act="pause", values={"reason": provider.stopped_reason}))


def _test(provider: Provider, asked: Asked) -> str:
    tried = providing.try_out(provider_id=provider.pk, operator=asked.operator, reason=asked.reason)
    if not tried.ok:
        raise NoAnswer(tried.error)
    return f"{provider} answered in {tried.seconds:g} s." if tried.called else tried.text


def _clear_backoff(provider: Provider, asked: Asked) -> str:
    count = operations.clear_backoffs(provider_id=provider.pk, operator=asked.operator, reason=asked.reason)
    sessions = "1 session no longer waits" if count == 1 else f"{figures.number(count)} sessions no longer wait"
    return f"{sessions} after failures of {provider}; a pass over each is due now."


def _backs_off(request: HttpRequest, rows: Sequence[Provider]) -> SafeString:
    waiting = sum(operations.after_failures(row).count() for row in rows)
    return goes.with_it("What is tried again:", {"sessions that back off": waiting})


def _held_back(provider: Provider) -> bool:
    return bool(pause_line(provider, now=timezone.now(), private=False))


class _CalledList(ConsoleList):
    """What a page's rows were asked is counted together, not one by one."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        found = calls.in_the_last_day()
        rows: list[Any] = list(self.result_list)
        for provider in rows:
            provider.calls = found.get(provider.pk, calls.Calls())
        self.result_list = rows


admin.site.unregister(Provider)


@admin.register(Provider)
class ProviderAdmin(base.ProviderAdmin):
    """The set-up's list of providers, with what only distillation knows of them."""

    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="pause",
            label="Pause",
            explains="Stops all calls to it, without end, until somebody resumes it. Sessions that it would distil "
            "wait as blocked, with your name and your reason; they count no failures.",
            run=_pause,
            undo="resume",
            bulk=True,
            offered=lambda provider: provider.stopped_at is None,
        ),
        Act(
            name="resume",
            label="Resume",
            explains="Ends every pause of it: an operator's, and the one that a refused key or a spent quota brings.",
            run=_resume,
            back="Pause stops all calls again.",
            bulk=True,
            offered=_held_back,
        ),
        Act(
            name="test",
            label="Test",
            explains="Makes one tiny call, also while it is paused, and shows what comes back. It pauses and resumes "
            f"nothing, waits {providing.TEST_SECONDS:g} seconds at most, and costs a few tokens that no budget counts.",
            run=_test,
            final="What was called is paid for, whatever comes back.",
        ),
        Act(
            name="clear-backoff",
            label="Clear backoff",
            explains="Forgets the failures, and the wait after them, of all sessions whose newest pass asked it and "
            "failed. Each is tried again within seconds, and calls the model once for each window.",
            run=_clear_backoff,
            preview=_backs_off,
            final="The counts of failures begin anew, and what is read is paid for, whatever comes of it.",
            needs="distillation.change_cursor",
            offered=lambda provider: operations.after_failures(provider).exists(),
            beside=True,
        ),
    )
    list_display = ("called_by", "what", "state", "serves", "called", "row_acts")
    change_form_outer_before_template = "console/provider_before.html"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _CalledList

    def may_be_called(self, provider: Any) -> SafeString:
        """It may be, and perhaps to no avail."""
        if not provider.calls.failing:
            return super().may_be_called(provider)
        return labels.with_line("failing", provider.calls.line(private=provider.may_be_read)[:200])

    @admin.display(description="Calls, 24 h")
    def called(self, provider: Any) -> str:
        failed = f", {figures.number(provider.calls.failed)} failed" if provider.calls.failed else ""
        return f"{figures.number(provider.calls.made)}{failed}"

    @admin.display(description="Actions")
    def row_acts(self, provider: Provider) -> SafeString | str:
        return self.row_links(provider, "pause", "resume", "test")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        provider = self.get_object(request, object_id)
        about = self._about(request, provider) if provider else {}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **about})

    def _backoff(self, request: HttpRequest, provider: Provider) -> dict[str, Any]:
        """How many sessions wait after its failures, where they are listed, and what ends that."""
        if not request.user.has_perm("distillation.view_cursor"):
            return {}
        count = operations.after_failures(provider).count()
        (act,) = (each for each in self.acts if each.name == "clear-backoff")
        may = count > 0 and self._allows(request, act, [provider])
        return {
            "backing_off": count,
            "backing_off_url": _listed(provider) if count else "",
            "clear_url": self.act_url(act.name, [provider.pk]) if may else "",
        }

    def _about(self, request: HttpRequest, provider: Provider) -> dict[str, Any]:
        test = providing.last_test(provider)
        asked = calls.in_the_last_day().get(provider.pk, calls.Calls())
        private = permissions.reads_private(request)
        return {
            "acts": self.act_links(provider, request),
            "provider": provider,
            **self._backoff(request, provider),
            "pause": pause_line(provider, now=timezone.now(), private=private).removeprefix("paused "),
            "calls": asked,
            "said": asked.said(private=private),
            "failing": labels.with_line("failing", asked.line(private=private)) if asked.failing else "",
            "test": test,
            "test_state": labels.label(_verdict(test.detail)) if test else "",
        }


def _listed(provider: Provider) -> str:
    query = urlencode({"waiting": states.BACKING_OFF, "failed_by": provider.name})
    return links.listing("distillation", "cursor", query)


def _verdict(detail: dict[str, Any]) -> str:
    if detail.get("ok"):
        return "answered" if detail.get("called") else "not called"
    return "failed"
