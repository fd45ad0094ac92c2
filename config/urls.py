"""Where what answers: the admin here; the JSON views and the probes have their own modules."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

from agentmemory.admin import searching
from config import own_password, views
from config.api.assembly import api

urlpatterns: list[URLPattern | URLResolver] = [
    # In place of unfold's own search, which keeps what it found, and knows no words of ours.
    path("admin/search/", admin.site.admin_view(searching.page)),
    # In place of the framework's, which puts nothing on record.
    path("admin/password_change/", admin.site.admin_view(own_password.page, cacheable=True)),
    path("admin/", admin.site.urls),
    path("api/v1/", api.urls),
    path("healthz", views.healthz),
    path("readyz", views.readyz),
    path("progressz", views.progressz),
    path("metrics", views.metrics),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
