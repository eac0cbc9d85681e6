"""Ways to a cluster: its scheduler file, and TLS as Dask's own configuration has it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from harness.fleet.cluster import connected
from harness.fleet.kinds import FleetError
from tests.fleet_cluster import end


@contextlib.contextmanager
def scheduler(folder: Path, protocol: str = "tcp", *options: str) -> Iterator[Path]:
    """A scheduler, and the file that tells where it is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"{protocol}://127.0.0.1:{probe.getsockname()[1]}"
    file = folder / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--scheduler-file", str(file), *options], stdout=log, stderr=log, text=True
        )
        try:
            limit = time.monotonic() + 60
            while not file.exists() and time.monotonic() < limit:
                time.sleep(0.05)
            assert file.exists(), (folder / "log").read_text()
            yield file
        finally:
            end(process)


def test_a_scheduler_file_leads_to_its_cluster(tmp_path: Path) -> None:
    with scheduler(tmp_path) as file, connected(str(file)) as client:
        assert client.scheduler.address in file.read_text()


def test_a_file_of_a_scheduler_that_has_gone_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.fleet.cluster.CONNECT_S", 1)
    with scheduler(tmp_path) as file:
        pass

    with pytest.raises(FleetError, match=r"no scheduler answers there within 1 s"), connected(str(file)):
        pass


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate")
def test_tls_is_as_the_configuration_of_dask_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    ours = {
        "distributed.comm.tls.ca-file": str(certificate),
        **{f"distributed.comm.tls.client.{name}": str(path) for name, path in (("key", key), ("cert", certificate))},
    }
    options = ("--tls-ca-file", str(certificate), "--tls-cert", str(certificate), "--tls-key", str(key))

    with scheduler(tmp_path, "tls", *options) as file:
        with dask.config.set(ours), connected(str(file)) as client:
            assert client.scheduler.address.startswith("tls://")
        monkeypatch.setattr("harness.fleet.cluster.CONNECT_S", 1)
        with (
            pytest.raises(FleetError, match="configure TLS"),
            connected(str(file)),
        ):  # without a certificate nobody gets in
            pass
