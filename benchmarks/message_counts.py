"""How many bytes each kind of message takes per peer and step: real processes on loopback.

    python -m benchmarks.message_counts [--json] [--algorithm outer:h=28] [--compress int2] [--peers 8] [--steps 168]
        [--seconds 0.2] [--parameters 105866]

Each peer has a model of this many parameters, and its steps sleep. Counted is what it hands to its transport from its
first step to its last one, headers included, by the kind in the header (`gossip.wire.kinds`). A chunk is a part of an
average, a parcel is mass, and a roll is membership. The figures are means over the peers. No bar.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgpack

from benchmarks.bars import finish, parser_of, table
from benchmarks.swarms import Swarm
from gossip.net.driver import Driver
from gossip.values.buffers import Buffer
from gossip.wire.kinds import BEFORE, KINDS

__all__ = ["count_messages", "main"]

_NAMES = {kind.number: kind.name for kind in KINDS}


def count_messages(driver: Driver, messages: Counter[str], volumes: Counter[str]) -> None:
    """From now on count the messages, and their bytes, that a driver hands to its transport, by kind."""
    transport: Any = driver._transport
    send = transport.send

    def counted(rank: int, frames: Sequence[Buffer], ordered: bool = False) -> bool:
        taken: bool = send(rank, frames, ordered)
        if taken:
            unpacker = msgpack.Unpacker()
            unpacker.feed(memoryview(frames[0]))
            assert unpacker.read_array_header() >= BEFORE
            name = _NAMES[[unpacker.unpack() for _ in range(BEFORE)][-1]]
            messages[name] += 1
            volumes[name] += sum(map(len, frames))
        return taken

    transport.send = counted


def main(arguments: list[str] | None = None) -> bool:
    """Print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--algorithm", default="outer:h=28", help="(default: outer:h=28)")
    parser.add_argument("--compress", default="int2", help="(default: int2)")
    parser.add_argument("--peers", type=int, default=8, help="processes (default: 8)")
    parser.add_argument("--steps", type=int, default=168, help="of each peer (default: 168)")
    parser.add_argument("--seconds", type=float, default=0.2, help="of a step (default: 0.2)")
    parser.add_argument("--parameters", type=int, default=105_866, help="of the model (default: 105866)")
    asked = parser.parse_args(arguments)
    with Swarm(asked.peers, patience=120.0 + 10 * asked.steps * asked.seconds) as swarm:
        answers = swarm.run(
            "emulated",
            asked.algorithm,
            {"compress": asked.compress},
            nbytes=4 * asked.parameters,
            compute=asked.seconds,
            steps=asked.steps,
            warmup=0,
            counts=True,
        )
    per = asked.peers * asked.steps
    figures = {
        name: {
            "messages": sum(answer["messages"].get(name, 0) for answer in answers) / per,
            "bytes": sum(answer["volumes"].get(name, 0) for answer in answers) / per,
        }
        for name in sorted({name for answer in answers for name in answer["messages"]})
    }
    rows = [[name, f"{one['messages']:.2f}", f"{one['bytes']:,.0f}"] for name, one in figures.items()]
    rows.append(["all", *(f"{sum(one[of] for one in figures.values()):,.{digits}f}" for of, digits in _COLUMNS)])
    taken = max(answer["step_seconds"] for answer in answers)
    text = f"message_counts: {asked.algorithm} {asked.compress}, {asked.peers} processes, {asked.steps} steps of "
    text += f"{taken:.2f} s at most, {asked.parameters:,} parameters; per peer and step\n"
    return finish(text + table(["kind", "messages", "bytes"], rows), {"kinds": figures}, [], as_json=asked.json)


_COLUMNS = (("messages", 2), ("bytes", 0))

if __name__ == "__main__":
    raise SystemExit(not main())
