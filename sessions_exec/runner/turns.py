"""One turn of a run: steps of one model call each, the tools that they call, and an end that is always told.

Each step: the inputs that steer, then `unknown`, then the call, then what came of it together with `safe`, in one
transaction. Whatever dies in between, nothing is there by half, and a recovery finds what was dispatched (S7, S8).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import transaction

from agentmemory.callers import Caller
from agentmemory.models import Message, Session
from agentmemory.services import context, transcripts
from sessions_exec import faults
from sessions_exec.errors import SessionsExecError
from sessions_exec.llm import failures
from sessions_exec.llm.messages import CallStopped, Conversation, ConversationReply, FailureKind, ModelCallFailed
from sessions_exec.llm.streaming import OnText
from sessions_exec.marks import OWN
from sessions_exec.models import Execution, ModelCall
from sessions_exec.runner import compaction, showing, tools, words
from sessions_exec.runner.holding import Holding, Interrupted
from sessions_exec.runner.model import Model
from sessions_exec.services import executions, inbox, own_runs

Phase = Execution.Phase
Purpose = ModelCall.Purpose

MOST_STEPS = 16
"""Model calls of one turn that may call tools; one more has to answer without (A4)."""

MOST_ATTEMPTS = 3
"""Calls of one step, where the provider said each time that it did not take it."""

LONGEST_WAIT = 20.0
ANSWER_TOKENS = 8_192
# A step needs a little more than its call.
MARGIN = 5.0
ENDED, CALLED, STEERED = "ended", "called", "steered"
FULL = "model_context_window_exceeded"
NOT_TAKEN = frozenset({FailureKind.RATE_LIMITED, FailureKind.OVERLOADED})


class Closed(SessionsExecError):
    """The model may not be asked now; the line says why. The turn waits."""


class OutOfTime(SessionsExecError):
    """The next step could not end in the time that there is."""


class TurnFailed(SessionsExecError):
    """The turn cannot come to an answer. `subtype` names the kind of end."""

    def __init__(self, subtype: str, line: str) -> None:
        super().__init__(line)
        self.subtype = subtype


@dataclass(kw_only=True)
class Turns:
    """The turns of one execution. Its steps are numbered, so that what it writes has names of its own."""

    session: Session
    model: Model
    holding: Holding
    on_text: OnText
    deadline: float | None
    step: int = field(default=0, init=False)

    def run(self) -> None:
        """Bring the open turn to its end. Raises `LeaseLost`, `Closed`, `OutOfTime`, and `Interrupted` once it is told.

        Every other way in which it can go wrong ends the turn as failed, with the reason in the transcript.
        """
        left = MOST_STEPS
        try:
            while True:
                self._may_go_on()
                self.step += 1
                after = self._take(self._asked(may_call=left > 0), may_call=left > 0)
                if after == ENDED:
                    return
                # Whoever says something new may have all of it worked on.
                left = MOST_STEPS if after == STEERED else left - 1
        except TurnFailed as failed:
            self._end(failed.subtype, str(failed))
        except Interrupted:
            self._end("error_interrupted", words.INTERRUPTED)
            raise

    def promote(self, boundary: str) -> bool:
        """Whether inputs became messages at a boundary, so that a turn is open."""
        with transaction.atomic():
            promoted = bool(inbox.promote(session=self.session, guard=self.holding.held, boundary=boundary))
            if promoted:
                own_runs.turn_is_open(self.session, epoch=self.holding.epoch, is_open=True)
        return promoted

    # --- asking ---

    def _may_go_on(self) -> None:
        self.holding.check()
        needed = settings.AGENTMEMORY_CALL_TIMEOUT + MARGIN
        if self.deadline is not None and time.monotonic() + needed > self.deadline:
            raise OutOfTime("the time of the task is over")
        if line := self.model.closed():
            raise Closed(line)

    def _asked(self, *, may_call: bool) -> ConversationReply:
        """The model's answer to what stands. After an overflow it is made shorter once, and no second time (S11)."""
        conversation = self._conversation(may_call=may_call)
        if showing.tokens(conversation.system, conversation.messages, conversation.tools) > compaction.room():
            self._compact(tighter=False)
            conversation = self._conversation(may_call=may_call)
        try:
            return self._answer(conversation)
        except Overflown:
            self._compact(tighter=True)
        try:
            return self._answer(self._conversation(may_call=may_call))
        except Overflown as again:
            raise TurnFailed("error_too_long", words.TOO_LONG) from again

    def _conversation(self, *, may_call: bool) -> Conversation:
        agent, shown = self.session.agent, showing.load(self.session)
        known = context.build(caller=self._caller(), q=showing.newest_prompt(shown)[:2_000] or None)
        parts = (agent.instructions.strip() or words.NOBODY, words.ABOUT, known.text)
        return Conversation(
            system="\n\n".join(part for part in parts if part),
            messages=showing.as_asked(shown),
            tools=tools.definitions(),
            may_call=may_call,
            max_tokens=ANSWER_TOKENS,
        )

    def _answer(self, conversation: Conversation) -> ConversationReply:
        """One call, and another only where the provider said that it did not take it. Raises `Overflown`."""
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                reply = self._call(conversation, Purpose.ANSWER)
            except ModelCallFailed as failure:
                self._after(failure, attempt)
                continue
            if reply.stop_reason == FULL:
                raise Overflown
            return reply
        raise AssertionError("the last attempt ends in an answer or an error")

    def _call(self, conversation: Conversation, purpose: str) -> ConversationReply:
        """One request. What came of it is known when this ends, whichever way (S6)."""
        self.holding.move(Phase.UNKNOWN)
        faults.reach("run.call.before")
        try:
            reply = self.model.ask(
                conversation,
                purpose=purpose,
                epoch=self.holding.epoch,
                on_text=self.on_text if purpose == Purpose.ANSWER else _unheard,
                stop=self.holding.halt,
            )
        except CallStopped as stopped:
            self._keep_what_was_said(stopped.text if purpose == Purpose.ANSWER else "")
            raise
        faults.reach("run.call.after")
        return reply

    def _after(self, failure: ModelCallFailed, attempt: int) -> None:
        """Wait for the next attempt, or raise what follows from a call that failed."""
        self.holding.move(Phase.SAFE)
        if failures.speaks_of_length(failure):
            raise Overflown from failure
        if line := self.model.closed():
            raise Closed(line) from failure
        wait = max(failure.retry_after or 0.0, float(2 ** (attempt - 1)))
        if failure.kind not in NOT_TAKEN or attempt == MOST_ATTEMPTS or wait > LONGEST_WAIT:
            line = f"{failure.kind}: {failure.message}"
            raise TurnFailed("error_model", words.CALL_FAILED.format(line[:1_000])) from failure
        self.holding.halt.wait(wait)
        self._may_go_on()

    def _compact(self, *, tighter: bool) -> None:
        """Sum up what is older, and keep the summary as a boundary (S11)."""
        shown = showing.load(self.session)
        try:
            at = compaction.tail_from(shown, tighter=tighter)
            reply = self._call(compaction.question(shown, at), Purpose.SUMMARY)
            boundary = compaction.boundary(reply, shown, at, uid=self._uid("summary"))
        except compaction.CannotCompact as error:
            raise TurnFailed("error_too_long", words.TOO_LONG) from error
        except ModelCallFailed as failure:
            line = f"{failure.kind}: {failure.message}"
            raise TurnFailed("error_too_long", f"{words.NO_SUMMARY} {line[:1_000]}") from failure
        self._write([boundary])
        self.step += 1

    # --- what came of it ---

    def _take(self, reply: ConversationReply, *, may_call: bool) -> str:
        """Record an answer and make its calls. Returns how the turn stands after it."""
        calls = [block for block in reply.blocks if block["type"] == "tool_use"]
        if calls and may_call and reply.stop_reason == "tool_use":
            self._write([self._said(reply.blocks)])
            self._use(calls)
            return STEERED if self.promote("step") else CALLED
        # Calls of an answer that was cut are not whole.
        blocks = [block for block in reply.blocks if block["type"] == "text"]
        wrong = _what_is_wrong(reply, blocks)
        return self._finish(blocks, wrong)

    def _finish(self, blocks: Sequence[dict[str, Any]], wrong: tuple[str, str] | None) -> str:
        """The answer and the end of the turn, unless somebody steers by now: then it goes on."""
        said = [self._said(blocks, is_error=wrong is not None)] if blocks else []
        with transaction.atomic():
            self._write(said)
            if wrong is None and self.promote("step"):
                return STEERED
            self._end(*(wrong or ("success", "")))
        return ENDED

    def _use(self, calls: list[dict[str, Any]]) -> None:
        """Make the calls. What they do and what they answered is one transaction: both are there, or neither."""
        self.holding.move(Phase.UNKNOWN)
        faults.reach("run.tools.before")
        with transaction.atomic():
            self.holding.held(transcripts.lock(self.session.pk))
            results = tools.results(calls, caller=self._caller())
            answered = transcripts.NewMessage(
                uid=self._uid("results"), type=Message.Type.USER, content=list(results), subtype="tool_result"
            )
            self._write([answered])
            faults.reach("run.tools.before_commit")
        faults.reach("run.tools.after")

    def _keep_what_was_said(self, text: str) -> None:
        """Keep the part of an answer that was broken off by an interruption; then say why it ended."""
        try:
            self.holding.check()
        except Interrupted:
            blocks = [{"type": "text", "text": text}] if text.strip() else []
            if blocks:
                self._write([self._said(blocks, is_error=True, subtype="interrupted")])
            raise

    def _end(self, subtype: str, line: str) -> None:
        """End the turn, if it is open: a turn that is told to have ended is never ended twice."""
        result = transcripts.NewMessage(
            uid=self._uid("result"),
            type=Message.Type.RESULT,
            content=line,
            subtype=subtype,
            is_error=subtype != "success",
        )
        with transaction.atomic():
            session = transcripts.lock(self.session.pk)
            if session.terminal_seq < session.last_seq:
                self._write([result])
            own_runs.turn_is_open(session, epoch=self.holding.epoch, is_open=False)

    def _write(self, messages: Sequence[transcripts.NewMessage]) -> None:
        """Append, and be `safe`, at once. Raises `LeaseLost`; then nothing is written."""
        with transaction.atomic():
            if messages:
                transcripts.append(session=self.session, messages=messages, guard=self.holding.held)
            executions.renew(session=self.session, held=self.holding.held, phase=Phase.SAFE)

    def _said(
        self, blocks: Sequence[dict[str, Any]], *, is_error: bool = False, subtype: str = ""
    ) -> transcripts.NewMessage:
        return transcripts.NewMessage(
            uid=self._uid("answer"),
            type=Message.Type.ASSISTANT,
            content=list(blocks),
            is_error=is_error,
            subtype=subtype,
        )

    def _uid(self, what: str) -> str:
        """A name that nothing else in the session has: epochs are never used again (S2)."""
        return f"{OWN}{self.holding.epoch}.{self.step}.{what}"

    def _caller(self) -> Caller:
        return Caller(space=self.session.space, agent=self.session.agent)


class Overflown(SessionsExecError):
    """The provider said that what it was shown is longer than the model takes."""


def _what_is_wrong(reply: ConversationReply, blocks: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    """Why an answer is none, as the end of its turn tells it."""
    if reply.stop_reason == "refusal":
        return "error_refusal", words.REFUSED
    if reply.stop_reason == "max_tokens":
        return "error_cut", words.CUT
    if (reply.stop_reason not in compaction.WHOLE and reply.stop_reason != "tool_use") or not blocks:
        return "error_no_answer", words.NO_ANSWER.format(reply.stop_reason)
    return None


def _unheard(text: str) -> None:
    """A summary is not said to anybody."""
