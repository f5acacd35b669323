"""Any model and any optimizer of torch's becomes a replica as it is, and all peers start from the same weights."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from swarms import LONGEST, Meeting, flat, patient, swarm
from torch import nn

from gossip.errors import SettingsError
from peers import Peer, PeerError
from peers.session.rendezvous import StartError

Parameters = Any
Make = Callable[[Parameters], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda ones: torch.optim.SGD(ones, lr=0.05),
    "nesterov": lambda ones: torch.optim.SGD(ones, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda ones: torch.optim.Adam(ones, lr=0.01),
    "adamw-fused": lambda ones: torch.optim.AdamW(ones, lr=0.01, fused=True),
    "adamw-foreach": lambda ones: torch.optim.AdamW(ones, lr=0.01, foreach=True),
    "rmsprop": lambda ones: torch.optim.RMSprop(ones, lr=0.01),
    "adagrad": lambda ones: torch.optim.Adagrad(ones, lr=0.01),
}


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 6, generator=generator), torch.randn(16, 3, generator=generator)


def loss_of(model: nn.Module, seed: int = 0) -> torch.Tensor:
    x, y = data(seed)
    return nn.functional.mse_loss(model(x), y)


def alone(body: Callable[[Peer], Any], **setup: Any) -> Any:
    return swarm(1, body, **setup)[0]


def bits(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.clone() for name, one in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 5) -> dict[str, torch.Tensor]:
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    return bits(model)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_alone_an_attached_model_trains_to_the_last_bit_like_a_plain_one(name: str) -> None:
    plain, attached = network(1), network(1)
    expected = trained(plain, OPTIMIZERS[name](plain.parameters()))

    def body(peer: Peer) -> dict[str, torch.Tensor]:
        optimizer = OPTIMIZERS[name](attached.parameters())
        peer.attach(attached, optimizer)
        found = trained(attached, optimizer)
        assert peer.step == 5
        return found

    assert same(alone(body), expected)


def test_lbfgs_with_a_closure_parameter_groups_clipping_and_a_scheduler() -> None:
    def run(peer: Peer | None) -> dict[str, torch.Tensor]:
        model = network(2)
        groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[3].parameters(), "lr": 0.01}]
        optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.5)
        closures = torch.optim.LBFGS(model[1].parameters(), max_iter=3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        if peer is not None:
            peer.attach(model, optimizer)
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            scheduler.step()
        assert scheduler.get_last_lr() == [0.0125, 0.00125]
        if peer is not None:
            assert peer.step == 6

        def closure() -> torch.Tensor:
            closures.zero_grad()
            loss = loss_of(model)
            loss.backward()
            return loss

        closures.step(closure)
        return bits(model)

    assert same(alone(run), run(None))


def test_an_attached_lbfgs_steps_once_per_call() -> None:
    model = network(3)

    def body(peer: Peer) -> tuple[float, float]:
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
        peer.attach(model, optimizer)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            return loss

        first = float(loss_of(model).detach())
        for calls in range(1, 4):
            optimizer.step(closure)
            assert peer.step == calls
        return first, float(loss_of(model).detach())

    first, last = alone(body)
    assert last < first


def test_gradients_that_pile_up_and_steps_that_the_scaler_leaves_out_do_not_gossip() -> None:
    def body(peer: Peer) -> tuple[int, int]:
        model = network(peer.rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        peer.attach(model, optimizer)
        pushed = []
        for micro in range(1, 7):
            factor = float("inf") if micro == 5 else 1.0
            scaler.scale(loss_of(model) * factor).backward()
            if micro % 2 == 0:
                scaler.step(optimizer)  # the third time with an infinite gradient: left out
                scaler.update()
                optimizer.zero_grad()
            pushed.append(peer.step)
        assert pushed == [0, 1, 1, 2, 2, 2]
        return peer.step, peer._attached().session.status().step

    assert swarm(2, body, algorithm="sgp") == [(2, 2), (2, 2)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_is_attached_and_trains_as_a_plain_one(backend: str) -> None:
    """Without inductor: its C++ compiler is not a thing to depend on in a test."""
    plain, inner = network(4), network(4)
    expected = trained(plain, torch.optim.SGD(plain.parameters(), lr=0.05), 3)

    def body(peer: Peer) -> dict[str, torch.Tensor]:
        compiled = torch.compile(inner, backend=backend)
        optimizer = torch.optim.SGD(compiled.parameters(), lr=0.05)
        peer.attach(compiled, optimizer)
        trained(compiled, optimizer, 3)
        return bits(inner)

    found = alone(body)
    assert all(torch.allclose(found[name], expected[name]) for name in expected)


class Mixture(nn.Module):
    """Four kinds of number, tied and frozen parameters, integer and float buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.body.weight
        self.norm = nn.BatchNorm1d(6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.wide = nn.Parameter(torch.randn(3, dtype=torch.float64))
        self.brain = nn.Parameter(torch.randn(3).to(torch.bfloat16))
        self.narrow = nn.Parameter(torch.randn(3).to(torch.float16))
        self.image = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.register_buffer("seen", torch.randint(100, (4,)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        more = self.wide.sum() + self.brain.sum() + self.narrow.sum() + self.image.weight.sum()
        out: torch.Tensor = self.frozen(self.tied(self.norm(self.body(x)))) + more.float()
        return out


def test_all_start_from_the_first_ones_weights_whatever_their_seeds() -> None:
    models = []
    for rank in range(4):
        torch.manual_seed(rank)
        models.append(Mixture())
    first = bits(models[0])
    assert not same(first, bits(models[1]))

    def body(peer: Peer) -> tuple[dict[str, torch.Tensor], float]:
        model = models[peer.rank]
        peer.attach(model, torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.01))
        return bits(model), peer.weight

    for found, weight in swarm(4, body, patient(shard_bytes=64)):
        assert same(found, first)
        assert weight == 1.0


def test_the_model_of_a_swarm_stays_the_users_and_its_kinds_stay_apart() -> None:
    models = []
    for rank in range(2):
        torch.manual_seed(rank)
        models.append(Mixture())
    before = [{name: id(one) for name, one in model.state_dict(keep_vars=True).items()} for model in models]

    def body(peer: Peer) -> None:
        model = models[peer.rank]
        optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)
        peer.attach(model, optimizer)
        generator = torch.Generator().manual_seed(peer.rank)
        for step in range(4):
            if peer.rank == 0:
                model.seen += step
            optimizer.zero_grad()
            model(torch.randn(8, 6, generator=generator)).square().mean().backward()
            optimizer.step()
        peer.consensus(1e-4, LONGEST)

    frozen = bits(models[0])
    swarm(2, body, algorithm="sgp")
    for model, ids in zip(models, before, strict=True):
        assert {name: id(one) for name, one in model.state_dict(keep_vars=True).items()} == ids
        assert model.tied.weight is model.body.weight
        assert model.image.weight.is_contiguous(memory_format=torch.channels_last)
        assert [one.dtype for one in (model.wide, model.brain, model.narrow)] == [
            torch.float64,
            torch.bfloat16,
            torch.float16,
        ]
        assert torch.equal(model.frozen.weight, frozen["frozen.weight"])
    one, other = (bits(model) for model in models)
    for name in ("body.weight", "norm.running_mean", "wide", "brain", "narrow", "image.weight"):
        assert torch.allclose(one[name].double(), other[name].double(), atol=2e-2), name
        assert not torch.equal(one[name], frozen[name]), name
    assert (one["seen"] - frozen["seen"]).tolist() == [6] * 4, "an integer buffer is nobody else's business"
    assert torch.equal(other["seen"], frozen["seen"])
    copy.deepcopy(models[0]).load_state_dict(models[1].state_dict())


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_different_models_are_an_error_for_everybody_and_nobody_hangs(odd: int) -> None:
    def body(peer: Peer) -> None:
        model = nn.Linear(4, 3 if peer.rank == odd else 2)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))

    for rank, error in enumerate(Meeting(3).run(body)):
        assert isinstance(error, StartError)
        assert str(error).startswith(f"rank {rank} and rank ")
        assert f"rank {odd}" in str(error), "who differs"
        assert "have different models: weight is float32 " in str(error), "and in what"
        assert {"(3, 4)", "(2, 4)"} <= set(re.findall(r"\(\d, 4\)", str(error)))
        assert "and 1 more differ. Names, shapes, dtypes, frozen" in str(error)


