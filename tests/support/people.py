"""Those who look at the console, each in a browser of their own."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def operator(db: None) -> Client:
    """Olga, who may do everything."""
    return signed_in(User.objects.create_superuser("olga"))


@pytest.fixture
def viewer(db: None) -> Client:
    """Vic, who may look, and not at what is private."""
    user = User.objects.create_user("vic", is_staff=True)
    user.groups.add(Group.objects.get(name="Viewers"))
    return signed_in(user)
