"""Parcels in a codec: what rounding takes off stays with the sender, and lies about a codec change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hand_swarm import ONE_WAY, PAIR, RUN, Hand, only, sealed

from gossip import codecs, events
from gossip.codecs.choice import Choice
from gossip.errors import Reason, Rejected, SettingsError
from gossip.exchange.coding import AUTO, Coding, check_codec
from gossip.faults import parse_straggler
from gossip.policies import parse
from gossip.settings import Settings
from gossip.simulation import Scenario, simulate
from gossip.values.layout import Layout
from gossip.wire.frames import VERSION, WireCodec
from gossip.wire.messages import Address, Parcel, Pass

COUNT = 600
CARRIERS = ["bf16", "fp16", "int8", "int4", "int8:block=32"]


def random(seed: int, count: int = COUNT) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def mass(hand: Hand) -> np.ndarray:
    """All x that there is, held, waiting and on its way."""
    total = np.zeros(COUNT)
    for core in hand.cores:
        total += core.mass.weights[0] * core.mass.values
        for pile in core.inbox:
            total += pile.weight * pile.values
        for entry in core.outbox:
            total += entry.parcel.weight * entry.parcel.values
    return total


@pytest.mark.parametrize("codec", CARRIERS)
def test_what_rounding_takes_off_stays_with_the_sender(codec: str) -> None:
    hand = Hand(random(0), random(1), turns=[ONE_WAY], compress=codec)
    hand.codec = WireCodec(RUN, hand.layout, codec)
    before = mass(hand)
    first = hand.cores[0].mass.values.copy()
    hand.step(0)
    (parcel,) = hand.parcels()
    full = COUNT * 8
    assert parcel.payload is None or len(parcel.payload) < full
    assert not np.array_equal(parcel.values, first), "there was something to take off"
    np.testing.assert_allclose(mass(hand), before, rtol=0, atol=1e-12)
    hand.step(1)
    hand.settle()
    np.testing.assert_allclose(mass(hand), before, rtol=0, atol=1e-12)
    moved = np.abs(hand.cores[0].mass.values - first).max()
    assert 0 < moved <= np.abs(parcel.values - first).max() + 1e-12, "it gave half, so it moved by what was taken off"


def test_a_refused_parcel_comes_back_as_it_was_sent() -> None:
    hand = Hand(random(0), random(1), turns=[ONE_WAY], compress="int4", weight_cap=1.01)
    before = mass(hand)
    hand.step(0)
    hand.settle()
    assert len(hand.cores[0].outbox) == 0
    assert sum(hand.cores[0].mass.weights) + sum(pile.weight for pile in hand.cores[0].inbox) == pytest.approx(1)
    np.testing.assert_allclose(mass(hand), before, rtol=0, atol=1e-12)


def test_bytes_on_the_wire_are_those_of_the_format() -> None:
    for codec, expected in (("none", 8 * COUNT), ("bf16", 2 * COUNT), ("int8", COUNT + 3 * 4), ("int4", 300 + 10 * 4)):
        hand = Hand(random(0), random(1), turns=[ONE_WAY], compress=codec)
        hand.step(0)
        (send,) = [one for one in hand.post if len(one.frames) == 2]
        assert len(send.frames[1]) == expected, codec


@pytest.mark.parametrize("algorithm", ["sgp", "osgp", "adpsgd", "easgd", "gossip-push", "gossip-pull"])
@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_mass_is_conserved_in_bad_weather(algorithm: str, codec: str) -> None:
    for seed in range(3):
        scenario = Scenario(
            peers=6,
            steps=60,
            topology="epidemic" if algorithm.startswith("gossip") else "one-peer-exponential",
            algorithm=algorithm,
            seed=seed,
            size=96,
            shards=2,
            loss=0.1,
            duplicate=0.1,
            delay=(0.01, 0.2),
            stragglers=(parse_straggler("2=4x"),),
            settings=Settings(compress=codec),
        )
        result = simulate(scenario)  # raises where mass is not conserved
        assert result.weight_total == pytest.approx(6)
        assert result.disagreement < 0.2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"codec": "int8"}, Reason.DTYPE),  # not as it is spelled
        ({"codec": "topk:share=0.01,values=plain"}, Reason.DTYPE),  # a codec that cannot carry mass
        ({"codec": "int8:block=1000000000"}, Reason.DTYPE),  # memory of ours, at its word
        ({"codec": "nonsense"}, Reason.DTYPE),
        ({"codec": 7}, Reason.DTYPE),
        ({"codec": None}, Reason.DTYPE),
        ({"dtype": "float32"}, Reason.DTYPE),
        ({"length": 5}, Reason.SHAPE),
        ({"body": b"\x00" * 5}, Reason.TRUNCATED),
        ({"body": b"", "length": 0}, Reason.TRUNCATED),
        ({"shard": 3}, Reason.SHAPE),
        ({"scale": float("nan")}, None),
        ({"scale": float("inf")}, None),
    ],
    ids=repr,
)
def test_a_lie_about_a_codec_is_rejected(change: dict[str, Any], reason: Reason | None) -> None:
    wire = WireCodec("run", Layout.uniform(COUNT, 1, np.float64), "int8")
    codec = codecs.get("int8")
    body = bytearray(codec.encode(random(2)))
    if "scale" in change:
        body[:4] = np.float32(change["scale"]).tobytes()
    body = change.get("body", bytes(body))
    told = {"shard": 0, "dtype": "float64", "length": len(body), "codec": codecs.spell(codec), **change}
    fields = [
        VERSION,
        "run",
        0,
        7,
        0,
        1,
        0,
        5,
        6,
        told["shard"],
        0.5,
        0.0,
        told["dtype"],
        told["length"],
        told["codec"],
    ]
    with pytest.raises(Rejected) as caught:
        wire.decode(sealed(fields, bytes(body)))
    assert caught.value.origin == 7
    if reason is not None:
        assert caught.value.reason is reason


def test_the_same_without_a_lie_is_taken() -> None:
    wire = WireCodec("run", Layout.uniform(COUNT, 1, np.float64), "int8")
    codec = codecs.get("int8")
    body = bytes(codec.encode(random(2)))
    told = wire.decode(
        sealed([VERSION, "run", 0, 7, 0, 1, 0, 5, 6, 0, 0.5, 0.0, "float64", len(body), codecs.spell(codec)], body)
    )
    assert isinstance(told, Parcel)
    assert told.origin == Address(7, 0)
    assert np.abs(told.values - random(2)).max() < 0.02


@pytest.mark.parametrize("name", ["sign", "topk", "terngrad", "qsgd", "adacomp"])
def test_what_cannot_carry_mass_is_refused_with_what_can(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"{name} cannot carry mass.*Use bf16, fp16, int4, int8, none or auto"):
        check_codec(name)
    with pytest.raises(SettingsError, match="cannot carry mass"):
        Hand(random(0), random(1), turns=[ONE_WAY], compress=name)


@pytest.mark.parametrize(
    ("algorithm", "codec", "said"),
    [
        (
            "osgp",
            "topk",
            "; or, for topk, allreduce, or choco on a fixed symmetric topology; or say topk-pair with adpsgd",
        ),
        ("osgp", "sign", "none or auto; or, for sign, allreduce, or choco on a fixed symmetric topology"),
        ("adpsgd", "topk", "Use topk-pair, with which adpsgd averages the values that changed most; or bf16, "),
        ("adpsgd", "topk", "none or auto; or, for topk, allreduce, or choco on a fixed symmetric topology"),
        ("local", "topk", "Use local with differences=true, on a fixed symmetric topology; or bf16, "),
    ],
)
def test_what_cannot_carry_mass_is_refused_with_the_algorithms_that_need_not(
    algorithm: str, codec: str, said: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        check_codec(codec, parse(algorithm))
    assert said in str(caught.value)


@pytest.mark.parametrize("algorithm", [None, "sgp", "adpsgd", "choco", "allreduce"])
@pytest.mark.parametrize("text", ["auto:x=1", "auto:", "auto:int8"])
def test_auto_takes_no_parameters(text: str, algorithm: str | None) -> None:
    policy = None if algorithm is None else parse(algorithm)
    with pytest.raises(SettingsError, match=f"auto takes no parameters.*Say auto, not '{text}'"):
        check_codec(text, policy)
    with pytest.raises(SettingsError, match="auto takes no parameters"):
        Coding(text, 1.0, Layout.uniform(COUNT, 1, np.float64), policy)


@pytest.mark.parametrize("name", ["", "zip"])
def test_an_unknown_name_is_told_all_there_are(name: str) -> None:
    known = ", ".join(sorted([*codecs.names(), "auto", "topk-pair"]))
    with pytest.raises(SettingsError, match=f"no codec is called '{name}'; there are: {known}"):
        check_codec(name)


@pytest.mark.parametrize(("name", "near"), [("atuo", "auto"), ("top-pair", "topk-pair")])
def test_a_misspelt_name_is_told_what_is_near(name: str, near: str) -> None:
    with pytest.raises(SettingsError, match=f"did you mean {near}"):
        check_codec(name)


class Link:
    """A link of a rate, and a peer that pushes a model over it once per step.

    It waits for what does not get through while it computes, and for ``more`` seconds, given how long pushes take.
    """

    def __init__(
        self,
        rate: float,
        compute: float,
        share: float = 1.0,
        more: Callable[[float], float] = lambda _: 0.0,
        shards: int = 16,
    ) -> None:
        self.coding = Coding(AUTO, share, Layout.uniform(1 << 20, shards, np.float32))
        self._shards = shards
        self._rate, self._compute, self._now, self._waited = rate, compute, 0.0, 0.0
        self._more = more

    def run(self, steps: int) -> list[str]:
        said = []
        for _ in range(steps):
            began = self._now
            for shard in range(max(1, round(self.coding.share * self._shards))):
                nbytes = self.coding.nbytes(shard)
                self.coding.busy(True, self._now)
                self._now += nbytes / self._rate
                self.coding.answered(nbytes)
                self.coding.busy(False, self._now)
            pushed = self._now - began
            self._waited += max(0.0, pushed - self._compute) + self._more(pushed)
            self._now = max(self._now, began + self._compute)
            choice = self.coding.exchanged(self._compute, self._waited, 1, 8)
            if choice is not None:
                said.append(str(choice))
        return said


@pytest.mark.parametrize(
    ("rate", "chosen"),
    [
        (100e6, ["none"]),  # 4 MiB in 0.04 s
        (30e6, ["bf16"]),  # 0.07 s for 2 MiB, and 0.14 s for 4 would be more than a quarter of a step
        (8e6, ["int8"]),
        (3e6, ["int8"]),  # as it began, 0.36 s: told once all the same
        (1.3e6, ["int8, 50% of the shards"]),  # 0.41 s, a little too long: that costs less than half of the shards
        (1e6, ["int8, 25% of the shards"]),  # half would take 0.53 s
        (1e4, ["int8, 6% of the shards"]),  # no less than a sixteenth
    ],
)
def test_auto_takes_the_heaviest_that_the_link_carries_and_stays_with_it(rate: float, chosen: list[str]) -> None:
    assert Link(rate, 0.5).run(200) == chosen


@pytest.mark.parametrize(
    ("shards", "chosen"),
    [(1, "int8"), (2, "int8, 50%"), (3, "int8, 33%"), (8, "int8, 12%"), (24, "int8, 8%"), (200, "int8, 6%")],
)
def test_auto_leaves_out_whole_shards_and_says_how_much_that_is(shards: int, chosen: str) -> None:
    link = Link(1e4, 0.5, shards=shards)
    assert link.run(200)[-1].removesuffix(" of the shards") == chosen
    pushed = sum(not link.coding.leaves_out(shard, 0) for shard in range(shards))
    assert link.coding.share == pushed / shards


def test_auto_takes_back_nothing_but_what_it_tried() -> None:
    """There is nothing less to try of a single shard, and so no way back to what was chosen long ago."""
    link = Link(100e6, 0.5, shards=1)
    assert link.run(40) == ["none"]
    link._rate, link._more = 3e6, lambda _: 0.1
    assert link.run(100) == ["int8"]


def test_auto_follows_a_link_that_changes() -> None:
    link = Link(100e6, 0.5)
    assert link.run(40) == ["none"]
    link._rate = 3e6
    assert link.run(40)[-1] == "int8"  # by way of bf16, where the change falls between two looks
    link._rate = 100e6
    assert link.run(40) == ["none"]


def test_auto_pushes_less_where_parcels_come_too_late_for_others() -> None:
    """A link that could carry int8 in 0.36 s of 0.5 s, among peers that are apart by so much that 0.1 s are late."""
    link = Link(3e6, 0.5, more=lambda pushed: 2 * max(0.0, pushed - 0.1))
    half, quarter = (f"int8, {share} of the shards" for share in ("50%", "25%"))
    assert link.run(24) == [half, quarter]
    # Now and then it tries whether more would go by now.
    assert link.run(400).count(half) in (1, 2, 3)


def test_auto_pushes_no_less_where_that_does_not_help() -> None:
    """Somebody computes for longer: what is pushed is not the reason. It is tried, and taken back."""
    link = Link(3e6, 0.5, more=lambda _: 0.1)
    assert link.run(100) == ["int8, 50% of the shards", "int8"]


def test_auto_does_not_blame_a_push_that_takes_no_time() -> None:
    assert Link(100e6, 0.5, more=lambda _: 0.1).run(100) == ["none"]


def chosen_by_cores(algorithm: str, steps: int, takes: float, *, measuring: bool = False) -> list[Choice]:
    """Let two peers compute steps of 0.1 s, whose pushes take so long, and return what the first one chooses."""
    hand = Hand(random(0, 2048), random(1, 2048), algorithm=algorithm, shards=16, compress=AUTO)
    for core in hand.cores:
        core.state.measuring = measuring
    said: list[Choice] = []
    pushed_at: float | None = None
    for step in range(1, steps + 1):
        if pushed_at is not None and pushed_at + takes <= 0.1 * step:
            hand.now, pushed_at = pushed_at + takes, None
            hand.settle()
        hand.now = 0.1 * step
        for rank in range(2):
            said += [one.choice for one in only(hand.step(rank), events.Compressing) if rank == 0]
        if hand.post and pushed_at is None:
            pushed_at = hand.now
    return said


@pytest.mark.parametrize("algorithm", ["local:h=8", "gossip-push:tau=8"])
def test_auto_counts_all_the_steps_from_one_exchange_to_the_next(algorithm: str) -> None:
    """A push of 0.27 s is hidden by 0.8 s of computing, though not by the 0.1 s of a step."""
    (choice,) = chosen_by_cores(algorithm, 256, 0.27)
    assert str(choice) == "int8"
    assert choice.reason.endswith(
        "so a push takes 0.27 s; from one to the next the trainer computes 0.8 s and waited 0 s"
    )
    assert str(chosen_by_cores(algorithm, 256, 0.7)[0]) == "int8, 50% of the shards"


def test_auto_chooses_nothing_while_replicas_are_only_mixed() -> None:
    """Then whole shards go out as they are, in steps that compute nothing."""
    assert [str(one) for one in chosen_by_cores("gossip-push", 64, 0.05)] == ["int8"]
    assert chosen_by_cores("gossip-push", 64, 0.05, measuring=True) == []


def test_shards_that_are_left_out_take_their_turn_and_neighbours_hear_of_it() -> None:
    """Or who pushes all of its shards would wait for one that pushes less; in the long run all get their push."""
    hand = Hand(random(0), random(1), turns=[PAIR], algorithm="sgp", shards=8, compress=AUTO)
    hand.cores[0].coding._choose("int8", 0.25)
    pushed: Counter[int] = Counter()
    for _ in range(40):
        hand.now += 1.0
        hand.step(0)
        mail = [one for one in hand.mail() if isinstance(one, Parcel | Pass) and one.origin.rank == 0]
        assert sorted(one.shard for one in mail) == list(range(8))
        told = [one.shard for one in mail if isinstance(one, Parcel)]
        assert len(told) == 2
        pushed.update(told)
        hand.step(1)
        assert hand.settle()
    assert hand.cores[0].turns == [40] * 8
    assert min(pushed.values()) >= 4, "10 of 40, were they dealt out evenly"


def test_auto_keeps_to_the_share_that_it_was_given() -> None:
    link = Link(1e9, 0.5, share=0.5)
    assert link.run(40) == ["none, 50% of the shards"]


@pytest.mark.parametrize(
    ("rate", "chosen"),
    [
        (200e6, "none"),  # 0.02 s
        (8e6, "int8"),  # 0.13 s beside a second: half of the shards would save half of that, and be worth 12% less
        (3e6, "int8, 50% of the shards"),  # 0.36 s for all of them
        (0.5e6, "int8, 25% of the shards"),  # 2.1 s for all of them
    ],
)
def test_auto_weighs_a_push_that_is_waited_for_against_what_a_share_is_worth(rate: float, chosen: str) -> None:
    coding = Coding(AUTO, 1.0, Layout.uniform(1 << 20, 16, np.float32), parse("sgp"))
    whole = {codec: coding._seconds(codec, rate, 1) for codec in ("none", "int8")}
    assert whole["none"] == pytest.approx(4 * (1 << 20) / rate)
    name, share = coding._best(rate, 1.0, 1, 8)
    assert str(Choice(name, share, "")) == chosen


def test_auto_does_not_give_up_shards_for_a_wait_that_costs_less() -> None:
    """Half of the shards would be worth 15% less. A wait of 10% is not worth that, and one of 60% is."""
    assert Link(3e6, 0.5, more=lambda pushed: 0.14 * pushed).run(100) == ["int8"]
    assert Link(3e6, 0.5, more=lambda pushed: 0.8 * pushed).run(8) == ["int8, 50% of the shards"]
