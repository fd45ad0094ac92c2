"""The form of the sign-in: each try counts before its password is looked at."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from unfold.forms import AuthenticationForm

from agentmemory.console import figures
from agentmemory.errors import TooManyTries
from agentmemory.services import logins


class LoginForm(AuthenticationForm):  # type: ignore[misc]
    def clean(self) -> Any:
        account, address = self.cleaned_data.get("username"), self.request.META.get("REMOTE_ADDR") or ""
        if not account or not self.cleaned_data.get("password"):
            return super().clean()
        try:
            logins.begin(account, address)
        except TooManyTries as error:
            wait = figures.duration(error.retry_after)
            raise ValidationError(f"Too many tries to sign in. Try again in {wait}.", code="too-many") from error
        try:
            values = super().clean()
        except ValidationError:
            logins.failed(account, address)
            raise
        logins.succeeded(account, address)
        return values
