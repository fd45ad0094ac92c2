"""Tries to sign in, counted so that guessing has an end."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class LoginTries(models.Model):
    """Tries to sign in to an account, from an address, or to the one from the other, since the first that still counts.

    What was typed for an account that does not exist may be a password: only its digest stands here.
    """

    class Kind(models.TextChoices):
        ACCOUNT = "account"
        ADDRESS = "address"
        BOTH = "both", "account from an address"

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=10, choices=Kind)
    subject = models.CharField(max_length=300)
    tries = models.PositiveBigIntegerField()
    since = models.DateTimeField(db_default=Now(), db_index=True)

    class Meta:
        verbose_name_plural = "sign-ins"
        constraints = [
            models.UniqueConstraint(fields=["kind", "subject"], name="login_tries_unique"),
            models.CheckConstraint(
                condition=models.Q(kind__in=["account", "address", "both"]), name="login_tries_kind_known"
            ),
        ]

    def __str__(self) -> str:
        return self.subject
