"""Where what answers: the admin here; the JSON views and the probes have their own modules."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, path
from django.views.generic import RedirectView

from config import views
from config.api.assembly import api

urlpatterns: list[URLPattern | URLResolver] = [
    path("admin/", admin.site.urls),
    path("api/v1/", api.urls),
    path("healthz", views.healthz),
    path("readyz", views.readyz),
    path("progressz", views.progressz),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
