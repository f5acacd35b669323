"""What codecs cost and what they save: CPU time against time on the link.

    python -m benchmarks.codecs [--quick] [--json]

One shard of 4 MiB of float32, normal numbers, on one core. The median over repetitions of the CPU time to encode and to
decode, against the time that the bytes saved would have taken on a link of 1 Gbit/s: 8 ns each. Below 1 a codec pays on
such a link even if nothing else overlaps with it; on one of 10 Gbit/s the ratio is ten times as large.

Bar: int8 costs at most a quarter of what it saves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bars import Bar, command, finish, table
from gossip import codecs
from gossip.values.layout import SHARD_BYTES

__all__ = ["main"]

SPELLED = (
    *("none", "bf16", "fp16", "int8", "int4", "int2", "sign", "terngrad", "qsgd", "qsgd:levels=127"),
    *("topk:share=1%", "topk:share=10%,values=int8", "topk:share=1%,values=int8", "adacomp"),
)
NS_PER_BYTE = 8.0
RATIO = 0.25


def main(*, quick: bool = False, as_json: bool = False) -> bool:
    """Print the figures and return whether the bar holds."""
    count = SHARD_BYTES // 4
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    figures = {text: _measured(codecs.parse(text), values, 5 if quick else 41) for text in SPELLED}
    text = f"codecs: {count} values of float32, CPU time on one core\n"
    text += table(
        ["codec", "bytes per value", "error, of the length", "encode ns", "decode ns", "cost / saved at 1 Gbit/s"],
        [
            [
                name,
                f"{one['bytes']:.4f}",
                f"{one['error']:.4f}",
                f"{one['encode']:.2f}",
                f"{one['decode']:.2f}",
                f"{one['ratio']:.3f}" if one["ratio"] is not None else "-",
            ]
            for name, one in figures.items()
        ],
    )
    bars = [Bar("int8, cost of what it saves at 1 Gbit/s", figures["int8"]["ratio"], "<=", RATIO)]
    return finish(text, {"codecs": figures}, bars, as_json=as_json)


def _measured(codec: codecs.Codec, values: np.ndarray[Any, Any], repetitions: int) -> dict[str, Any]:
    payload = codec.encode(values, keys=(1,))
    decoded = codec.decode(payload, values.size, values.dtype)
    error = float(np.linalg.norm(values - decoded) / np.linalg.norm(values))
    encode = _nanoseconds(lambda: codec.encode(values, keys=(1,)), values.size, repetitions)
    decode = _nanoseconds(lambda: codec.decode(payload, values.size, values.dtype), values.size, repetitions)
    saved = (values.nbytes - payload.size) / values.size * NS_PER_BYTE
    return {
        "bytes": payload.size / values.size,
        "error": error,
        "encode": encode,
        "decode": decode,
        "ratio": (encode + decode) / saved if saved else None,
    }


def _nanoseconds(call: Callable[[], object], count: int, repetitions: int) -> float:
    """Return the median CPU time of a call, per value."""
    taken = []
    for _ in range(repetitions):
        began = time.process_time()
        call()
        taken.append(time.process_time() - began)
    return median(taken) / count * 1e9


if __name__ == "__main__":
    raise SystemExit(command(main, __doc__))
