"""How long a session of the console lasts: so long at most, and less when nobody uses it."""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin

BEGAN, SEEN = "began", "seen"
# Each look is not a write.
NOTED_EVERY = 60.0


@receiver(user_logged_in)
def begin(sender: type[AbstractBaseUser], request: HttpRequest, **_: Any) -> None:
    """Note when a session began: at the sign-in, which has given it a new key."""
    request.session[BEGAN] = request.session[SEEN] = time.time()


class SessionLimitMiddleware(MiddlewareMixin):
    """Ends a session of the console that is too old, or that nobody has used for too long."""

    def process_request(self, request: HttpRequest) -> None:
        # Nothing else looks at a cookie, and asking would cost a query.
        if not request.path_info.startswith("/admin/") or not request.user.is_authenticated:
            return
        now = time.time()
        began, seen = request.session.get(BEGAN, 0.0), request.session.get(SEEN, 0.0)
        if now - began > settings.SESSION_COOKIE_AGE or now - seen > settings.AGENTMEMORY_SESSION_IDLE:
            logout(request)
        elif now - seen > NOTED_EVERY:
            request.session[SEEN] = now
