"""What is wrong with the database of an installation: whether it is reached, of which release, and how it fits here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models.functions import Length
from django.utils import timezone

from agentmemory.models import Message
from agentmemory.services import transcripts
from config import health, writing
from config.findings import Finding

ABOUT = "database"
OLDEST_SERVER = 150000
# Seconds by which clocks may differ; less is what a question takes.
CLOCKS_DIFFER = 5.0
# So many messages are enough to tell whose key they were kept under. One alone may have been changed since.
FEWEST, SAMPLE, LONGEST = 3, 20, 2_000

# What libpq and the server say, and what it comes to. The first that fits.
_REFUSALS = (
    (
        r"password authentication failed|no password supplied|role .* does not exist|no pg_hba.conf entry",
        "The server runs and does not let this user in: correct user and password in DATABASE_URL.",
    ),
    (
        r"database .* does not exist",
        "The server runs. Create the database there (`createdb`), or name another one in DATABASE_URL.",
    ),
    (r"permission denied", "Let the user of DATABASE_URL own its database."),
    (r"SSL|sslmode", "Correct `sslmode` in DATABASE_URL, or set SSL up in the server."),
    (
        r"refused|No such file|resolve host|timed? ?out|unreachable|No route",
        "Start the server, or correct its host and port in DATABASE_URL.",
    ),
)
_OTHERWISE = "Check DATABASE_URL, and whether the server runs."


def reached() -> Iterator[Finding]:
    """Which server it is, and whether it serves: without that nothing else can be looked at."""
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        number = int(cursor.fetchone()[0])
    where = "embedded" if settings.AGENTMEMORY_EMBEDDED else "by DATABASE_URL"
    line = f"PostgreSQL {number // 10000}.{number % 10000}, {where}"
    if number < OLDEST_SERVER:
        yield Finding(level="wrong", about=ABOUT, line=line, advice="Use PostgreSQL 15 or later.")
    else:
        yield Finding(level="ok", about=ABOUT, line=line)
    if unwritable := writing.obstacle():
        advice = f"{unwritable.advice[0].upper()}{unwritable.advice[1:]}."
        yield Finding(level="wrong", about=ABOUT, line=unwritable.line, advice=advice)
    yield from _migrations()


def refused(error: DatabaseError) -> Finding:
    """A database that does not answer, or broke off."""
    text = str(error).strip().partition("\n")[0]
    if "No space left" in text:
        advice = "Free space on its disk."
    elif settings.AGENTMEMORY_EMBEDDED:
        log = settings.AGENTMEMORY_DATA_DIR / "postgres" / "server.log"
        advice = f"Start again; if it stays so, see {log}."
    else:
        advice = next((words for pattern, words in _REFUSALS if re.search(pattern, text)), _OTHERWISE)
    return Finding(level="wrong", about=ABOUT, line=f"it does not answer: {text}", advice=advice)


def fits() -> Iterator[Finding]:
    """Whether this machine's clock and key are those that the database is used with."""
    yield from _clock()
    yield from _key()


def _migrations() -> Iterator[Finding]:
    missing, later = health.unapplied(), health.of_later_release()
    if missing:
        line = f"{len(missing)} are not applied, the first is {missing[0]}"
        yield Finding(level="wrong", about="migrations", line=line, advice="Run `python manage.py migrate`.")
    else:
        yield Finding(level="ok", about="migrations", line="all are applied")
    if later:
        line = f"{len(later)} are of a later release than this one, the first is {later[0]}"
        advice = "During an upgrade this is as it should be. Otherwise start that release: it knows what they are for."
        yield Finding(level="note", about="migrations", line=line, advice=advice)


def _clock() -> Iterator[Finding]:
    before = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        there = cursor.fetchone()[0]
    here = before + (timezone.now() - before) / 2
    ahead = (here - there).total_seconds()
    if abs(ahead) > CLOCKS_DIFFER:
        side = "ahead of" if ahead > 0 else "behind"
        line = f"this machine's is {abs(ahead):.0f} s {side} the database's"
        advice = "Let a time service set both: schedules, sign-ins and the times of webhooks go by this machine's."
        yield Finding(level="note", about="clock", line=line, advice=advice)


def _key() -> Iterator[Finding]:
    """Messages are known again by digests under the secret key, and tasks are signed with it (R2)."""
    recent = Message.objects.filter(redactions={}, retracted_at=None).annotate(length=Length("text")).order_by("-id")
    known = [
        transcripts.same_content(digest, content)
        for digest, content, length in recent.values_list("digest", "content", "length")[:SAMPLE]
        if length < LONGEST
    ]
    if len(known) >= FEWEST and not any(known):
        yield Finding(
            level="wrong",
            about="secret key",
            line="it is not the one that the newest messages were kept under: repeated calls are taken for conflicts",
            advice="Give SECRET_KEY the value that it had, the same for every process; without one in the environment "
            "it lies in the file secret_key of AGENTMEMORY_DATA_DIR.",
        )
