"""What other apps may react to, each sent within the transaction of what it tells."""

from __future__ import annotations

from django.dispatch import Signal

turn_completed = Signal()
"""How far a session may be distilled has changed: a turn ended, a message was delivered, a tail was finished.

Sent with `session` (locked by the sender).
"""

messages_gone = Signal()
"""Messages were retracted, superseded or removed. Sent with `session`, `uids` and `reason`, before rows are removed."""
