"""Collectives, links and units, by hand."""

from __future__ import annotations

import pytest

from gossip.costs.machine import LinkSpeed, Machine, Pace
from gossip.costs.units import parse_flops, parse_latency, parse_rate, parse_size
from gossip.costs.volumes import Volume, all_gather, all_reduce, model_parallel, reduce_scatter
from gossip.errors import SettingsError
from gossip.grids import Grid


@pytest.mark.parametrize(("n", "messages"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (512, 9)])
def test_a_gather_takes_the_logarithm_of_messages_and_all_but_the_own_part(n: int, messages: int) -> None:
    assert all_gather(n, 1000) == Volume(messages, 1000 * (n - 1) / n)
    assert all_reduce(n, 1000) == Volume(2 * messages, 2000 * (n - 1) / n)


def test_nothing_takes_no_message() -> None:
    assert all_reduce(8, 0) == Volume(0, 0)


def test_a_reduce_scatter_costs_an_all_reduce_on_gloo_and_half_of_it_elsewhere() -> None:
    assert reduce_scatter(4, 100) == all_reduce(4, 100)
    assert reduce_scatter(4, 100, "nccl") == all_gather(4, 100)


def test_model_parallel_gathers_outputs_and_sums_gradients_of_inputs() -> None:
    assert model_parallel(4, inputs=400, outputs=100, first=False) == Volume(2 + 4, 75 + 600)
    assert model_parallel(4, inputs=400, outputs=100, first=True) == Volume(2, 75)


def test_a_link_takes_its_latency_for_each_message() -> None:
    assert LinkSpeed(100.0, 0.5).seconds(Volume(3, 200)) == 3.5


def test_a_pace_by_operations_counts_three_passes_of_two_operations() -> None:
    assert Pace.of_flops(work=10.0, flops=120.0) == Pace(0.5)


def test_crews_leave_a_host_where_its_slots_are_not_divisible() -> None:
    link = LinkSpeed(1.0)
    assert Machine((4, 4), link, link).spanning(Grid(4, 2)) == 0
    assert Machine((4, 4), link, link).spanning(Grid(8, 1)) == 1
    # Both crews of the middle host reach over to another one.
    assert Machine((1, 2, 1), link, link).spanning(Grid(2, 2)) == 2


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "10Gbit", 1.25e9),
        (parse_rate, "50Mbit/s", 6.25e6),
        (parse_rate, " 1.2 GB/s ", 1.2e9),
        (parse_size, "8GiB", 8 * 2**30),
        (parse_size, "500MB", 5e8),
        (parse_latency, "1ms", 1e-3),
        (parse_latency, "50us", 5e-5),
        (parse_latency, "0", 0.0),
        (parse_flops, "50G", 5e10),
        (parse_flops, "10Tflops", 1e13),
    ],
)
def test_units(parse: object, text: str, value: float) -> None:
    assert callable(parse)
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_rate, "10", "'10' is not a rate such as 10Gbit"),
        (parse_rate, "0Gbit", "is not a rate"),
        (parse_rate, "10GiB", "is not a rate"),
        (parse_rate, "-1Gbit", "is not a rate"),
        (parse_size, "8", "'8' is not a size such as 8GiB"),
        (parse_size, "1e999GB", "is not a size"),
        (parse_latency, "1h", "'1h' is not a time such as 1ms"),
        (parse_flops, "fast", "'fast' is not a number of operations per second"),
    ],
)
def test_other_units_are_refused(parse: object, text: str, message: str) -> None:
    assert callable(parse)
    with pytest.raises(SettingsError, match=message):
        parse(text)


def test_machines_that_cannot_be_are_refused() -> None:
    link = LinkSpeed(1.0)
    with pytest.raises(SettingsError, match="rate of a link must be above 0"):
        LinkSpeed(0.0)
    with pytest.raises(SettingsError, match="latency of a link"):
        LinkSpeed(1.0, -1.0)
    with pytest.raises(SettingsError, match="hosts must have one slot or more"):
        Machine((2, 0), link, link)
    with pytest.raises(SettingsError, match="each must be a number of seconds"):
        Pace(float("nan"))
    with pytest.raises(SettingsError, match="flops must be above 0"):
        Pace.of_flops(1.0, 0.0)