def test_different_optimizers_are_an_error_for_everybody() -> None:
    def body(peer: Peer) -> None:
        model = nn.Linear(4, 2)
        kind = torch.optim.SGD if peer.rank else torch.optim.AdamW
        peer.attach(model, kind(model.parameters(), lr=0.1))

    for error in Meeting(2).run(body):
        assert isinstance(error, StartError)
        assert "optimizer is SGD at rank 1" in str(error) or "optimizer is AdamW at rank 0" in str(error)


def test_a_peer_whom_nobody_joins_says_so() -> None:
    def body(peer: Peer) -> None:
        model = nn.Linear(2, 2)
        peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))

    meeting = Meeting(3, start_timeout=0.3)
    with pytest.raises(StartError, match=r"rank 1: none of the other 2 peers came within 0\.3 s\. Do they run"):
        meeting.task(1, body)()


def test_who_does_not_come_is_named_and_the_others_go_on() -> None:
    meeting = Meeting(3, start_timeout=3.0)
    models = [network(rank) for rank in range(2)]

    def body(peer: Peer) -> list[str]:
        said: list[str] = []
        peer._records.event = lambda **values: said.append(str(values.get("text")))  # type: ignore[method-assign]
        peer.attach(models[peer.rank], torch.optim.SGD(models[peer.rank].parameters(), lr=0.1))
        return said

    for said in meeting.run([body, body, lambda _: []])[:2]:
        assert said[0] == "going on without ranks [2], which did not come within 3 s"
    assert same(bits(models[0]), bits(models[1]))


