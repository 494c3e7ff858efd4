"""TLS in front of a PostgreSQL server that speaks none, as the one that the tests start."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

_SSL_REQUEST = 80877103


def certificate(folder: Path, name: str, host: str) -> tuple[Path, Path]:
    """Make a certificate for a host, signed by itself, and return its file and that of its key."""
    made, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}",
        "-keyout", str(key), "-out", str(made),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return made, key


@contextlib.contextmanager
def tls_in_front(server: Path, made: Path, key: Path) -> Iterator[int]:
    """Give a port of 127.0.0.1 behind which, by TLS, the server with this socket answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=_serve, args=(door, server, context), daemon=True).start()
        yield door.getsockname()[1]
        door.shutdown(socket.SHUT_RDWR)


def _serve(door: socket.socket, server: Path, context: ssl.SSLContext) -> None:
    while True:
        try:
            client, _ = door.accept()
        except OSError:  # it was shut
            return
        threading.Thread(target=_join, args=(client, server, context), daemon=True).start()


def _join(client: socket.socket, server: Path, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as behind:
        while struct.unpack("!ii", client.recv(8, socket.MSG_WAITALL))[1] != _SSL_REQUEST:
            client.sendall(b"N")  # another kind of encryption is asked for first
        client.sendall(b"S")
        with context.wrap_socket(client, server_side=True) as encrypted:
            behind.connect(str(server))
            back = threading.Thread(target=_pump, args=(behind, encrypted), daemon=True)
            back.start()
            _pump(encrypted, behind)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
