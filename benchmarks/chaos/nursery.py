"""The process from which peers are forked. It has done all their imports, which would take each row seconds.

A fork has its own session, files, environment and namespaces, as if it had been started. The nursery has no thread and
no ZeroMQ context, so a fork of it is like a new process. The process that asked for a fork holds a connection for it.
The connection reports how the fork ended. If the connection ends first, the fork is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from gossip.net.process_environment import ENVIRONMENT

__all__ = ["Nursery"]

ROOT = Path(__file__).resolve().parents[2]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_NAMESPACES = (0x40000000, 0x00020000)  # CLONE_NEWNET, CLONE_NEWNS
_LOOK = 0.02
_PATIENCE = 60.0


class Nursery:
    """The nursery's process, as the harness has it."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "nursery")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self.path],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD, **ENVIRONMENT},
        )

    def __enter__(self) -> Nursery:
        deadline = time.monotonic() + _PATIENCE
        while not Path(self.path).exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the nursery does not start")
            time.sleep(_LOOK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE)


class _Forks:
    """Inside of the nursery: whom it has forked, and for whom."""

    def __init__(self, path: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._asking: dict[int, socket.socket] = {}
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(path + ".new")
        self._server.listen(64)
        Path(path + ".new").rename(path)
        self._selector.register(self._server, selectors.EVENT_READ, "new")
        self._selector.register(0, selectors.EVENT_READ, "end")

    def serve(self) -> None:
        """Fork until stdin ends, then end all that were forked."""
        while True:
            for key, _ in self._selector.select(_LOOK):
                if key.data == "end":
                    for pid in self._asking:
                        os.kill(pid, signal.SIGKILL)
                    return
                if key.data == "new":
                    self._fork(self._server.accept()[0])
                else:
                    self._lost(key.data)
            self._reap()

    def _fork(self, control: socket.socket) -> None:
        data, files, _, _ = socket.recv_fds(control, 1 << 20, 16)
        if not data:
            control.close()
            return
        pid = os.fork()
        if not pid:
            self._become(data, files)
        for file in files:
            os.close(file)
        self._asking[pid] = control
        with contextlib.suppress(OSError):  # who asked may be gone already
            control.send(str(pid).encode())
        self._selector.register(control, selectors.EVENT_READ, pid)

    def _lost(self, pid: int) -> None:
        """Kill a process for which nobody stands any more."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._selector.unregister(self._asking[pid])

    def _reap(self) -> None:
        while self._asking:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            control = self._asking.pop(pid)
            with contextlib.suppress(KeyError):
                self._selector.unregister(control)
            with contextlib.suppress(OSError):
                control.send(str(os.waitstatus_to_exitcode(status)).encode())
            control.close()

    def _become(self, data: bytes, files: list[int]) -> None:
        """Be, in the fork, what was asked for; never returns."""
        code = 1
        try:
            self._selector.close()
            self._server.close()
            for control in self._asking.values():
                control.close()
            os.setsid()
            told = json.loads(data)
            for number, file in enumerate(files[:3]):
                os.dup2(file, number)
            libc = ctypes.CDLL(None, use_errno=True)
            for file, kind in zip(files[5:], _NAMESPACES, strict=True):
                # Only if it is another one: a user without rights has none but the nursery's.
                same = os.fstat(file).st_ino == Path(f"/proc/self/ns/{_KINDS[kind]}").stat().st_ino
                if not same and libc.setns(file, kind):
                    raise OSError(ctypes.get_errno(), "setns")
                os.close(file)
            os.chdir(told["directory"])
            os.environ.clear()
            os.environ.update({**told["environment"], "GOSSIP_CHANNEL": f"{files[3]},{files[4]}"})
            del os.environ["CHAOS_NURSERY"]
            from benchmarks.chaos.training import train

            train(told["arguments"])
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 - as the interpreter does at its end
            sys.excepthook(*sys.exc_info())
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


_KINDS = dict(zip(_NAMESPACES, ("net", "mnt"), strict=True))


if __name__ == "__main__":
    import sklearn.datasets  # type: ignore[import-untyped]
    import torch

    import benchmarks.chaos.training  # noqa: F401

    torch.set_num_threads(1)
    sklearn.datasets.load_digits()
    _Forks(sys.argv[1]).serve()
