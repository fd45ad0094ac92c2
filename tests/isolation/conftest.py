"""The one whose rows nobody else may learn of."""

from __future__ import annotations

import pytest

from tests.isolation import strangers
from tests.support.clients import Api


@pytest.fixture
def victim(db: None) -> Api:
    return strangers.make_victim()
