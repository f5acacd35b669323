"""One life of a peer on Ray: an actor that runs the user's function in one thread, and talks to the driver in others.

`peers.join` in the function finds a channel, as under `gossip launch`: two pipes, here of this very process. What the
driver tells comes as a call of the actor and goes into one pipe; what the peer says is read from the other one by a
call that waits for it. So settings, keys and addresses go by Ray's own connections, and the environment holds nothing
but the numbers of two file descriptors.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import select
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import ray

from gossip.endpoint import Endpoint

__all__ = ["NODE", "OVER", "STOPPED", "TALK", "VALUE", "Member", "takes_config"]

#: The keys of the first and of the last line of a life.
NODE, OVER = "node", "over"
#: The keys of what a life returns: what the function returned, or that it was asked to stop.
VALUE, STOPPED = "value", "stopped"
#: The threads of the actor that are there while the function runs.
TALK = {"talk": 4}
#: Seconds for which a call waits for a word of the peer. The next call follows.
_LISTEN = 10.0


def takes_config(function: Callable[..., Any]) -> bool:
    """Whether the function has a parameter, for its configuration."""
    try:
        return bool(inspect.signature(function).parameters)
    except ValueError:  # a builtin
        return False


class Member:
    """An actor, for one life of one rank."""

    def __init__(self) -> None:
        heard_by_peer, self._tell = os.pipe()
        self._hear, said_by_peer = os.pipe()
        self._last_word = os.dup(said_by_peer)  # the channel closes its own end
        self._channel = f"{heard_by_peer},{said_by_peer}"
        self._unread = b""
        self._pen = threading.Lock()
        #: Guards the next two: the thread that runs the function, 0 for none, and whether it was asked to stop.
        self._state = threading.Lock()
        self._thread, self._asked = 0, False

    def run(self, function: Callable[..., Any], config: Mapping[str, Any], setup: Mapping[str, Any]) -> dict[str, Any]:
        """Run the function as a peer with these settings, and return what it returns.

        Args:
            function: of the user, which calls `peers.join`.
            config: for the function, if it takes one.
            setup: the settings of the peer; the address to listen on is added here.
        """
        self._say({NODE: ray.get_runtime_context().get_node_id()})
        self.tell({"setup": {**setup, "bind": str(Endpoint(ray.util.get_node_ip_address(), 0))}})
        os.environ["GOSSIP_CHANNEL"] = self._channel
        try:
            return {VALUE: self._called(function, config)}
        except KeyboardInterrupt:
            return {STOPPED: True}
        except SystemExit as request:
            if self._asked:
                return {STOPPED: True}
            if request.code not in (None, 0):  # Ray would take it for a request to end the actor
                raise RuntimeError(f"the function called sys.exit({request.code!r})") from None
            return {VALUE: None}
        finally:
            self._say({OVER: True})

    def _called(self, function: Callable[..., Any], config: Mapping[str, Any]) -> Any:
        with self._state:
            if self._asked:
                raise KeyboardInterrupt
            self._thread = threading.get_ident()
        try:
            value = function(dict(config)) if takes_config(function) else function()
        except BaseException as error:
            self._ran(error)
            raise
        self._ran(None)
        return value

    def _ran(self, error: BaseException | None) -> None:
        """End the peers that the function has left open: when Ray ends a process, nothing is called at its exit."""
        with self._state:
            self._thread = 0
        for peer in _open_peers():
            peer.__exit__(None if error is None else type(error), error, None)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Pass a message of the driver on to the peer."""
        line = json.dumps(message).encode() + b"\n"
        with self._pen:
            while line:
                line = line[os.write(self._tell, line) :]

    def hear(self) -> list[dict[str, Any]]:
        """Wait until the peer says something, and return that; after some seconds of silence, nothing."""
        if not select.select([self._hear], [], [], _LISTEN)[0]:
            return []
        *lines, self._unread = (self._unread + os.read(self._hear, 1 << 16)).split(b"\n")
        return [json.loads(line) for line in lines]

    def stop(self, at_once: bool = False) -> None:
        """Ask the peer to end: at its next boundary if one is ahead, at once otherwise."""
        with self._state:
            self._asked = True
            ahead = [peer.ask_to_stop() for peer in _open_peers()]
            if self._thread and (at_once or not any(ahead)):
                # A signal would reach the main thread only, and the function runs in another one.
                interrupt = ctypes.py_object(KeyboardInterrupt)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), interrupt)

    def _say(self, message: Mapping[str, Any]) -> None:
        os.write(self._last_word, json.dumps(message).encode() + b"\n")


def _open_peers() -> list[Any]:
    """Return the peers of this process; a function that has none is not to wait for torch."""
    joining = sys.modules.get("peers.joining")
    return [] if joining is None else list(joining.open_peers())
