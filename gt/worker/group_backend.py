"""Collectives by process groups, for the worker's loop: their members and their payloads.

There is one round: the data that each member needs before anybody calls the group. The calls stand
in collectives, the groups in torch_groups.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from gt import config
from gt.worker.collective_backend import CollectiveBackend, DirectReads, Turn
from gt.worker.pytorch import collectives
from gt.worker.pytorch.collectives import Prepared
from gt.worker.pytorch.groups import Call, Engine, Gloo, GroupError, Groups, Nccl

SIOCGIFADDR = 0x8915  # linux/sockios.h
IFREQ_BYTES = 40
# Operators between two workers, both of which call a broadcast between them.
_PAIRS = {"send", "receive"}
# Attributes that collectives takes by their names.
_GIVEN = {"reduce", "dim", "sizes", "from_dim", "from_sizes", "to_dim", "to_sizes"}


def own_address(host: str, port: int) -> str:
    """This host's address from which `host` is reached; nothing is sent."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = addresses[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The name of the network interface that has an IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            # struct ifreq: the name, then an address with family and port in front.
            request = name.encode().ljust(IFREQ_BYTES, b"\0")
            with contextlib.suppress(OSError):  # an interface may have no address
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


class GroupBackend:
    """The groups of a worker.

    Args:
        library: `gloo`, `nccl`, or `auto`: NCCL for a GPU, and no groups for a CPU.
        networks: Networks on which workers may call each other without a secret, as `10.0.0.0/8`.
        address: Address at which other workers reach this one; None if only its own host reaches
            it.
        device: Device of the values.

    Raises:
        ValueError: The library that was asked for cannot be used here.
    """

    def __init__(
        self, library: str, networks: Sequence[str], address: str | None, device: torch.device
    ) -> None:
        self._groups: Groups | None = None
        # True once the first group that could not be made was reported; other groups' reasons are
        # mostly the same.
        self._has_told = False
        self.domain = ""
        network = _network(address, networks)
        on_gpu = device.type != "cpu"
        if library == "auto":
            if network is None or not on_gpu:
                return
            library = "nccl"
        if on_gpu != (library == "nccl"):
            raise ValueError(f"process groups by {library}: the values are on {device.type}")
        if address is None or network is None:
            raise ValueError(
                f"process groups by {library} need a trusted network: none of"
                f" {list(networks)} has this worker's address {address}"
            )
        self.domain = f"{library} {torch.__version__} {network}"
        self._groups = Groups(_engine(library, address, device))

    def backends(self) -> dict[str, CollectiveBackend[Tensor]]:
        """Backends of collectives for the worker's loop."""
        if self._groups is None:
            return {}
        return {"group": CollectiveBackend(domain=self.domain, rendezvous=self.rendezvous)}

    def rendezvous(
        self,
        op: str,
        attributes: dict[str, object],
        tag: int,
        members: list[int],
        me: int,
        operand: Tensor | None,
        result: Tensor | None,
    ) -> tuple[GroupRendezvous, bytes] | None:
        """Our part in a collective, and its payload for the other members."""
        del tag
        assert self._groups is not None, "a backend that was not announced"
        # Each member of a pair names itself first; a group has one order.
        order = list(range(len(members)))
        if op in _PAIRS:
            order.sort(key=members.__getitem__)
        place = order.index(me)
        prepared = _prepared(op, attributes, members, order, place, operand, result)
        try:
            call = self._groups.prepare(tuple(members[place] for place in order), place, prepared)
        except GroupError as error:
            if not self._has_told:
                self._has_told = True
                sys.stderr.write(f"gt.worker: no group of workers {members}, by bytes: {error}\n")
            return None
        return GroupRendezvous(self._groups, call, order), call.payload

    def close(self) -> None:
        """Ends all groups."""
        if self._groups is not None:
            self._groups.close()


class GroupRendezvous:
    """Our part in one collective: a `gt.worker.collective_backend.Rendezvous`.

    Args:
        groups: Groups of this worker.
        call: The library call.
        order: For each place in the group, the index of the instruction's member that has it.
    """

    def __init__(self, groups: Groups, call: Call, order: list[int]) -> None:
        self._groups = groups
        self._call = call
        self._order = order

    def negotiate(self, payloads: Sequence[bytes], reads: DirectReads | None) -> Turn:
        """All members are ready: the call is made in its turn, and nothing more is sent."""
        del reads
        return (True, b"") if self._call.begin([payloads[k] for k in self._order]) else None

    def lose(self, peer: int) -> None:
        """Reports that a member is gone."""
        self._groups.lose(peer)

    def is_over(self) -> bool:
        """True once the result is available, or never will be."""
        return self._call.is_over()

    def finish(self) -> None:
        """Makes the result usable.

        Raises:
            GroupError: There will be no result.
        """
        self._call.finish()

    def end(self, payloads: Sequence[bytes | None]) -> None:
        """Ends the call, also one that was not made."""
        del payloads
        self._call.cancel()


def _network(address: str | None, networks: Sequence[str]) -> str | None:
    """The declared network that has the address."""
    for text in networks:
        network = ipaddress.ip_network(text, strict=False)
        if address is not None and ipaddress.ip_address(address) in network:
            return str(network)
    return None


def _engine(library: str, address: str, device: torch.device) -> Engine:
    if library == "gloo":
        return Gloo(address)
    interface = interface_of(address)
    if interface is None:
        raise ValueError(f"process groups by nccl: no interface has the IPv4 address {address}")
    config.use_nccl_interface(interface)
    return Nccl(device)


def _prepared(
    op: str,
    attributes: dict[str, object],
    members: list[int],
    order: list[int],
    place: int,
    operand: Tensor | None,
    result: Tensor | None,
) -> Prepared:
    """The library call of an instruction, from its attributes."""
    if op in _PAIRS or op == "broadcast":
        places = [members[k] for k in order]
        root = attributes["root"] if op == "broadcast" else members[op == "receive"]
        assert isinstance(root, int), root
        return collectives.broadcast(operand, result, root=places.index(root))
    arguments = {name: value for name, value in attributes.items() if name in _GIVEN}
    if op != "all_reduce":
        arguments["me"] = place
    return getattr(collectives, op)(operand, result, **arguments)
