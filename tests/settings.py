"""The product's settings, on a throwaway database and with nothing of the developer's own environment."""

from __future__ import annotations

import os
import tempfile

# Set before the product's settings are read. Workers of a parallel run inherit both from the first process.
os.environ["AGENTMEMORY_ENV_FILE"] = "none"
if "AGENTMEMORY_TEST_DATA_DIR" not in os.environ:
    for _name in [*os.environ]:
        if _name.startswith(("AGENTMEMORY_", "ANTHROPIC_")) and _name != "AGENTMEMORY_ENV_FILE":
            del os.environ[_name]
    # A short path: a socket lies in it.
    os.environ["AGENTMEMORY_TEST_DATA_DIR"] = tempfile.mkdtemp(prefix="am-test-", dir="/tmp")
for _name in ("DEBUG", "ALLOWED_HOSTS"):
    os.environ.pop(_name, None)
os.environ["AGENTMEMORY_DATA_DIR"] = os.environ["AGENTMEMORY_TEST_DATA_DIR"]
os.environ["SECRET_KEY"] = "only-for-tests-" + "0123456789" * 5
# A minute that ends in a test would cost a query in the midst of those that are counted.
os.environ["AGENTMEMORY_RATE_LIMIT"] = "0"
os.environ["AGENTMEMORY_EMBEDDER"] = "none"
os.environ["AGENTMEMORY_ALLOW_PRIVATE_ADDRESSES"] = "true"

from config.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
