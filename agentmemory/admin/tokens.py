"""Tokens: made through the service, shown once, never read again. What is stored is a digest, and no page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import add_never_cache_headers
from django.utils.safestring import SafeString

from agentmemory.admin import filters, once
from agentmemory.admin.acts import Act, ActingAdmin, Asked, AskForm, Did, Undo
from agentmemory.admin.base import ConsoleList
from agentmemory.authorship import Author
from agentmemory.console import figures, goes, labels
from agentmemory.errors import Invalid
from agentmemory.models import Agent, Space, Token
from agentmemory.services import rates, records, tokens

# More in a minute than any installation answers, and what the column can hold.
MOST_CALLS = 1_000_000


class IssueForm(AskForm):
    """Whom the new token stands for, and why it is made."""

    space = forms.ModelChoiceField(queryset=Space.objects.active(), empty_label=None)
    agent = forms.CharField(
        required=False, max_length=100, help_text="The agent's handle. Empty: a token of the whole space."
    )
    name = forms.CharField(required=False, max_length=200, help_text="What it is for, to find it again.")
    expires_at = forms.DateTimeField(
        required=False, label="Expires", help_text="UTC, as 2027-01-31 12:00; empty: never."
    )

    calls_per_minute = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_CALLS,
        label="Calls a minute",
        help_text="0: no limit; empty: the installation's setting.",
    )

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        handle = (values.get("agent") or "").strip()
        if handle and values.get("space"):
            agent = Agent.objects.present().filter(space=values["space"], handle=handle).first()
            if agent is None:
                self.add_error("agent", "There is no agent of this handle in the space.")
            values["agent"] = agent
        else:
            values["agent"] = None
        return values


class StateFilter(filters.ChoiceFilter):
    title = "state"
    parameter_name = "state"
    options = (("valid", "Valid"), ("revoked", "Revoked"), ("expired", "Expired"))

    def chosen(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "revoked":
            return queryset.filter(revoked_at__isnull=False)
        if value == "expired":
            return queryset.filter(expires_at__lte=timezone.now())
        return queryset.filter(pk__in=Token.objects.valid().values("pk")) if value == "valid" else queryset


def _revoke(token: Token, asked: Asked) -> str:
    run = partial(tokens.revoke, token_id=token.pk)
    records.acted("revoke", run, who=str(asked.author), target=token, reason=asked.reason, space=token.space)
    return f"{token} is worthless from now on."


class LimitForm(AskForm):
    """How many calls it may make."""

    calls_per_minute = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_CALLS,
        label="Calls a minute",
        help_text="0: no limit; empty: the installation's setting.",
    )


def _limit(token: Token, asked: Asked) -> Did:
    calls = asked.values["calls_per_minute"]
    run = partial(tokens.limit, token_id=token.pk, calls_per_minute=calls)
    told = {"calls_per_minute": "the installation's" if calls is None else calls}
    who = str(asked.author)
    records.acted("limit", run, who=who, target=token, reason=asked.reason, space=token.space, detail=told)
    before = "" if token.calls_per_minute is None else token.calls_per_minute
    undo = Undo(act="limit", values={"calls_per_minute": before})
    return Did(said=f"{token} has another limit from the next minute on.", undo=undo)


def _cuts_off(request: HttpRequest, rows: Sequence[Token]) -> SafeString:
    used = [row for row in rows if row.last_used_at is not None]
    return goes.with_it("Who is cut off:", {"tokens that were used": len(used), "never used": len(rows) - len(used)})


class _CountedList(ConsoleList):
    """What a page's tokens used is counted together, not one by one."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows: list[Any] = list(self.result_list)
        found = rates.standings({token.pk: token.calls_per_minute for token in rows})
        for token in rows:
            token.standing = found[token.pk]
        self.result_list = rows


def _issue(operator: str, asked: dict[str, Any]) -> tokens.Issued:
    """A new token, on record with who issued it and why."""
    values = {name: value for name, value in asked.items() if name != "reason"}
    return records.made(
        "issue",
        lambda: tokens.issue(**values),
        who=str(Author(kind="operator", name=operator)),
        target=lambda issued: issued.token,
        reason=asked["reason"],
        space=asked["space"],
    )


