"""Answers that need not be sent, or not at their full length."""

from __future__ import annotations

import hashlib

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags
from django.utils.text import compress_string

SHORTEST = 1_000
"""Bytes from which on compressing pays."""

_GZIP = "gzip"


def tagged(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """`response` to a GET with a tag of what it says, or 304 where the client has just that.

    The tag is weak, since it tells the same text and not the same bytes. One that a view gave, a memory's version,
    stands.
    """
    if request.method != "GET" or response.status_code != 200:
        return response
    if "ETag" not in response.headers:
        response.headers["ETag"] = f'W/"{hashlib.sha256(response.content).hexdigest()[:32]}"'
    tag = response.headers["ETag"]
    asked = [each.removeprefix("W/") for each in parse_etags(request.headers.get("If-None-Match", ""))]
    if tag.removeprefix("W/") not in asked and "*" not in asked:
        return response
    unchanged = HttpResponseNotModified(headers={"ETag": tag})
    unchanged.headers["Cache-Control"] = response.headers.get("Cache-Control", "no-store")
    return unchanged


def compressed(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """`response` as gzip, where the client takes it and it is worth it.

    One with a strong tag is left as it is: the tag is for these bytes, and clients give it back to say which version
    they mean.
    """
    patch_vary_headers(response, ("Accept-Encoding",))
    strong = not response.headers.get("ETag", "W/").startswith("W/")
    if strong or len(response.content) < SHORTEST or response.headers.get("Content-Encoding"):
        return response
    if not _takes_gzip(request.headers.get("Accept-Encoding", "")):
        return response
    response.content = compress_string(response.content)
    response.headers["Content-Encoding"] = _GZIP
    response.headers["Content-Length"] = str(len(response.content))
    return response


def _takes_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        name, _, parameters = part.partition(";")
        if name.strip() == _GZIP:
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
