"""Signatures as Standard Webhooks has them: whoever shares the secret can tell that a call came from here, and when."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from django.utils.crypto import salted_hmac

_PURPOSE = "agentmemory.webhook"


def new_salt() -> str:
    """What a new secret is made from, with the installation's own key."""
    return secrets.token_urlsafe(32)


def secret(salt: str) -> str:
    """The secret that a receiver keeps. It is made again whenever it is needed: the database alone does not tell it."""
    return f"whsec_{base64.b64encode(_key(salt)).decode()}"


def headers(*, message: str, at: int, body: bytes, salts: Sequence[str]) -> dict[str, str]:
    """The three headers of a call. `at` is in seconds since 1970; one signature for each secret that counts now."""
    signed = b".".join([message.encode(), str(at).encode(), body])
    return {
        "webhook-id": message,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(_signature(signed, salt) for salt in salts),
    }


def _signature(signed: bytes, salt: str) -> str:
    return f"v1,{base64.b64encode(hmac.new(_key(salt), signed, hashlib.sha256).digest()).decode()}"


def _key(salt: str) -> bytes:
    return salted_hmac(_PURPOSE, salt, algorithm="sha256").digest()
