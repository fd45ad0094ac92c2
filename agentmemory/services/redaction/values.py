"""Is this value a secret, or a placeholder, a name, a path? Judged for places where only the context hints at one."""

from __future__ import annotations

import re

_PLACEHOLDER_WORDS = frozenset(
    ("your", "yours", "changeme", "changeit", "placeholder", "redacted", "replaceme", "insert", "todo")
)
_PLACEHOLDER_VALUES = frozenset((
    "password", "passwd", "pass", "pwd", "passphrase", "secret", "token", "apikey", "api_key", "api-key", "key",
    "none", "null", "nil", "undefined", "true", "false", "string", "required", "optional",
    "hidden", "masked", "omitted",
))  # fmt: skip
_REFERENCE = re.compile(
    r"\$[A-Z_][A-Z0-9_]*|\$[a-z_]+|\$[({].*|%\(?\w+\)?[%s]?|\{.*|<.*|!\w+|@\w+@|"
    r"(?:process\.env|os\.environ|os\.getenv|env|ENV|secrets|settings|config|vault|var|local|data|self|this|ssm|arn|op)"
    r"(?:[.:\[(]).*",
    re.ASCII | re.DOTALL,
)
_MASK = re.compile(r"[xX*.•…?_#-]+|(?:.*[xX]{6,}|.*\*{3,}|.*\.{3,}|.*…).*", re.DOTALL)
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\]{1,2}[\w.@-]{1,20}(?:[/\\]{1,2}[\w.@-]{1,20})*[/\\]?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].*)?")
_ALGORITHM = re.compile(
    r"(?:sha|md|base|utf|aes|rsa|ed|hs|rs|es|argon|pbkdf|blake|curve|x)-?\d+\w{0,3}(?:-\w+)*", re.ASCII | re.I
)
_IDENTIFIER = re.compile(r"\$?[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)*", re.ASCII)
_NAMES_A_SECRET = re.compile(r"passw|pwd|secret|token|cred|key|auth", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z0-9]+")
_TURNS = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")


def is_placeholder(value: str) -> bool:
    """It stands for a secret without being one: `<token>`, `$API_KEY`, `xxxx`, `your-key-here`, `***`."""
    if "[redacted:" in value or value.lower() in _PLACEHOLDER_VALUES:
        return True
    if _REFERENCE.fullmatch(value) or _MASK.fullmatch(value):
        return True
    return any(word in _PLACEHOLDER_WORDS for word in re.split(r"[^a-z0-9]+", value.lower()))


def is_name(value: str) -> bool:
    """A path, an address, a time, an algorithm, or a variable that is named after what it holds."""
    if "://" in value or any(form.fullmatch(value) for form in (_PATH, _TIME, _ALGORITHM)):
        return True
    if not _IDENTIFIER.fullmatch(value):
        return False
    dotted = "." in value or "->" in value or "::" in value
    return bool(_NAMES_A_SECRET.search(value)) or (dotted and max(map(len, _WORD.findall(value))) <= 12)


def classes(value: str) -> int:
    """How many of: lower case, upper case, digits, symbols other than those that names are joined with."""
    tests = (r"[a-z]", r"[A-Z]", r"[0-9]", r"[^A-Za-z0-9\s_.:/,;-]")
    return sum(bool(re.search(test, value)) for test in tests)


def turns(value: str) -> int:
    """How often letters and digits change places: `hunter2` once, `a1b2c3` five times."""
    return len(_TURNS.findall(value))


def _mixed(word: str) -> bool:
    return any(c.isdigit() for c in word) and any(c.isalpha() for c in word)


def like_password(value: str) -> bool:
    """Fit for a password where one is assigned: six characters or more of at least two kinds, no placeholder."""
    if len(value) < 6 or is_placeholder(value) or is_name(value):
        return False
    letters = any(c.isalpha() for c in value)
    if value.isdigit():
        return True
    return letters and (any(c.isdigit() for c in value) or bool(re.search(r"[!@#$%^&*+=~?|]", value)))


def like_key(value: str) -> bool:
    """Fit for a generated key or token: a word of ten letters and digits mixed, or many kinds or changes."""
    if len(value) < 8 or is_placeholder(value) or is_name(value):
        return False
    words = _WORD.findall(value)
    if any(len(word) >= 10 and _mixed(word) for word in words):
        return True
    return classes(value) >= 3 or turns(value) >= 3 or max(map(len, words), default=0) >= 32


def like_random(value: str) -> bool:
    """Nobody writes this by hand in a sentence: long and mixed, or letters and digits changing places often."""
    if len(value) < 8 or is_placeholder(value) or is_name(value):
        return False
    return (classes(value) >= 3 and any(c.isdigit() for c in value)) or turns(value) >= 3


def long_enough(value: str) -> bool:
    """A place that only ever holds a secret (a token's parameter, a header): anything but a placeholder."""
    return len(value) >= 8 and not is_placeholder(value) and not is_name(value)


def like_credential(value: str) -> bool:
    """Fit for an authorization header; prose says `Basic authentication` and `Bearer tokens`, in lower case."""
    return long_enough(value) and (len(value) >= 20 or not (value.replace("-", "").isalpha() and value.islower()))
