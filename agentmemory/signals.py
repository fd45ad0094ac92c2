"""What other apps may react to, each sent within the transaction of what it tells."""

from __future__ import annotations

from django.dispatch import Signal

turn_completed = Signal()
"""How far a session may be distilled has changed: a turn ended, a message was delivered, a tail was finished.

Sent with `session` (locked by the sender).
"""

messages_gone = Signal()
"""Messages were retracted, superseded or removed. Sent with `session`, `uids` and `reason`, before rows are removed."""

messages_returned = Signal()
"""Superseded messages stand again: what had replaced them was removed. Sent with `session` (locked) and `uids`."""

session_created = Signal()
"""A session was made. Sent with `session` (locked)."""

session_leaving = Signal()
"""A session is about to be deleted with all that hangs on it. Sent with `session` (locked)."""

unguarded_write = Signal()
"""Somebody appends to a session, rewinds or deletes it without proof of running it. Sent with `session` (locked).

A receiver that raises prevents it: while somebody runs a session, nobody else writes there (S1).
"""

messages_appended = Signal()
"""Messages were written. Sent with `session` (locked), `messages` (the new rows, in order) and the writer's `guard`."""

messages_changed = Signal()
"""Messages were changed in place or removed. Sent with `session` (locked) and `changes`, a list of JSON objects."""

turn_ended = Signal()
"""A turn turned out to be ended. Sent with `session` (locked) and `seqs`, the numbers of its last messages.

Not sent for messages that end their turn by what they are: `messages_appended` tells those.
"""

sources_left = Signal()
"""Memories rest on less than before: a merge was undone. Sent with `memory_ids` (locked) and `reason`."""

memories_erased = Signal()
"""Memories are erased for good, in a transaction marked as a purge. Sent with `memory_ids` and `counts` before it.

Each app empties what it keeps of their content, and adds to `counts` how many rows of which table that were.
"""

messages_erased = Signal()
"""Messages are erased for good, in a transaction marked as a purge, before they are removed.

Sent with `session` (locked), `uids`, `seqs`, `whole` (whether the session goes too) and `counts`, as above. A receiver
may return ids of memories that have words of them in their context.
"""

passes_erased = Signal()
"""What single attempts kept is erased for good. Sent with `pass_ids` and `counts`, as above."""

inputs_erased = Signal()
"""Inputs, and the messages that they became, are erased for good. Sent with `input_ids` and `counts`, as above.

A receiver returns the ids of their spaces.
"""

agent_leaving = Signal()
"""An agent is about to be deleted. Sent with `agent`, `heir` (the agent that gets what it had, or None) and `counts`.

With an heir, each app gives over what hangs on the agent; without one, it erases what is left of it.
"""
