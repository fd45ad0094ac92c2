"""Small programs that other people's agents run. Each is one file without dependencies, to be copied anywhere."""

from __future__ import annotations