@admin.register(Token)
class TokenAdmin(ActingAdmin[Token]):
    acts: ClassVar[Sequence[Act]] = (
        Act(
            name="limit",
            label="Limit calls",
            explains="Sets how many calls it may make in a minute, over all web processes together.",
            run=_limit,
            back="by the same act, with the limit that it has now.",
            form=LimitForm,
            offered=lambda token: token.revoked_at is None,
        ),
        Act(
            name="revoke",
            label="Revoke",
            explains="Makes the token worthless from now on.",
            run=_revoke,
            preview=_cuts_off,
            final="It cannot be taken back: its holder needs a new token.",
            bulk=True,
            danger=True,
            offered=lambda token: token.revoked_at is None,
        ),
    )
    empty_line = "No token yet: issue one, and give it to a client."
    list_display = ("prefix", "name", "acts_as", "space", "state", "calls", "last_used", "expires", "row_acts")
    list_select_related = ("space", "agent")
    search_fields = ("prefix", "name")
    list_filter = (StateFilter, filters.word("space", "space__slug"), filters.word("agent", "agent__handle"))
    fields = ("prefix", "name", "acts_as", "space", "state", "calls", "last_used", "expires", "made")
    readonly_fields = fields
    change_form_outer_before_template = "console/acts_before.html"

    def has_change_permission(self, request: HttpRequest, obj: Token | None = None) -> bool:
        return False

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Issue a token. Its plain text is on the answer's page and nowhere else, and no cache keeps that page."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = IssueForm(request.POST if request.method == "POST" else None, initial=request.GET.dict())
        context = {**self.admin_site.each_context(request), "title": "Issue a token", "opts": self.opts, "form": form}
        if request.method == "POST" and form.is_valid():
            if not once.claim(request):
                messages.warning(request, f"{once.AGAIN} The token was shown on the first answer alone.")
                return HttpResponseRedirect(reverse("admin:agentmemory_token_changelist"))
            try:
                issued = _issue(request.user.get_username(), form.cleaned_data)
            except Invalid as error:
                form.add_error(error.field if error.field in form.fields else None, str(error))
            else:
                context |= {"issued": issued, "address": request.build_absolute_uri("/").rstrip("/")}
        response = TemplateResponse(request, "console/token.html", context, status=422 if form.errors else 200)
        add_never_cache_headers(response)
        return response

    @admin.display(description="Acts as")
    def acts_as(self, token: Token) -> str:
        return token.agent.handle if token.agent else "the whole space"

    @admin.display(description="State")
    def state(self, token: Token) -> SafeString:
        if token.revoked_at:
            return labels.label("revoked")
        return labels.label("expired" if token.expires_at and token.expires_at <= timezone.now() else "active")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return _CountedList

    @admin.display(description="Calls this minute")
    def calls(self, token: Any) -> SafeString:
        found = getattr(token, "standing", None) or rates.standings({token.pk: token.calls_per_minute})[token.pk]
        own = "its own" if token.calls_per_minute is not None else "the installation's"
        limit = "no limit" if found.limit is None else f"of {figures.number(found.limit)}, {own}"
        refused = f", at least {figures.number(found.refused)} refused in a day" if found.refused else ""
        return labels.lines(f"up to {figures.number(found.taken)}" if found.taken else "none", limit + refused)

    @admin.display(description="Last used", ordering="last_used_at")
    def last_used(self, token: Token) -> SafeString:
        return figures.when(token.last_used_at, never="never")

    @admin.display(description="Expires", ordering="expires_at")
    def expires(self, token: Token) -> SafeString:
        return figures.when(token.expires_at, never="never")

    @admin.display(description="Made")
    def made(self, token: Token) -> SafeString:
        return figures.when(token.created_at)

    @admin.display(description="Actions")
    def row_acts(self, token: Token) -> SafeString | str:
        return self.row_links(token, "limit", "revoke")