def test_attach_comes_once_and_in_time() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Meeting(1).peer(0) as peer:
        for early in (lambda: peer.weight, peer.consensus, lambda: peer.evaluate(lambda: 0)):
            with pytest.raises(PeerError, match="rank 0 has no model yet"):
                early()
        with pytest.raises(PeerError, match="rank 0 has no model yet"):
            next(iter(peer.batches([1], 1, 1)))
        peer.attach(model, optimizer)
        with pytest.raises(PeerError, match="rank 0 has a model attached already"):
            peer.attach(model, optimizer)
    for late in (peer.consensus, lambda: peer.evaluate(lambda: 0), lambda: next(iter(peer.batches([1], 1, 1)))):
        with pytest.raises(PeerError, match="rank 0 has ended: use the peer inside of its with statement"):
            late()
    assert peer.weight == 1.0, "what it was left with can still be asked for"
    with Meeting(1).peer(0) as peer:
        peer.close()
        with pytest.raises(PeerError, match="rank 0 has ended"):
            peer.attach(model, optimizer)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"algorithm": "sgd"}, "sgd"),
        ({"algorithm": "osgp:tau=-1"}, "tau"),
        ({"topology": "rng"}, "rng"),
        ({"algorithm": "dpsgd", "topology": "one-peer-exponential"}, "use a symmetric topology"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_before_anything_runs(setting: dict[str, str], message: str) -> None:
    model = nn.Linear(2, 2)
    error = Meeting(3, **setting).run(
        lambda peer: peer.attach(model, torch.optim.SGD(model.parameters(), lr=0.1)) if peer.rank == 0 else None
    )[0]
    assert isinstance(error, ValueError)
    assert message in str(error)


def test_a_model_that_cannot_be_a_replica_is_refused() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with Meeting(1).peer(0) as peer, pytest.raises(SettingsError, match="no parameter of Linear requires a gradient"):
        peer.attach(frozen, torch.optim.SGD(frozen.parameters(), lr=0.1))


def test_after_the_end_the_model_is_an_ordinary_one() -> None:
    model = network(5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    alone(lambda peer: peer.attach(model, optimizer))
    before = flat(model)
    trained(model, optimizer, 1)
    assert not torch.equal(flat(model), before)


@pytest.mark.parametrize(("optimizer", "wait"), [("adamw-foreach", 0.35), ("nesterov", 0.1)])
def test_the_policy_is_as_it_suits_the_optimizer(optimizer: str, wait: float) -> None:
    def body(peer: Peer) -> float:
        model = network(0)
        peer.attach(model, OPTIMIZERS[optimizer](model.parameters()))
        session = peer._attached().session
        assert session.policy is session.driver._core.policy
        return session.policy.wait

    assert alone(body, algorithm="osgp") == wait
