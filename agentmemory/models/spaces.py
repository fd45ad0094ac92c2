"""Spaces and those who act in them: agents, the tokens that prove them, the providers they think with."""

from __future__ import annotations

from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from agentmemory.querysets import spaces as querysets

handle_validator = RegexValidator(
    r"\A[a-z0-9][a-z0-9._-]*\Z",
    "Use lower-case letters, digits, dots, dashes and underscores, beginning with a letter or a digit.",
)
address_validator = RegexValidator(r"\Ahttps?://[^\s/]", "An address begins with http:// or https://, then a host.")
key_variable_validator = RegexValidator(
    r"\A(ANTHROPIC_API_KEY|AGENTMEMORY_KEY_[A-Z0-9_]+)\Z",
    "The variable must be ANTHROPIC_API_KEY or begin with AGENTMEMORY_KEY_.",
)


class Space(models.Model):
    """One boundary of isolation: nothing in it is visible from another (T1)."""

    slug = models.CharField(max_length=60, unique=True, validators=[handle_validator])
    name = models.CharField(max_length=200, blank=True)
    default_model = models.CharField(
        max_length=200, blank=True, help_text="The model for agents that name none; blank: the provider's."
    )
    daily_tokens = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Tokens that distillation and runs may use here in one UTC day; empty: the installation's setting.",
    )
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.SpaceQuerySet.as_manager()

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class Provider(models.Model):
    """One place where a model is reached. Keys are never here, only the name of the variable that holds one."""

    class Kind(models.TextChoices):
        ANTHROPIC = "anthropic", "speaks the Anthropic wire"
        OFFLINE = "offline", "offline: takes out sentences by their wording, no model"
        ACP = "acp", "acp: runs agents, cannot be used for extraction"

    name = models.CharField(max_length=60, unique=True, validators=[handle_validator])
    kind = models.CharField(max_length=20, choices=Kind)
    # Not a URLField: hosts of one word are common where services run in containers.
    address = models.CharField(
        max_length=500,
        blank=True,
        validators=[address_validator],
        help_text="http or https; blank: the built-in address of the settings.",
    )
    key_variable = models.CharField(max_length=100, blank=True, validators=[key_variable_validator])
    default_model = models.CharField(max_length=200, blank=True)
    served_models = models.JSONField(default=list, blank=True, help_text="Ids of the models that are reached here.")
    timeout_seconds = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0.001)],
        help_text="Empty: the installation's setting.",
    )
    structured_outputs = models.BooleanField(
        default=False, help_text="Whether it is known to serve structured outputs (JSON schema)."
    )
    price_in = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text="US dollars for a million tokens in.",
    )
    price_out = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text="US dollars for a million tokens out.",
    )
    enabled = models.BooleanField(default=True)
    failures = models.PositiveIntegerField(default=0, editable=False)
    paused_until = models.DateTimeField(null=True, blank=True, editable=False)
    paused_reason = models.TextField(blank=True, editable=False)
    # An operator's own pause, beside the one that failures bring: it has no end but the operator's word (D24).
    stopped_at = models.DateTimeField(null=True, blank=True, editable=False)
    stopped_by = models.CharField(max_length=300, blank=True, default="", db_default="", editable=False)
    stopped_reason = models.CharField(max_length=500, blank=True, default="", db_default="", editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.ProviderQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=["anthropic", "offline", "acp"]), name="provider_kind_known"),
            models.CheckConstraint(
                condition=Q(key_variable="")
                | Q(key_variable__regex=r"^(ANTHROPIC_API_KEY|AGENTMEMORY_KEY_[A-Z0-9_]+)$"),
                name="provider_key_variable_allowed",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Agent(models.Model):
    """One owner of memories and sessions, known in its space by its handle."""

    class Status(models.TextChoices):
        ACTIVE = "active"
        PAUSED = "paused"

    space = models.ForeignKey(Space, on_delete=models.RESTRICT, related_name="agents")
    handle = models.CharField(max_length=100, validators=[handle_validator])
    name = models.CharField(max_length=200, blank=True)
    status = models.CharField(max_length=20, choices=Status, default=Status.ACTIVE)
    instructions = models.TextField(blank=True)
    provider = models.ForeignKey(Provider, on_delete=models.RESTRICT, null=True, blank=True, related_name="agents")
    model = models.CharField(max_length=200, blank=True)
    run_here = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Inputs of its sessions are answered by the runner that comes with this service.",
    )
    archived_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.AgentQuerySet.as_manager()

    class Meta:
        ordering = ["space_id", "handle"]
        constraints = [
            models.UniqueConstraint(fields=["space", "handle"], name="agent_handle_unique_in_space"),
            # What composite foreign keys point at: a row that names an agent names its space with it (T1).
            models.UniqueConstraint(fields=["id", "space"], name="agent_id_space"),
            models.CheckConstraint(condition=Q(status__in=["active", "paused"]), name="agent_status_known"),
        ]

    def __str__(self) -> str:
        return self.handle


class Token(models.Model):
    """One proof of identity, kept as a digest (T3). Without an agent it acts for its whole space."""

    space = models.ForeignKey(Space, on_delete=models.CASCADE, related_name="tokens")
    # The database checks (agent, space) together; see the composite keys in the first migration.
    agent = models.ForeignKey(
        Agent, on_delete=models.CASCADE, null=True, blank=True, related_name="tokens", db_constraint=False
    )
    name = models.CharField(max_length=200, blank=True)
    prefix = models.CharField(max_length=20, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    calls_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="Calls in a minute; 0: no limit; empty: the installation's setting."
    )
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects = querysets.TokenQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(expires_at__isnull=True) | Q(expires_at__gt=F("created_at")),
                name="token_expires_after_creation",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}…"
