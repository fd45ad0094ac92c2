"""Secrets told by where they stand: in key files, addresses, headers and command lines."""

from __future__ import annotations

import re

from agentmemory.services.redaction import values
from agentmemory.services.redaction.rules import STOPS, Finder, NamedRule, rule

# Up to the matching end, never across the next beginning: each character is looked at once, however many
# beginnings without an end a hostile text holds.
_ARMOUR = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
# Groups repeat without possession: Python before 3.11.5 gives up their matches too early.
_BODY = r"(?P<body>(?:[^-]|-(?!----(?:BEGIN|END) ))*)"
_BLANK = r"(?:\s|\\+[nrt])"
_LINES = r"(?:[A-Za-z0-9+/=]{16,}+" + _BLANK + r"*)+(?:[A-Za-z0-9+/=]{1,15}+(?=\s{0,4}\Z|\\*[\"']))?"

_TEXT = rf"[^\s\"'`<>\\{STOPS}]"
_VALUE = rf"[^\s\"'`<>\\,;)}}\]{STOPS}]"
_OPEN = r"[\\\"'`*\[({]{0,6}"
_CLOSE = r"[\\\"'`*\])]{0,6}"


def _has_key_body(match: re.Match[str]) -> bool:
    """A sentence about the marks, or dots between them, is no key."""
    body = re.sub(r"\\+[nrt]", "\n", match.group("body")).strip(" \t\r\n\"'`+\\,")
    if re.search(r"[A-Za-z0-9+/=]{20,}", body):
        return True
    if "\n" not in body and " " in match.group("body"):
        return any(len(word) >= 6 and not word.islower() for word in body.split())
    return bool(body) and not re.fullmatch(r"[.…*xX<>\s]*|\[redacted:.*", body)


def _is_password(match: re.Match[str]) -> bool:
    """In a place for passwords `secret` is one, however bad; only `user:password@host` is how examples are written."""
    password = match.group("secret")
    return password.lower() in ("secret", "token", "key") or not values.is_placeholder(password)


def _is_key(match: re.Match[str]) -> bool:
    return values.like_key(match.group("secret"))


def _is_long_key(match: re.Match[str]) -> bool:
    return len(match.group("secret")) >= 16 and _is_key(match)


def _is_given_password(match: re.Match[str]) -> bool:
    return values.like_password(match.group("secret"))


def _is_parameter(match: re.Match[str]) -> bool:
    return values.long_enough(match.group("secret")) or values.like_password(match.group("secret"))


def _is_login(match: re.Match[str]) -> bool:
    """`-u name:word`; two numbers are a user and a group."""
    return _is_password(match) and not match.group("secret").isdigit()


def _is_credential(match: re.Match[str]) -> bool:
    return values.like_credential(match.group("secret"))


_KEYS: tuple[Finder, ...] = (
    rule(
        "private_key",
        f"{_ARMOUR}{_BODY}-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----",
        "private key",
        judge=_has_key_body,
    ),
    # Cut off before its end, as the output of a tool often is.
    rule(
        "private_key",
        f"{_ARMOUR}{_BLANK}*+(?:(?:Proc-Type|DEK-Info|Version|Comment): [^\\n\\\\]{{0,80}}{_BLANK}++)*+{_LINES}",
        "private key",
    ),
    rule("private_key", r"Private-Lines: \d{1,4}" + _BLANK + "+(?P<secret>" + _LINES + ")", "private-lines:"),
)

_DATABASES = (
    "postgres|postgresql|mysql|mariadb|mongodb|redis|rediss|amqp|amqps|mssql|clickhouse|ldap|ldaps|smtp|smtps|sftp|ftp"
)
_USER = r"[^\s/:@\[\"'<>`\\]{0,256}+:(?!\d{1,5}[/?#])"

_PARAMETERS = (
    "token=", "api_key=", "apikey=", "api-key=", "password=", "passwd=", "pwd=", "secret=",
    "x-amz-signature=", "x-amz-security-token=", "x-goog-signature=",
)  # fmt: skip
_HEADER_NAMES = (
    "x-api-key", "x-goog-api-key", "x-auth-token", "x-access-token", "x-vault-token", "x-auth-key",
    "api-key", "private-token", "job-token",
)  # fmt: skip
_FLAGS = ("password", "passwd", "passphrase", "token", "secret", "api-key", "apikey", "access-key", "secret-key")
_QUERY = r"(?:[?&#]|&amp;|\\u0026|%26|%3f)"

