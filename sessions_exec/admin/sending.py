"""Sending an input from a session's page, and watching how it is answered."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.validators import RegexValidator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from agentmemory.console import links, permissions
from agentmemory.errors import AgentMemoryError
from agentmemory.models import Session
from agentmemory.services import naming
from sessions_exec.errors import Crowded, SessionsExecError
from sessions_exec.models import Execution, Input
from sessions_exec.services import events, operations, waiting

MOST_CHARS = 100_000
WATCH_SECONDS = 20.0
# After so many seconds it is asked again where too many wait already.
CROWDED_SECONDS = 5


class SendForm(forms.Form):
    """What to say, and when. The id comes with the form, so that one that is sent twice is one input."""

    uid = forms.CharField(widget=forms.HiddenInput, validators=[RegexValidator(r"\Aoperator-[0-9a-f-]{36}\Z")])
    prompt = forms.CharField(
        max_length=MOST_CHARS,
        label="Say something to the agent",
        widget=forms.Textarea(attrs={"rows": 3, "autocomplete": "off"}),
    )
    delivery = forms.ChoiceField(
        choices=[("steer", "at the next step of what is under way"), ("queue", "after what is under way")],
        label="When it is seen",
    )


def may_send(request: HttpRequest, session: Session) -> bool:
    """Whether this operator may send an input there: not to what is archived."""
    archived = session.agent.archived_at is not None or session.space.archived_at is not None
    return not archived and bool(request.user.has_perm("sessions_exec.add_input"))


def foot(request: HttpRequest, session: Session, execution: Execution | None) -> SafeString:
    """The box to send from, for who may; and a line that follows what happens, while something does."""
    form = SendForm(initial={"uid": f"operator-{uuid.uuid4()}", "delivery": "steer"})
    context = {
        "form": form if may_send(request, session) else None,
        "send": reverse("admin:sessions_exec_input_send", args=[session.pk]),
        "runs_here": session.agent.run_here,
        "agent": session.agent,
        **_watched(request, session, execution, after=events.newest(session=session)),
    }
    return SafeString(render_to_string("console/send.html", context, request=request))


@require_POST
def send(request: HttpRequest, session_id: int) -> HttpResponse:
    """Admit the input, and lead back to the end of the conversation."""
    if not request.user.has_perm("sessions_exec.add_input"):
        # Before anything is looked up: what is there and what is not are the same to who has no right.
        raise PermissionDenied
    session = _session(session_id)
    if not may_send(request, session):
        raise PermissionDenied
    end = f"{links.session(session.pk)}?at={max(1, session.last_seq)}"
    if wrong := _refused(request, session):
        # It is told above the conversation: the page is not to open below it.
        messages.error(request, wrong)
        return HttpResponseRedirect(end)
    return HttpResponseRedirect(f"{end}#send")


def _refused(request: HttpRequest, session: Session) -> str:
    """Admit the input, or tell why it is not admitted."""
    form = SendForm(request.POST)
    if not form.is_valid():
        return " ".join(f"{form[name].label}: {each}" for name, errors in form.errors.items() for each in errors)
    try:
        operations.send_input(session_id=session.pk, operator=request.user.get_username(), **form.cleaned_data)
    except (AgentMemoryError, SessionsExecError) as error:
        return str(error)
    return ""


@require_GET
def watch(request: HttpRequest, session_id: int) -> HttpResponse:
    """Wait for the next event of a session, and have the page look again. No connection is held meanwhile."""
    if not request.user.has_perms(["agentmemory.view_session", "sessions_exec.view_execution"]):
        raise PermissionDenied
    session = _session(session_id)
    after = _number(request.GET.get("after"))
    crowded = False
    try:
        waiting.wait(session=session, after=after, seconds=WATCH_SECONDS)
    except Crowded:
        crowded = True
    newest = events.newest(session=session)
    execution = Execution.objects.filter(pk=session.pk).first()
    context = {**_watched(request, session, execution, after=newest), "delay": CROWDED_SECONDS if crowded else 0}
    answer = HttpResponse(render_to_string("console/watch.html", context, request=request))
    if newest > after:
        answer["HX-Trigger"] = "session-moved"
    return answer


def _watched(request: HttpRequest, session: Session, execution: Execution | None, *, after: int) -> dict[str, Any]:
    """What goes on, in one line, and where to wait for more; nothing to wait for while nothing goes on."""
    runs = execution is not None and bool(execution.holder)
    waits = Input.objects.pending().filter(session=session)[:1].exists()
    line = "Somebody is at work on it." if runs else ""
    if waits and not runs:
        private = permissions.reads_private(request)
        kept = naming.wait(execution.waits_for, private=private) if execution is not None else ""
        line = f"An input waits: {kept}." if kept else "An input waits for a runner."
    return {
        "goes_on": line,
        "watch": f"{reverse('admin:sessions_exec_input_watch', args=[session.pk])}?after={after}" if line else "",
        "again": f"{links.session(session.pk)}?at={max(1, session.last_seq)}#send",
    }


def _session(session_id: int) -> Session:
    session = Session.objects.select_related("agent", "space").filter(pk=session_id).first()
    if session is None:
        raise Http404
    return session


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else 0
