"""Measuring what a plan needs to know: how fast this machine computes, and its loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from gossip.costs.machine import LinkSpeed, Pace
from gossip.errors import SettingsError
from peers.planner.model_reading import InputShape, example_batch

__all__ = ["measure_loopback", "measure_pace"]

#: The best of several is the one that was least disturbed.
_REPEATS = 3
#: A second, larger batch shows what each sample costs beside the fixed part.
_LARGER = 4
#: Processes beyond these share cores in a way that a real crew would not.
_MOST_PROCESSES = 8
_TIMEOUT = 120.0


def measure_pace(model: nn.Module, shape: InputShape, samples: int, processes: int) -> Pace:
    """Measure forward and backward for ``samples`` and for four times as many.

    Args:
        model: with real values; gradients are cleared before and after.
        shape: of one sample.
        samples: of the smaller batch.
        processes: the processes of this machine, among which its cores are divided.
    """
    threads = torch.get_num_threads()
    cores = os.cpu_count() or 1
    torch.set_num_threads(max(1, cores // processes))
    try:
        # Processes that share a core take turns.
        crowd = max(1.0, processes / cores)
        small, large = (_seconds(model, shape, count) * crowd for count in (samples, samples * _LARGER))
    finally:
        torch.set_num_threads(threads)
    each = (large - small) / (samples * (_LARGER - 1))
    fixed = small - each * samples
    if each <= 0 or fixed < 0:  # the machine was disturbed, or nothing is fixed
        return Pace(large / (samples * _LARGER))
    return Pace(each, fixed)


def _seconds(model: nn.Module, shape: InputShape, samples: int) -> float:
    batch = example_batch(shape, samples)
    model.train()
    best = float("inf")
    for _ in range(1 + _REPEATS):
        model.zero_grad(set_to_none=True)
        start = time.perf_counter()
        out = model(batch)
        (out[0] if isinstance(out, tuple) else out).float().mean().backward()
        best = min(best, time.perf_counter() - start)
    model.zero_grad(set_to_none=True)
    return best


def measure_loopback(processes: int) -> LinkSpeed:
    """Measure what each of some processes of this machine gets when all of them all-reduce through gloo.

    The result is what the formulas want: the rate and the latency by which they predict the measured times.
    """
    count = min(max(2, processes), _MOST_PROCESSES)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "store")
        command = [sys.executable, "-m", "peers.planner.loopback", str(count), str(place)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        running = [
            subprocess.Popen(  # noqa: S603
                [*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for rank in range(count)
        ]
        try:
            told = [process.communicate(timeout=_TIMEOUT) for process in running]
        except subprocess.TimeoutExpired as error:
            raise SettingsError(f"measure: {count} processes on this machine did not answer in {_TIMEOUT} s") from error
        finally:
            for process in running:
                process.kill()
                process.wait()
        failed = [err for process, (_, err) in zip(running, told, strict=True) if process.returncode]
        if failed:
            last = (failed[0].strip().splitlines() or ["no message"])[-1]
            raise SettingsError(f"measure: {len(failed)} of {count} processes on this machine failed: {last}")
        latency, rate = (float(word) for word in told[0][0].split())
    return LinkSpeed(rate, latency)
