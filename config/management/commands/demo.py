from __future__ import annotations

import time

from config import demo
from config.management.commands import up

# A model that does not answer is no reason to keep the operator waiting for the way in.
LONGEST_WAIT = 60.0


class Command(up.Command):
    help = "Like `up`, with a demonstration space, its agents, an operator and distilled sample transcripts."

    access: demo.Access
    waiting_until = 0.0

    def prepare(self) -> None:
        self.access = demo.prepare()
        self.waiting_until = time.monotonic() + LONGEST_WAIT

    def ready(self, address: str) -> bool:
        if not demo.is_distilled():
            if time.monotonic() < self.waiting_until:
                return False
            self.stdout.write("The samples are not distilled yet; `manage.py doctor` and /admin/ say why.")
        self.say("Address", address)
        self.say("Login", self.access.login)
        self.say("Password", self.access.password)
        self.say("Token", self.access.token)
        return True
