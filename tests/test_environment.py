"""The environment: what is read, what is refused, and that a secret is in no refusal."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from config import environment, secret_key

ROOT = Path(__file__).resolve().parent.parent
Setter = Callable[[str], None]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Setter:
    def give(value: str) -> None:
        monkeypatch.setenv("AGENTMEMORY_TRIED", value)

    return give


def test_an_empty_value_is_unset(given: Setter) -> None:
    given(" ")
    assert environment.string("AGENTMEMORY_TRIED", "a") == "a"
    assert environment.boolean("AGENTMEMORY_TRIED", True) is True
    assert environment.integer("AGENTMEMORY_TRIED", 7) == 7
    assert environment.optional_integer("AGENTMEMORY_TRIED") is None
    assert environment.seconds("AGENTMEMORY_TRIED", 1.5) == 1.5
    assert environment.listing("AGENTMEMORY_TRIED", ["x"]) == ["x"]


def test_good_values_are_read(given: Setter) -> None:
    given("0.25")
    assert environment.seconds("AGENTMEMORY_TRIED", 1) == 0.25
    given("Yes")
    assert environment.boolean("AGENTMEMORY_TRIED", False) is True
    given("a, b,,c ")
    assert environment.listing("AGENTMEMORY_TRIED", []) == ["a", "b", "c"]
    given("http://localhost:9/v/")
    assert environment.url("AGENTMEMORY_TRIED", "") == "http://localhost:9/v"


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda name: environment.boolean(name, True), "maybe"),
        (lambda name: environment.integer(name, 1), "1.5"),
        (lambda name: environment.integer(name, 1, minimum=1), "0"),
        (lambda name: environment.optional_integer(name), "-1"),
        (lambda name: environment.seconds(name, 1), "soon"),
        (lambda name: environment.seconds(name, 1), "0"),
        (lambda name: environment.seconds(name, 1), "nan"),
        (lambda name: environment.seconds(name, 1), "inf"),
        (lambda name: environment.url(name, ""), "localhost:80"),
        (lambda name: environment.choice(name, "a", frozenset({"a", "b"})), "c"),
        (environment.database_url, "mysql://u:hidden@h/d"),
        (environment.database_url, "postgres://u:hidden@h"),
        (environment.database_url, "postgres://u:hidden@h:port/d"),
    ],
)
def test_a_bad_value_is_refused_in_one_sentence_that_names_the_variable(
    given: Setter, read: Callable[[str], object], value: str
) -> None:
    given(value)
    with pytest.raises(ImproperlyConfigured, match="AGENTMEMORY_TRIED") as refusal:
        read("AGENTMEMORY_TRIED")
    assert "hidden" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_database_address_is_taken_apart(given: Setter) -> None:
    given("postgresql://me%40x:p%2Fw@db.example:6432/store?sslmode=require&application_name=am")
    assert environment.database_url("AGENTMEMORY_TRIED") == environment.DatabaseUrl(
        host="db.example",
        port="6432",
        name="store",
        user="me@x",
        password="p/w",
        options={"sslmode": "require", "application_name": "am"},
    )


@pytest.mark.parametrize("address", ["postgres://%2FRun%2Fpg/store", "postgres:///store?host=/Run/pg"])
def test_a_database_address_may_name_a_socket_folder(given: Setter, address: str) -> None:
    given(address)
    found = environment.database_url("AGENTMEMORY_TRIED")
    assert found
    assert (found.host, found.name) == ("/Run/pg", "store")


def test_an_env_file_does_not_overrule_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "env"
    file.write_text("AGENTMEMORY_A=file\nAGENTMEMORY_B='quoted # value'\n")
    monkeypatch.setenv("AGENTMEMORY_ENV_FILE", str(file))
    monkeypatch.setenv("AGENTMEMORY_A", "process")
    monkeypatch.setenv("AGENTMEMORY_B", "")
    monkeypatch.delenv("AGENTMEMORY_B")
    environment.load(tmp_path / "none")
    assert environment.string("AGENTMEMORY_A") == "process"
    assert environment.string("AGENTMEMORY_B") == "quoted # value"


def test_the_secret_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    place = tmp_path / "data" / "secret_key"
    key = secret_key.read_or_create(place)
    assert len(key) >= 50
    assert secret_key.read_or_create(place) == key
    assert place.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in place.parent.iterdir()] == ["secret_key"]


def settings(expression: str, **variables: str) -> str:
    """What an expression over the settings gives in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEMORY_")}
    done = subprocess.run(
        [sys.executable, "-c", f"import os\nfrom config import settings\nprint({expression})"],
        cwd=ROOT,
        env={**kept, "AGENTMEMORY_ENV_FILE": "none", "SECRET_KEY": "x" * 60, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_secret_key_that_cannot_be_kept_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ImproperlyConfigured, match="Not a directory"):
        secret_key.read_or_create(tmp_path / "file" / "secret_key")


def test_a_full_disk_keeps_no_half_of_a_secret_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(secret_key, "new", full)
    with pytest.raises(ImproperlyConfigured, match="No space left on device"):
        secret_key.read_or_create(tmp_path / "secret_key")
    assert list(tmp_path.iterdir()) == []


def test_d18_ambient_headers_of_the_model_sdk_are_dropped() -> None:
    assert settings("os.environ.get('ANTHROPIC_CUSTOM_HEADERS')", ANTHROPIC_CUSTOM_HEADERS="x: y") == "None"


def test_keys_of_providers_are_gathered() -> None:
    found = settings(
        "settings.AGENTMEMORY_PROVIDER_KEYS", ANTHROPIC_API_KEY="a", AGENTMEMORY_KEY_OTHER="b", AGENTMEMORY_KEY_NONE=""
    )
    assert found == "{'AGENTMEMORY_KEY_OTHER': 'b', 'ANTHROPIC_API_KEY': 'a'}"


def test_https_is_expected_as_soon_as_a_host_is_not_this_machine() -> None:
    expression = "settings.SESSION_COOKIE_SECURE, settings.SECURE_SSL_REDIRECT"
    assert settings(expression) == "False False"
    assert settings(expression, ALLOWED_HOSTS="memory.example") == "True True"
    assert settings(expression, ALLOWED_HOSTS="memory.example", AGENTMEMORY_HTTPS="no") == "False False"


def test_only_a_web_process_has_a_pool() -> None:
    expression = "settings.DATABASES['default']['CONN_MAX_AGE'], 'pool' in settings.DATABASES['default']['OPTIONS']"
    assert settings(expression) == "60 False"
    assert settings(expression, AGENTMEMORY_PROCESS="web") == "0 True"


@pytest.mark.parametrize("command", ["migrate", "check"])
def test_a_bad_value_stops_the_command_line_without_a_trace(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env={**os.environ, "AGENTMEMORY_CADENCE": "soon"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "Cannot start: AGENTMEMORY_CADENCE must be a number of seconds, not 'soon'.\n"
