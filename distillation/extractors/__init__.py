"""What turns a window into an answer. Each gives the same JSON text, so that there is one parser for all."""

from __future__ import annotations
