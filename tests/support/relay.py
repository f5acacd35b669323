"""A relay between two ends of TCP connections that counts what really goes over the wire."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType

from gossip.endpoint import Endpoint


class Relay:
    """Listens on loopback and passes everything on to an endpoint and back."""

    def __init__(self, to: Endpoint) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = Endpoint("127.0.0.1", self._listener.getsockname()[1])
        self.nbytes = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        self._thread.join(10)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._stop:
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self._listener:
                    near, _ = self._listener.accept()
                    far = socket.create_connection((self._to.host, self._to.port))
                    self._selector.register(near, selectors.EVENT_READ, far)
                    self._selector.register(far, selectors.EVENT_READ, near)
                else:
                    self._pass_on(key.fileobj, key.data)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            data = source.recv(1 << 16)
            if data:
                self.nbytes += len(data)
                target.sendall(data)
                return
        for one in (source, target):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(one)
            one.close()
