#!/usr/bin/env python
"""The command line of Agent Memory."""

from __future__ import annotations

import sys

from config import entry

if __name__ == "__main__":
    entry.command_line(sys.argv)
