from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from config import doctor


class Command(BaseCommand):
    help = "Checks the installation, and says what to do about each thing that is wrong. Exit status 1 if something is."
    # It reports them itself, with everything else.
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        findings = doctor.examine()
        style = {"ok": self.style.SUCCESS, "note": self.style.WARNING, "wrong": self.style.ERROR}
        for finding in findings:
            self.stdout.write(f"{style[finding.level](f'{finding.level:5}')}  {finding.about}: {finding.line}")
            if finding.advice:
                self.stdout.write(f"       {finding.advice}")
        if any(finding.level == "wrong" for finding in findings):
            sys.exit(1)
