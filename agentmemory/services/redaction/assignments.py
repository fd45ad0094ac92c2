"""Secrets told by their name: `password = …`, `"api_key": "…"`, `<token>…</token>`, "the password is …".

The name may be the end of a longer one (`spring.datasource.password`, `stripeSecretKey`, `X_API_KEY`), in quotes,
with escapes before them, or in markdown. The value then has to look like a secret: see `values`.
"""

from __future__ import annotations

import re

from agentmemory.services.redaction import values
from agentmemory.services.redaction.rules import STOPS, Judge, NamedRule, lower

_PASSWORD_NAMES = (
    "password", "passwd", "passphrase", "passcode", "passwort", "kennwort", "contraseña", "contrasena", "senha",
    "mot de passe", "пароль", "pwd", "密码", "密碼", "口令", "パスワード", "비밀번호",
)  # fmt: skip

# A bare `key` is a word like any other; a page's token is no secret.
_BEFORE_KEY = re.compile(
    r"(?:api|secret|access|account|private|signing|encryption|auth|master|service|storage|shared|deploy|app|jwt|hmac)"
    r"[ _.-]?(?:access[ _.-]?)?$"
)
_BEFORE_TOKEN = re.compile(
    r"(?<!page)(?<!page[_-])(?<!next)(?<!next[_-])(?<!sync[_-])(?<!continuation)(?<!continuation[_-])$"
)
_SUFFIX = r"(?i:[_-]?key[_-]?base)?(?:[_.-]?(?i:value|prod|production|dev|test|live|staging|old|new|v?\d{1,2}))?"

_STEM = re.compile(rf"(.*?){_SUFFIX}$", re.DOTALL)

_AFTER_NAME = r"[\\\"'`*\])]{0,8}[ \t]{0,8}"
_ANNOTATION = r":[ ]?[A-Za-z_][\w.\[\]| ]{0,40}="
_SIGN = rf"(?:{_ANNOTATION}|[-=]>|:=|[=:\uff1a\uff1d|]{{1,2}}|>(?=[^<\s]{{4,256}}</)|\((?=[\\\"'])|是|为|は)"
_BEFORE_VALUE = r"[ \t]{0,8}(?:\*\*)?[ \t]{0,4}(?:[bruf@]{1,2}(?=[\"']))?(?:\\{0,8}[\"'`])?"


def _quoted(mark: str) -> str:
    """Up to the same mark, or to the backslash that escapes it."""
    return rf"(?<={mark})(?:[^{mark}\s\\]|\\(?![\"'`\\]))+"


_VALUE = (
    rf"(?P<secret>{_quoted(chr(34))}|{_quoted(chr(39))}|{_quoted('`')}|(?<![\"'`])[^\s\"'`,;<>(){{}}\[\]|&\\{STOPS}]++)"
)
_ASSIGNED = rf"{_AFTER_NAME}{_SIGN}{_BEFORE_VALUE}{_VALUE}"
_SAID = r"[ \t]{1,3}(?:is|was|to|are|ist|est|es)[ \t]{1,3}(?:now[ \t])?(?:\*\*)?"
_SAID_QUOTED = rf"{_SAID}\\{{0,8}}[\"'`]{_VALUE}"
_SPOKEN = rf"(?P<secret>[^\s\"'`<>\\{STOPS}]{{5,255}}[^\s\"'`<>\\.,;:!?)*{STOPS}])"


def _is_code(match: re.Match[str]) -> bool:
    """`token = make_token2(…)`: a call or an index, not a value."""
    return match.string[match.end() : match.end() + 1] in ("(", "[")


def _is_password(match: re.Match[str]) -> bool:
    return not _is_code(match) and values.like_password(match.group("secret"))


def _is_key(match: re.Match[str]) -> bool:
    return not _is_code(match) and values.like_key(match.group("secret"))


def _is_said(match: re.Match[str]) -> bool:
    """In a sentence, without quotes: `hunter2` yes, `base64-encoded` no."""
    value = match.group("secret")
    plain = values.like_password(value) and not re.search(r"[-_./:]", value) and any(c.isdigit() for c in value)
    return plain or values.like_random(value)


def _is_said_key(match: re.Match[str]) -> bool:
    return not re.search(r"[\[(]", match.group("secret")) and values.like_random(match.group("secret"))


def _rules(
    kind: str, names: tuple[str, ...], assigned: Judge, said: Judge, before: re.Pattern[str] | None
) -> list[NamedRule]:
    forms = ((_ASSIGNED, assigned), (_SAID_QUOTED, assigned), (f"{_SAID}{_SPOKEN}", said))
    return [NamedRule(kind, names, re.compile(_SUFFIX + form, re.ASCII), judge, before) for form, judge in forms]


RULES: tuple[NamedRule, ...] = (
    *_rules("password", _PASSWORD_NAMES, _is_password, _is_said, None),
    *_rules("secret", ("key",), _is_key, _is_said_key, _BEFORE_KEY),
    *_rules("secret", ("token",), _is_key, _is_said_key, _BEFORE_TOKEN),
    *_rules("secret", ("secret", "credential", "credentials", "密钥", "密鑰"), _is_key, _is_said_key, None),
)


def kind_by_name(name: str, value: str) -> str | None:
    """The kind of secret that `value` is because of the `name` it stands under in a JSON object, or None."""
    kind = _kind_of_name(lower(name))
    if kind is None:
        return None
    if kind == "authorization":
        words = value.split()
        return kind if words and values.like_credential(words[-1]) else None
    if any(c.isspace() for c in value):
        return None
    return kind if (values.like_password if kind == "password" else values.like_key)(value) else None


def _kind_of_name(name: str) -> str | None:
    if name.endswith("authorization"):
        return "authorization"
    stem = _STEM.match(name)
    for one in RULES if stem else ():
        for end in one.names:
            head = stem.group(1).removesuffix(end) if stem and stem.group(1).endswith(end) else None
            if head is not None and (one.before is None or one.before.search(head)):
                return one.kind
    return None
