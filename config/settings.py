"""The settings, and the only place that reads the environment. It imports no app.

Every `AGENTMEMORY_*` value is a flat Django setting, so that a test can override it. Times are in seconds.
"""

from __future__ import annotations

import sys
from math import ceil
from pathlib import Path
from typing import Any

from config import embedded, environment, secret_key
from config.console import UNFOLD  # noqa: F401  (a setting)

BASE_DIR = Path(__file__).resolve().parent.parent
environment.load(BASE_DIR / ".env")
# The Anthropic SDK sends these headers with every request, even when its key and address are explicit: an
# ambient variable must not reach a call (D18).
environment.forget("ANTHROPIC_CUSTOM_HEADERS")
# The queue's library would take another queue's name from here.
environment.forget("Q_CLUSTER_NAME")
# The models' runtime tells its maker how it is used, unless it is told not to.
environment.assign("ORT_DISABLE_TELEMETRY", "1")

# --- where things are ---
AGENTMEMORY_DATA_DIR: Path = (BASE_DIR / environment.string("AGENTMEMORY_DATA_DIR", "var")).resolve()
DEBUG = environment.boolean("DEBUG", False)
SECRET_KEY = environment.string("SECRET_KEY") or secret_key.read_or_create(AGENTMEMORY_DATA_DIR / "secret_key")
LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
ALLOWED_HOSTS = environment.listing("ALLOWED_HOSTS", LOCAL_HOSTS)
CSRF_TRUSTED_ORIGINS = environment.listing("CSRF_TRUSTED_ORIGINS", [])
# Plain http is for this machine alone, which has no certificate and must still let one log in.
AGENTMEMORY_HTTPS = environment.boolean("AGENTMEMORY_HTTPS", not set(ALLOWED_HOSTS) <= set(LOCAL_HOSTS))

# --- distillation ---
AGENTMEMORY_CADENCE: float = environment.seconds("AGENTMEMORY_CADENCE", 1800.0)
AGENTMEMORY_BACKOFF_BASE: float = environment.seconds("AGENTMEMORY_BACKOFF_BASE", 1740.0)
AGENTMEMORY_BACKOFF_CAP: float = environment.seconds("AGENTMEMORY_BACKOFF_CAP", 86400.0)
AGENTMEMORY_CALL_TIMEOUT: float = environment.seconds("AGENTMEMORY_CALL_TIMEOUT", 120.0)
AGENTMEMORY_CURSOR_LEASE: float = environment.seconds("AGENTMEMORY_CURSOR_LEASE", 300.0)
AGENTMEMORY_MESSAGES_PER_PASS = environment.integer("AGENTMEMORY_MESSAGES_PER_PASS", 30, minimum=1)
AGENTMEMORY_CHARS_PER_MESSAGE = environment.integer("AGENTMEMORY_CHARS_PER_MESSAGE", 800, minimum=50)
AGENTMEMORY_CHARS_PER_TRANSCRIPT = environment.integer("AGENTMEMORY_CHARS_PER_TRANSCRIPT", 24000, minimum=100)
AGENTMEMORY_CANDIDATES_PER_PASS = environment.integer("AGENTMEMORY_CANDIDATES_PER_PASS", 12, minimum=1)
AGENTMEMORY_CHARS_PER_CANDIDATE = environment.integer("AGENTMEMORY_CHARS_PER_CANDIDATE", 2000, minimum=1)
AGENTMEMORY_PASSES_PER_RUN = environment.integer("AGENTMEMORY_PASSES_PER_RUN", 20, minimum=1)
# Calls that one task keeps waiting at a time, each in a thread without a database connection.
AGENTMEMORY_CALLS_AT_ONCE = environment.integer("AGENTMEMORY_CALLS_AT_ONCE", 64, minimum=1)
AGENTMEMORY_QUARANTINE_AFTER = environment.integer("AGENTMEMORY_QUARANTINE_AFTER", 3, minimum=1)
AGENTMEMORY_IDLE_AFTER: float = environment.seconds("AGENTMEMORY_IDLE_AFTER", 1800.0)
AGENTMEMORY_DAILY_TOKENS = environment.optional_integer("AGENTMEMORY_DAILY_TOKENS")
AGENTMEMORY_KEEP_ANSWERS: float = environment.seconds("AGENTMEMORY_KEEP_ANSWERS", 7776000.0)

# --- manners ---
# Calls of one token in a minute, over all processes together; 0 is no limit.
AGENTMEMORY_RATE_LIMIT = environment.integer("AGENTMEMORY_RATE_LIMIT", 60000)

# --- webhooks ---
# Whether a webhook may go to a loopback or private address, and over plain http; off, so that nobody can make this
# service call into its own network.
AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES = environment.boolean("AGENTMEMORY_WEBHOOK_PRIVATE_ADDRESSES", False)

