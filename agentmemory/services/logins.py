"""How often one may try to sign in. A try is counted before its password is looked at: many at once gain nothing.

Counted are an account from an address, an address whatever the account, and an account wherever from. The second and
the third allow more, so that one who guesses shuts out neither his neighbours nor the account's holder elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import math
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest, Now

from agentmemory.errors import TooManyTries
from agentmemory.models import LoginTries
from agentmemory.services import records

logger = logging.getLogger(__name__)

TIMES = {LoginTries.Kind.BOTH: 1, LoginTries.Kind.ADDRESS: 5, LoginTries.Kind.ACCOUNT: 10}
"""How many times `AGENTMEMORY_LOGIN_TRIES` each kind allows."""

# Always in the same order, so that two that try at once do not wait for each other in a circle.
_COUNT = """
INSERT INTO agentmemory_logintries AS kept (kind, subject, tries, since)
VALUES ('account', %(account)s, 1, clock_timestamp()), ('address', %(address)s, 1, clock_timestamp()),
    ('both', %(both)s, 1, clock_timestamp())
ON CONFLICT (kind, subject) DO UPDATE SET
    tries = CASE WHEN kept.since < clock_timestamp() - %(window)s THEN 1 ELSE kept.tries + 1 END,
    since = CASE WHEN kept.since < clock_timestamp() - %(window)s THEN clock_timestamp() ELSE kept.since END
RETURNING kind, tries, extract(epoch FROM since + %(window)s - clock_timestamp())
"""


def begin(account: str, address: str) -> None:
    """Count one try. Raises `TooManyTries`, which says nothing of whether there is such an account."""
    with connection.cursor() as cursor:
        values: dict[str, Any] = {**_subjects(account, address), "window": window()}
        cursor.execute(_COUNT, values)
        over = [left for kind, tries, left in cursor.fetchall() if tries > allowed(LoginTries.Kind(kind))]
    if over:
        logger.warning("a sign-in was refused", extra={"action": "login.refused", "address": address})
        raise TooManyTries(max(1, math.ceil(max(over))))


def succeeded(account: str, address: str) -> None:
    """Take a try back that was none. Others from the address, and to the account from elsewhere, still count."""
    subjects = _subjects(account, address)
    LoginTries.objects.filter(kind=LoginTries.Kind.BOTH, subject=subjects["both"]).delete()
    for kind in (LoginTries.Kind.ACCOUNT, LoginTries.Kind.ADDRESS):
        row = LoginTries.objects.filter(kind=kind, subject=subjects[kind.value])
        row.update(tries=Greatest(F("tries") - 1, 0))


def failed(account: str, address: str) -> None:
    """Tell the log of a try that failed. What was typed is not told: it may be a password."""
    logger.warning("a sign-in failed", extra={"action": "login.failed", "address": address})


def counting() -> QuerySet[LoginTries]:
    """Tries that still count."""
    return LoginTries.objects.filter(since__gte=Now() - window())


def of(account: str) -> QuerySet[LoginTries]:
    """Tries that still count against an account, from wherever."""
    name = _name(account)
    return counting().filter(Q(subject=name) | Q(subject__startswith=f"{name} from "))


def allowed(kind: LoginTries.Kind) -> int:
    """Tries that a subject of this kind has."""
    return int(settings.AGENTMEMORY_LOGIN_TRIES * TIMES[kind])


def window() -> timedelta:
    """How long a try counts, from the first one on."""
    return timedelta(seconds=settings.AGENTMEMORY_LOGIN_WINDOW)


def clear(row: LoginTries, *, who: str, reason: str) -> None:
    """Forget tries, so that the next may be made at once. On record with who said so and why."""

    def run() -> None:
        LoginTries.objects.filter(pk=row.pk).delete()

    records.acted("clear sign-ins", run, who=who, target=row, reason=reason, space=None)


def forget_old() -> int:
    """Delete what does not count any more. Returns how many rows it was."""
    return LoginTries.objects.filter(since__lt=Now() - window()).delete()[0]


def _subjects(account: str, address: str) -> dict[str, str]:
    name, place = _name(account), _place(address)
    return {"account": name, "address": place, "both": f"{name} from {place}"}


def _name(account: str) -> str:
    name = account.strip()[:150]
    if get_user_model()._default_manager.filter(username=name).exists():
        return name
    return "unknown " + hmac.new(settings.SECRET_KEY.encode(), name.encode(), hashlib.sha256).hexdigest()[:16]


def _place(address: str) -> str:
    """The address; of version 6 its network, since whoever has one address there has them all."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return "nowhere"
    if isinstance(known, ipaddress.IPv6Address):
        return str(known.ipv4_mapped or ipaddress.ip_network((known, 64), strict=False))
    return str(known)
