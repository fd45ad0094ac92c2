"""The runner that comes with this service: a small agent loop over the same services that the API offers to others.

It knows no provider: what it asks a model through is given to it (`model.Model`).
"""

from __future__ import annotations