# --- operators ---
AGENTMEMORY_SESSION_AGE = environment.integer("AGENTMEMORY_SESSION_AGE", 43200, minimum=60)
AGENTMEMORY_SESSION_IDLE: float = environment.seconds("AGENTMEMORY_SESSION_IDLE", 7200.0)
# Tries to sign in of one account from one address, until the window that the first of them opened is over.
AGENTMEMORY_LOGIN_TRIES = environment.integer("AGENTMEMORY_LOGIN_TRIES", 10, minimum=1)
AGENTMEMORY_LOGIN_WINDOW: float = environment.seconds("AGENTMEMORY_LOGIN_WINDOW", 900.0)
# Whose word about the client's address and the scheme is taken.
AGENTMEMORY_PROXIES = environment.listing("AGENTMEMORY_PROXIES", ["127.0.0.1", "::1"])
# What a scraper has to show at /metrics; without one there is nothing there.
AGENTMEMORY_METRICS_TOKEN = environment.string("AGENTMEMORY_METRICS_TOKEN")

# --- as a client of a server elsewhere (`mcp_stdio`) ---
AGENTMEMORY_URL = environment.url("AGENTMEMORY_URL", "http://127.0.0.1:8000")
AGENTMEMORY_TOKEN = environment.string("AGENTMEMORY_TOKEN")

# --- keeping ---
# Seconds without use after which a distilled memory is withdrawn by consolidation; none: never (M9).
AGENTMEMORY_FORGET_AFTER = environment.optional_seconds("AGENTMEMORY_FORGET_AFTER")

# --- execution and the task cluster ---
AGENTMEMORY_EXECUTION_LEASE: float = environment.seconds("AGENTMEMORY_EXECUTION_LEASE", 30.0)
AGENTMEMORY_RECOVERY_SCAN: float = environment.seconds("AGENTMEMORY_RECOVERY_SCAN", 10.0)
# Tokens, as they are estimated, that the runner of this service shows a model at once; older parts are summed up.
AGENTMEMORY_WINDOW_TOKENS = environment.integer("AGENTMEMORY_WINDOW_TOKENS", 120000, minimum=2000)
AGENTMEMORY_WATCHDOG: float = environment.seconds("AGENTMEMORY_WATCHDOG", 60.0)
AGENTMEMORY_WORKERS = environment.integer("AGENTMEMORY_WORKERS", 2, minimum=1)
# The supervised cluster that this process belongs to; set by the supervisor for its children.
AGENTMEMORY_WORKER_NAME = environment.string("AGENTMEMORY_WORKER_NAME")
# Whole seconds, because the cluster's timeout is an alarm signal (A3).
AGENTMEMORY_TASK_TIMEOUT = environment.integer(
    "AGENTMEMORY_TASK_TIMEOUT", ceil(5 * AGENTMEMORY_CALL_TIMEOUT), minimum=1
)

# --- search, providers ---
AGENTMEMORY_EMBEDDER = environment.choice("AGENTMEMORY_EMBEDDER", "auto", frozenset({"auto", "none"}))
# Whether a provider may stand at a loopback or private address; off, so that a hosted installation cannot be
# made to call into its own network.
AGENTMEMORY_ALLOW_PRIVATE_ADDRESSES = environment.boolean("AGENTMEMORY_ALLOW_PRIVATE_ADDRESSES", False)
ANTHROPIC_BASE_URL = environment.url("ANTHROPIC_BASE_URL", "https://api.anthropic.com")
AGENTMEMORY_PROVIDER_KEYS: dict[str, str] = {
    **environment.with_prefix("AGENTMEMORY_KEY_"),
    **({"ANTHROPIC_API_KEY": key} if (key := environment.string("ANTHROPIC_API_KEY")) else {}),
}

# --- database ---
# `web` for a process that serves requests. Others may fork, and a pool that is forked corrupts the protocol.
AGENTMEMORY_PROCESS = environment.choice("AGENTMEMORY_PROCESS", "command", frozenset({"web", "command"}))
_WEB = AGENTMEMORY_PROCESS == "web"
# `reconnect_timeout`: the longer one tries to open a connection while the database is away, the rarer one tries.
_POOL_OPTIONS = {"min_size": 1, "max_size": 16, "timeout": 10, "reconnect_timeout": 10}
_POOL: dict[str, Any] = {"pool": _POOL_OPTIONS} if _WEB else {}
_DATABASE_URL = environment.database_url("DATABASE_URL")
# Whether the database is the embedded one, which a process holds while it lives (see `config.embedded`).
AGENTMEMORY_EMBEDDED = _DATABASE_URL is None
if _DATABASE_URL is None:
    _ADDRESS = embedded.address(AGENTMEMORY_DATA_DIR)
    _CONNECTION: dict[str, Any] = {
        "HOST": _ADDRESS.host,
        "NAME": _ADDRESS.name,
        "USER": _ADDRESS.user,
        "OPTIONS": {**_POOL},
    }
else:
    _CONNECTION = {
        "HOST": _DATABASE_URL.host,
        "PORT": _DATABASE_URL.port,
        "NAME": _DATABASE_URL.name,
        "USER": _DATABASE_URL.user,
        "PASSWORD": _DATABASE_URL.password,
        "OPTIONS": {**_DATABASE_URL.options, **_POOL},
    }
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "config.pooled" if _WEB else "django.db.backends.postgresql",
        "CONN_MAX_AGE": 0 if _WEB else 60,
        "CONN_HEALTH_CHECKS": True,
        **_CONNECTION,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- django-q2: a thin dispatcher, the state is in our own rows ---
