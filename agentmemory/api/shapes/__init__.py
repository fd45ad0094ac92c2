"""What goes in and out, as schemas. Members that are not known are ignored, so that newer clients can call this."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class In(BaseModel):
    """What comes in: nothing is taken for what it is not, so a number is no string."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Out(BaseModel):
    """What goes out."""
