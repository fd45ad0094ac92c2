"""Clients for model providers: plain dataclasses in and out, no Django models.

Nothing is re-exported: a provider's SDK takes seconds to import, so each client imports its own when it is
called.
"""

from __future__ import annotations
