"""Between a program and its database: connections that are cut around a commit.

What comes from the program is passed on, and so is what the database answers, until a commit is to be cut: then
either the commit never arrives, or it arrives and its answer does not. The program cannot tell one from the other.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path

from django.db import connection

_COMMIT = b"COMMIT\0"


class Cutter:
    """A listener in a folder of its own, to which programs connect as to the database.

    What is `armed` ("before", "after") happens to the next commit, whoever makes it; `cut` counts what did.
    """

    def __init__(self) -> None:
        self.armed: list[str] = []
        self.cut = {"before": 0, "after": 0}
        self.folder = tempfile.mkdtemp(prefix="am-cut-", dir="/tmp")
        params = connection.get_connection_params()
        self._host, self._port = str(params.get("host") or "/tmp"), int(params.get("port") or 5432)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(self.folder) / f".s.PGSQL.{self._port}"))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _connect(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return server

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, self._connect() as server:
            threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()
            try:
                while data := client.recv(65536):
                    if _COMMIT in data and (when := self._due()):
                        return self._cut(when, data, client, server)
                    server.sendall(data)
            finally:
                # Closing alone ends nothing while the other thread reads.
                server.shutdown(socket.SHUT_RDWR)

    def _due(self) -> str:
        try:
            return self.armed.pop()
        except IndexError:
            return ""

    def _cut(self, when: str, data: bytes, client: socket.socket, server: socket.socket) -> None:
        self.cut[when] += 1
        client.shutdown(socket.SHUT_RDWR)
        if when == "after":
            server.sendall(data)
            # It ends the connection in order, so that the commit is carried out whatever the scheduler does.
            server.sendall(b"X\0\0\0\4")
            server.settimeout(10)
            while server.recv(65536):
                pass


def _pass_on(server: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(65536):
            client.sendall(data)
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)
