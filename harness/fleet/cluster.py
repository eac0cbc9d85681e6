"""Connect to Dask: a cluster of this machine, a scheduler's address, or a scheduler file."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
import psutil
from distributed import Client, LocalCluster

from harness.fleet.kinds import FleetError

RESOURCE = "pergrad"
"""The resource, as Dask calls it, of which every machine has one: one heat at a time."""

MOST_DEATHS = 3
"""A heat that has cost this many machines is given up: it was run again twice."""

LOCAL = {
    "distributed.nanny.pre-spawn-environ": {},  # would limit what is measured to one thread
    "distributed.worker.profile.enabled": False,  # a supervisor has nothing to show, and the cores are for others
    "distributed.scheduler.worker-ttl": "30s",
    "distributed.scheduler.allowed-failures": MOST_DEATHS - 1,
}
"""Settings of Dask for a cluster of our own; those of other clusters are their owner's."""

CONNECT_S = 20


@contextlib.contextmanager
def connected(given: str) -> Iterator[Client]:
    """A client of the cluster that `--cluster` names: `local:3`, an address such as tcp://host:8786, or a file.

    TLS, timeouts and all else are as Dask's configuration has them.

    Raises:
        FleetError: if it is none of these, or nobody answers there.
    """
    with contextlib.ExitStack() as opened:
        if match := re.fullmatch(r"local:([1-9]\d*)", given):
            opened.enter_context(dask.config.set(LOCAL))
            cluster = opened.enter_context(
                LocalCluster(
                    n_workers=int(match[1]),
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=None,
                    resources={RESOURCE: 1},
                    dashboard_address=":0",
                )
            )
            arguments: dict[str, Any] = {"address": cluster}
        elif "://" in given:
            arguments = {"address": given}
        elif Path(given).is_file():
            arguments = {"scheduler_file": given}
        else:
            raise FleetError(
                f"--cluster {given}: give local:2 for a first try, a scheduler's address such as tcp://host:8786, or "
                "the scheduler file of a cluster that is running"
            )
        try:
            client = opened.enter_context(Client(**arguments, timeout=CONNECT_S, set_as_default=False))
        except (OSError, TimeoutError, ValueError) as error:
            raise FleetError(
                f"--cluster {given}: no scheduler answers there within {CONNECT_S} s ({error}); start one with "
                "`dask scheduler`, or give the address that it has printed"
            ) from error
        except TypeError as error:  # of Dask, where the address begins with tls:// and no certificate is configured
            raise FleetError(f"--cluster {given}: {error}; see docs/fleet.md for how to configure TLS") from error
        _say_if_open_to_others(client)
        yield client


def _say_if_open_to_others(client: Client) -> None:
    """Name a scheduler on another host that takes what comes from anybody."""
    found = urlsplit(client.scheduler.address)
    if found.scheme == "tcp" and found.hostname not in _own_addresses():
        print(
            f"{client.scheduler.address} is on another host and uses no TLS: whoever reaches it can run code on its "
            "machines. Keep it in a network of your own, or see docs/fleet.md.",
            file=sys.stderr,
        )


def _own_addresses() -> set[str]:
    found = {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}
    return found | {"localhost", "127.0.0.1", "::1"}
