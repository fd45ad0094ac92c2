"""The task cluster as rows of our own: what runs, and who is alive to run it."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class TaskRun(models.Model):
    """One task in a worker's hands: made when it is pulled from the queue, deleted at its end.

    Process 0 means that it was pulled and no process has begun it. What stays behind died with its process.
    """

    id = models.BigAutoField(primary_key=True)
    function = models.CharField(max_length=200)
    argument = models.CharField(max_length=200, blank=True)
    worker = models.CharField(max_length=200, help_text="The supervisor whose cluster runs it.")
    pid = models.PositiveIntegerField(help_text="The process that runs it; 0: none has begun.")
    delivery = models.BigIntegerField(null=True, blank=True, help_text="The row of the queue that it came from.")
    started_at = models.DateTimeField(db_default=Now(), help_text="When it was begun; until then, when it was pulled.")

    class Meta:
        ordering = ["started_at"]
        indexes = [models.Index(fields=["worker"], name="taskrun_worker")]

    def __str__(self) -> str:
        return f"{self.function}({self.argument})"


class Heartbeat(models.Model):
    """One supervised task cluster, alive while its beat is recent."""

    worker = models.CharField(max_length=200, primary_key=True, help_text="Host, process id and a random part.")
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    processes = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(db_default=Now())
    restarts = models.PositiveIntegerField(default=0, help_text="How often the watchdog started the cluster again.")
    last_restart_at = models.DateTimeField(null=True)
    last_restart_reason = models.CharField(max_length=500, blank=True, default="")
    deaths = models.PositiveIntegerField(
        default=0, db_default=0, help_text="How many of its processes ended in a task, and were replaced."
    )
    last_death_at = models.DateTimeField(null=True)
    last_death_task = models.CharField(max_length=500, blank=True, default="", db_default="")

    class Meta:
        verbose_name_plural = "task cluster"
        ordering = ["-beat_at"]
        indexes = [models.Index(fields=["-beat_at"], name="heartbeat_newest")]

    def __str__(self) -> str:
        return self.worker


class Tick(models.Model):
    """When each thing that happens again and again was last done, and what came of it."""

    name = models.CharField(max_length=100, primary_key=True)
    at = models.DateTimeField(db_default=Now())
    outcome = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        verbose_name_plural = "schedules"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
