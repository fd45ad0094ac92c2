"""Which addresses are anybody's to call: private ones are known in every form that they can take."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from agentmemory import addresses

PRIVATE = [
    "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "100.64.0.1", "0.0.0.0", "255.255.255.255", "198.18.0.1",
    "::", "::1", "fd00::1", "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::", "2001:0:7f00:1::", "2001:db8::1", "240.0.0.1",
]  # fmt: skip
NEVER = [
    "169.254.169.254", "169.254.1.1", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::",
    "2001:0:4136:e378:8000:63bf:5601:5601",
    "fd00:ec2::254", "100.100.100.200", "224.0.0.1", "ff02::1", "0.0.0.0", "::",
]  # fmt: skip
PUBLIC = ["93.184.215.14", "8.8.8.8", "2606:4700::6810:84e5", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_somebodys_own_is_not_public(address: str) -> None:
    assert not addresses.public(ip_address(address))


@pytest.mark.parametrize("address", NEVER)
def test_some_are_never_called_whatever_is_allowed(address: str) -> None:
    assert addresses.forbidden(ip_address(address))
    assert not addresses.public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_everybodys_may_be_called(address: str) -> None:
    assert addresses.public(ip_address(address))
    assert not addresses.forbidden(ip_address(address))