_ADDRESSES: tuple[Finder, ...] = (
    rule(
        "url_password",
        rf"://{_USER}(?P<secret>[^\s/\"'<>`\\]{{1,256}})@(?!sha\d{{3}}:)(?=\S)",
        "://",
        judge=_is_password,
    ),
    # A database's address is often written with its password as it is, slashes and all.
    rule(
        "url_password",
        rf"(?:{_DATABASES})(?:\+[a-z0-9]{{1,16}})?://{_USER}(?P<secret>[^\s/\"'<>`\\]{{0,128}}+/{_TEXT}{{0,128}})@(?=\S)",
        "://",
        judge=_is_password,
    ),
    rule("url_token", r"://(?P<secret>[A-Za-z0-9_-]{20,256}+)(?=@|:[^\s/@]{0,256}@)", "://", judge=_is_long_key),
    NamedRule(
        "url_token",
        _PARAMETERS,
        re.compile(rf"(?P<secret>[^\s&#\"'<>`\\)\],;|{STOPS}]{{4,}}+)"),
        _is_parameter,
        before=re.compile(rf"{_QUERY}(?:access_?|refresh_?|id_?|auth_?|oauth_?|session_?|client_)?$"),
    ),
    NamedRule(
        "url_token",
        ("key=", "sig=", "signature=", "auth=", "hmac="),
        re.compile(rf"(?P<secret>[^\s&#\"'<>`\\)\],;|{STOPS}]{{16,}}+)"),
        _is_long_key,
        before=re.compile(rf"{_QUERY}$"),
    ),
)

_HEADERS: tuple[Finder, ...] = (
    NamedRule(
        "authorization",
        ("authorization",),
        re.compile(
            rf"{_CLOSE}\s{{0,4}}[:=\uff1a]\s{{0,4}}{_OPEN}(?:(?i:bearer|basic|token|api-?key|key)\s{{1,4}})?(?!AWS4)(?P<secret>{_VALUE}{{8,}}+)"
        ),
        _is_credential,
    ),
    NamedRule("authorization", ("bearer ",), re.compile(r"\s{0,3}(?P<secret>[A-Za-z0-9._~+/=-]{16,}+)"), _is_key),
    rule("authorization", r"Signature=(?P<secret>[0-9a-f]{64})(?![0-9a-f])", "aws4"),
    NamedRule(
        "header_key",
        _HEADER_NAMES,
        re.compile(rf"{_CLOSE}\s{{0,4}}[:=\uff1a]\s{{0,4}}{_OPEN}(?P<secret>{_VALUE}{{8,}}+)"),
        _is_credential,
    ),
    rule(
        "cookie",
        r"(?i)(?:session(?:_?id)?|sessid|connect\.sid|auth|remember(?:_me|_token)?)=(?P<secret>[^\s;,\"'`<>\\]{16,}+)",
        "cookie",
        judge=_is_key,
    ),
)

_COMMANDS: tuple[Finder, ...] = (
    NamedRule(
        "password",
        _FLAGS,
        re.compile(r"[ =]{1,2}[\"'\\]{0,4}(?P<secret>[^\s\"'`<>\\|;)]{4,}+)"),
        _is_given_password,
        before=re.compile(r"--[a-z-]{0,30}$"),
    ),
    rule(
        "password",
        r"(?:-u(?<=[\s\"']-u)|--user|--proxy-user)[ =]{0,2}[\"'\\]{0,4}[^\s:\"'\\/]{1,64}+:"
        rf"(?P<secret>{_TEXT}{{3,256}}+)",
        "curl",
        "wget",
        judge=_is_login,
    ),
    rule(
        "password",
        rf"sshpass\s{{1,4}}-p\s{{0,4}}[\"'\\]{{0,4}}(?P<secret>{_TEXT}{{3,256}}+)",
        "sshpass",
        judge=_is_password,
    ),
    rule("password", rf"\s-p(?P<secret>{_TEXT}{{6,256}}+)", "mysql", "mariadb", judge=_is_given_password),
    rule(
        "password",
        rf"login\s{{1,4}}\S{{1,64}}\s{{1,4}}password\s{{1,4}}(?P<secret>{_TEXT}{{3,256}}+)",
        "login",
        judge=_is_password,
    ),
)

RULES: tuple[Finder, ...] = (*_KEYS, *_ADDRESSES, *_HEADERS, *_COMMANDS)
