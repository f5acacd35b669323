"""Somebody who is no peer, and sends what no peer would: a process, told what to do by a line of JSON.

    echo '{"what": "parcels", "endpoint": "127.0.0.1:4711", ...}' | python -m benchmarks.chaos.intruder

It prints how many messages ZeroMQ took from it. Without a line it ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zmq

from gossip.values.buffers import Buffer
from gossip.values.layout import Layout
from gossip.wire import frames as wire
from gossip.wire.frames import WireCodec
from gossip.wire.messages import Address, Parcel

__all__ = ["parcels", "recorded"]


def parcels(order: dict[str, Any]) -> Iterator[Sequence[Buffer]]:
    """Yield parcels that claim to be from one peer, for another."""
    if "version" in order:
        wire.VERSION = order["version"]
    codec = WireCodec(order["run"], Layout.uniform(order["size"], 1, np.float32))
    values = np.full(order["size"], float(order.get("value", 0.0)), np.float32)
    weight = float(order.get("weight", 0.5))
    origin, destination = Address(*order["origin"]), Address(*order["destination"])
    for sequence in range(order["first"], order["first"] + order["count"]):
        yield codec.encode(Parcel(origin, destination, sequence, sequence, 0, weight, values))


def recorded(order: dict[str, Any]) -> Iterator[Sequence[Buffer]]:
    """Yield what was recorded of old traffic."""
    with Path(order["recording"]).open("rb") as file:
        yield from msgpack.Unpacker(file)


def main() -> None:
    """Do what the order says."""
    line = sys.stdin.readline()
    if not line:
        return
    order = json.loads(line)
    context = zmq.Context()
    outlet = context.socket(zmq.PUSH)
    # Of who is let in all is to arrive, however long others are held up; who is not waits for nothing.
    patience = round(1000 * order.get("patience", 0.0))
    outlet.setsockopt(zmq.LINGER, max(500, patience))
    outlet.setsockopt(zmq.IMMEDIATE, 1)
    outlet.setsockopt(zmq.SNDTIMEO, 100)
    if "server_key" in order:
        outlet.setsockopt(zmq.CURVE_SERVERKEY, order["server_key"].encode())
        public, secret = (half.encode() for half in order["keys"]) if "keys" in order else zmq.curve_keypair()
        outlet.setsockopt(zmq.CURVE_PUBLICKEY, public)
        outlet.setsockopt(zmq.CURVE_SECRETKEY, secret)
    outlet.connect(f"tcp://{order['endpoint']}")
    outlet.poll(patience, zmq.POLLOUT)
    taken = 0
    deadline = time.monotonic() + order.get("seconds", 5.0)
    for _ in range(order.get("times", 1)):
        for frames in {"parcels": parcels, "recorded": recorded}[order["what"]](order):
            try:
                outlet.send_multipart(frames)
                taken += 1
            except zmq.Again:
                pass  # nobody lets us in
            if time.monotonic() > deadline:
                break
            time.sleep(order.get("pause", 0.01))
    outlet.close()
    context.term()
    print(taken)


if __name__ == "__main__":
    main()
