"""The skeleton stands: it migrates, answers, and has no migration missing."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client


@pytest.mark.django_db
def test_the_database_is_postgresql_and_migrated() -> None:
    assert connection.vendor == "postgresql"
    assert "django_q_schedule" in connection.introspection.table_names()


@pytest.mark.django_db
def test_the_admin_asks_for_a_login_over_plain_http_on_this_machine() -> None:
    assert Client().get("/admin/login/").status_code == 200


def test_the_system_checks_find_nothing() -> None:
    call_command("check")
