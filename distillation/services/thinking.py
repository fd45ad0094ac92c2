"""The model of an agent, as runs ask it: by the rules, the pauses and the budget of distillation, and put on record.

Provider and model are those that distil the agent's sessions (D17), resolved anew for each call.
"""

from __future__ import annotations

import threading

from django.db import connection
from django.utils import timezone

from agentmemory.errors import AgentMemoryError
from agentmemory.models import Agent, Provider, Session
from agentmemory.services import redaction
from distillation.services import failures, gates, resolution
from sessions_exec.llm import streaming
from sessions_exec.llm.messages import (
    CallStopped,
    Conversation,
    ConversationReply,
    Endpoint,
    FailureKind,
    ModelCallFailed,
)
from sessions_exec.llm.streaming import OnText
from sessions_exec.models import ModelCall
from sessions_exec.runner import offline

ERROR_CHARS = 4_000
STOPPED = "stopped"


class AgentModel:
    """Asks for one session. It is a `sessions_exec.runner.model.Model`."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def closed(self) -> str:
        agent = self._agent()
        resolved = resolution.resolve(agent)
        if line := gates.worker_gate(agent, agent.space):
            return line
        if resolved.provider.kind == Provider.Kind.ACP:
            return f"provider {resolved.provider} cannot be asked from here"
        return gates.model_gate(agent.space, resolved, now=timezone.now())

    def ask(
        self, conversation: Conversation, *, purpose: str, epoch: int, on_text: OnText, stop: threading.Event
    ) -> ConversationReply:
        resolved = resolution.resolve(self._agent())
        provider = resolved.provider
        if not gates.probe(provider, now=timezone.now()):
            raise ModelCallFailed(kind=FailureKind.OVERLOADED, message=f"provider {provider} is being tried by another")
        endpoint = _endpoint(provider)
        row = self._booked(resolved, purpose=purpose, epoch=epoch)
        heard = streaming.Heard(model=resolved.model, on_text=on_text)
        try:
            reply = _call(endpoint, conversation, heard, stop)
        except ModelCallFailed as failure:
            self._failed(row, failure)
            raise
        except CallStopped as stopped:
            _close(row, stopped, failure=STOPPED)
            gates.still_paused(provider, now=timezone.now())
            raise
        except BaseException:
            # The process is about to end: what was told of its use by now is on record.
            _close(row, CallStopped(**heard.so_far()), failure=STOPPED)
            raise
        _close(row, reply)
        gates.resume(provider)
        return reply

    def _agent(self) -> Agent:
        """As it is now (D16)."""
        return Agent.objects.select_related("space", "provider").get(pk=self.session.agent_id)

    def _booked(self, resolved: resolution.Resolution, *, purpose: str, epoch: int) -> ModelCall:
        """The call on record, before it is made: one that never comes back is known, too."""
        return ModelCall.objects.create(
            space_id=self.session.space_id,
            agent_id=self.session.agent_id,
            session=self.session,
            epoch=epoch,
            purpose=purpose,
            provider=resolved.provider,
            provider_name=resolved.provider.name,
            model=resolved.model,
        )

    def _failed(self, row: ModelCall, failure: ModelCallFailed) -> None:
        _close(row, failure, failure=failure.kind.value, error=failure.message)
        if row.provider is None:
            return
        if failure.provider_wide:
            row.provider.refresh_from_db(fields=["failures"])
            gates.pause(row.provider, failure, now=timezone.now())
        else:
            gates.still_paused(row.provider, now=timezone.now())


def _endpoint(provider: Provider) -> Endpoint | None:
    try:
        return resolution.endpoint(provider)
    except AgentMemoryError as error:
        raise ModelCallFailed(kind=FailureKind.INVALID_REQUEST, message=str(error)) from error


def _call(
    endpoint: Endpoint | None, conversation: Conversation, heard: streaming.Heard, stop: threading.Event
) -> ConversationReply:
    """The paid call. No transaction is open, and no connection is held, while the network is waited for (A2)."""
    if endpoint is None:
        reply = offline.reply(conversation)
        heard.on_text(reply.text)
        return reply
    if not connection.in_atomic_block:
        connection.close()
    return streaming.converse(endpoint, conversation=conversation, heard=heard, stop=stop)


def _close(
    row: ModelCall, used: ConversationReply | ModelCallFailed | CallStopped, *, failure: str = "", error: str = ""
) -> None:
    """Put on record what a call used, and what became of it (D25)."""
    row.input_tokens, row.output_tokens = used.input_tokens, used.output_tokens
    row.cost = failures.cost(row.provider, row.input_tokens, row.output_tokens)
    row.outcome = ModelCall.Outcome.FAILED if failure else ModelCall.Outcome.ANSWERED
    row.failure, row.error = failure, redaction.clean_text(error)[:ERROR_CHARS]
    row.finished_at = timezone.now()
    row.save(update_fields=["input_tokens", "output_tokens", "cost", "outcome", "failure", "error", "finished_at"])
