"""Which network addresses belong to everyone, and which to somebody's own network."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_UNICAST = ipaddress.IPv6Network("2000::/3")
# An IPv4 address in the last 32 bits: NAT64's well-known prefix.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Where clouds tell a machine its own secrets. The first is link-local as well.
_METADATA = frozenset(map(ipaddress.ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192")))


def public(address: Address) -> bool:
    """Whether an address is anybody's to call: global, in every form in which it stands for another one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast and address not in _METADATA
    inner = embedded(address)
    if inner and not all(public(each) for each in inner):
        return False
    if address.ipv4_mapped is not None or address in _NAT64:
        return True
    return address in _UNICAST and address.is_global


def forbidden(address: Address) -> bool:
    """Whether an address is never to be called, whatever is allowed: no service of anybody's stands there."""
    return any(
        each.is_link_local or each.is_multicast or each.is_unspecified or each in _METADATA
        for each in (address, *embedded(address))
    )


def embedded(address: Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address stands for: mapped, translated, or tunnelled."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in found if each is not None]
