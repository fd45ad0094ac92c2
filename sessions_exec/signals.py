"""What a runner in this product reacts to, sent within the transaction of what it tells."""

from __future__ import annotations

from django.dispatch import Signal

session_wanted = Signal()
"""Inputs wait that somebody wants to be run now, in a session that nobody holds. Sent with `session_id`.

It is a hint and may come again: what is wanted stands in the inputs, and a sweep finds it (S6).
"""