Q_CLUSTER: dict[str, Any] = {
    "name": "agentmemory",
    "orm": "default",
    # Pulls from the same table, and only for a worker that is free.
    "broker_class": "sessions_exec.queue.Broker",
    "workers": AGENTMEMORY_WORKERS,
    # A task's lock begins when it is pulled, not when it runs: nothing may wait in a local queue.
    "queue_limit": 1,
    "bulk": 1,
    "timeout": AGENTMEMORY_TASK_TIMEOUT,
    "retry": 3 * AGENTMEMORY_TASK_TIMEOUT + 60,
    "max_attempts": 3,
    "ack_failures": False,
    # Successes are not stored: what was done is in our rows, and another limit costs a scan a task.
    "save_limit": -1,
    "catch_up": False,
    "poll": 0.2,
}

# --- Django ---
INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "unfold.contrib.forms",
    "unfold.contrib.inlines",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    # Installed so that its documentation page is served from here and not from elsewhere.
    "ninja",
    "pgtrigger",
    "pghistory",
    "django_q",
    "agentmemory",
    "sessions_exec",
    "distillation",
    "config",
]
MIDDLEWARE = [
    "config.requests.RequestIdMiddleware",
    "config.policy.PolicyMiddleware",
    # Outside of all others: what any of the others answers is to be a problem document, too.
    "config.api.middleware.ApiMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "config.sessions.SessionLimitMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "pghistory.middleware.HistoryMiddleware",
    "config.unavailable.UnavailableMiddleware",
    # Innermost: what a call does and what is kept of its answer are one transaction.
    "config.api.repeats.RepeatMiddleware",
]
ROOT_URLCONF = "config.urls"
# Where a sign-in leads that names no place of this service to go back to.
LOGIN_REDIRECT_URL = "admin:index"
ASGI_APPLICATION = "config.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

# --- static files ---
STATIC_URL = "static/"
# On where `collectstatic` was run, as in the container image; a checkout serves the files where they lie.
AGENTMEMORY_STATIC_MANIFEST = environment.boolean("AGENTMEMORY_STATIC_MANIFEST", False)
STATIC_ROOT = BASE_DIR / "staticfiles" if AGENTMEMORY_STATIC_MANIFEST else None
WHITENOISE_USE_FINDERS = not AGENTMEMORY_STATIC_MANIFEST
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if AGENTMEMORY_STATIC_MANIFEST
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# --- security ---
SESSION_COOKIE_SECURE = AGENTMEMORY_HTTPS
CSRF_COOKIE_SECURE = AGENTMEMORY_HTTPS
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Strict"
SESSION_COOKIE_AGE = AGENTMEMORY_SESSION_AGE
if AGENTMEMORY_HTTPS:
    # No neighbour under the same domain can plant such a cookie, and none goes over plain http.
    SESSION_COOKIE_NAME = "__Host-sessionid"
    CSRF_COOKIE_NAME = "__Host-csrftoken"
SECURE_SSL_REDIRECT = AGENTMEMORY_HTTPS
# Probes and scrapers come over plain http, from inside.
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^progressz$", r"^metrics$"]
SECURE_HSTS_SECONDS = 31_536_000 if AGENTMEMORY_HTTPS else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Whether other names under this domain may be bound to https, too, is not for this service to say.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
# The service's own limit of a body is 8 MiB of messages; a little more, so that the view can say so itself.
DATA_UPLOAD_MAX_MEMORY_SIZE = 9 * 1024 * 1024

# --- logs ---
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "json": {"()": "config.logs.JsonFormatter"},
        "plain": {"format": "%(asctime)s %(levelname)-7s %(name)s %(message)s"},
    },
    "filters": {"no_probe": {"()": "config.logs.NoProbe"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "plain" if DEBUG or sys.stderr.isatty() else "json"}
    },
    "root": {"handlers": ["stderr"], "level": environment.string("AGENTMEMORY_LOG_LEVEL", "INFO").upper()},
    "loggers": {
        # Django's own handlers are replaced by the root's.
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        "django.server": {"handlers": [], "level": "INFO", "propagate": True},
        # The model's client tells every call, with its address, and on request its content.
        "anthropic": {"handlers": [], "level": "WARNING", "propagate": True},
        "httpx2": {"handlers": [], "level": "WARNING", "propagate": True},
        "httpcore2": {"handlers": [], "level": "WARNING", "propagate": True},
        "watchfiles": {"handlers": [], "level": "WARNING", "propagate": True},
        # A line for each task that comes and goes; what matters of it our own logs tell.
        "django-q": {"handlers": [], "level": "WARNING", "propagate": True},
        # A line for each 404 says nothing, and its text is a path.
        "django.request": {"handlers": [], "level": "ERROR", "propagate": True, "filters": ["no_probe"]},
    },
}
