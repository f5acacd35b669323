"""What looks like a model or an optimizer, and would train without the others, is refused at once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from swarms import Meeting, swarm
from torch import nn

from gossip.errors import SettingsError
from peers import Peer
from peers.device import check_device, device_of
from peers.model.attachable import check_model
from peers.setup import Setup
from peers.state.storable import StateError


def refused(model: Any, optimizer: Any, error: type[Exception] = SettingsError, **arguments: Any) -> str:
    """Return what attach says; there are two peers, and the other one never comes."""
    meeting = Meeting(2, start_timeout=0.1)
    with meeting.peer(0) as peer:
        with pytest.raises(error) as found:
            peer.attach(model, optimizer, **arguments)
        assert peer._attachment is None, "before anything is gathered"
    return str(found.value)


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.fixture
def alone_in_a_group() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone_in_a_group")
def test_models_that_something_else_spreads_are_refused_by_name() -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these are deprecated
        wrapped = {
            "DistributedDataParallel": nn.parallel.DistributedDataParallel(nn.Linear(2, 2)),
            "DataParallel": nn.DataParallel(nn.Linear(2, 2)),
            "FullyShardedDataParallel": FullyShardedDataParallel(nn.Linear(2, 2), device_id=torch.device("cpu")),
        }
        own = fully_shard(nn.Linear(2, 2))
    for name, model in wrapped.items():
        said = refused(model, sgd(model))
        assert said.startswith(f"model: it is wrapped in {name}, which spreads it over processes or devices itself")
        assert "attach the plain model, without a wrapper" in said
    check_model(own)  # of a crew of one, as good as a plain one
    within = nn.Sequential(nn.Linear(2, 2), wrapped["DataParallel"])
    assert "model: its part 1 is wrapped in DataParallel" in refused(within, sgd(within))
    parts = nn.Linear(2, 2)
    parts.weight = nn.Parameter(distribute_tensor(parts.weight.data, DeviceMesh("cpu", [0]), [Shard(0)]))
    check_model(parts)
    assert "model: a list is not a torch.nn.Module" in refused([parts], sgd(parts))


class Accelerated(torch.optim.Optimizer):
    """As accelerate's: an optimizer of torch's by name, which never was made as one and passes on what it is asked."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


class Wrapper:
    """A user's own."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        self.optimizer.step()


def test_wrapped_optimizers_gossip_when_the_one_inside_steps() -> None:
    def body(peer: Peer) -> tuple[int, bool]:
        torch.manual_seed(peer.rank)
        model = nn.Linear(2, 2)
        optimizer = Wrapper(Accelerated(sgd(model)))
        peer.attach(model, optimizer)  # type: ignore[arg-type]
        before = model.weight.detach().clone()
        model(torch.ones(1, 2) * peer.rank).sum().backward()
        optimizer.step()
        return peer.step, torch.equal(model.weight, before)

    assert swarm(2, body, algorithm="allreduce") == [(1, False)] * 2


def test_what_is_no_optimizer_or_one_of_other_values_is_refused_by_name() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    assert refused(model, None).startswith("optimizer: a NoneType is not a torch.optim.Optimizer, and it has none as")
    assert "test_attachable.Wrapper is not a torch.optim.Optimizer" in refused(model, Wrapper(None))
    zero = type("ZeroRedundancyOptimizer", (torch.optim.SGD,), {"__module__": "torch.distributed.optim"})
    said = refused(model, zero(model.parameters(), lr=0.1))
    assert "a torch.distributed.optim.ZeroRedundancyOptimizer exchanges values with other processes itself" in said
    said = refused(model, sgd(other))
    assert said.startswith("optimizer: this SGD holds none of the model's parameters")
    assert "make it from model.parameters()" in said


@pytest.mark.parametrize(
    ("algorithm", "what"), [("osgp", "exchanged with the steps of this one"), ("allreduce", "not")]
)
def test_parameters_of_one_and_not_of_the_other_are_told_once(
    algorithm: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    def body(peer: Peer) -> None:
        model, other = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Linear(3, 2)
        optimizer = torch.optim.SGD([*model[0].parameters(), other.bias], lr=0.1)
        peer.attach(model, optimizer)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        told = len(caplog.records)
        optimizer.add_param_group({"params": [model[1].weight]})
        optimizer.add_param_group({"params": [other.weight]})
        optimizer.step()
        optimizer.step()
        assert len(caplog.records) == told + 1
        assert "one of the shape (2,) and 1 more: they are not mixed" in caplog.text

    swarm(1, body, algorithm=algorithm)
    assert (
        "the optimizer does not hold 1.weight and 1 more: freeze with requires_grad_(False) what stays" in caplog.text
    )
    assert f"what another optimizer moves is {what}" in caplog.text
    assert "parameters that are not the model's, one of the shape (2,): they are not mixed; to mix" in caplog.text


@pytest.mark.parametrize("kind", ["mps", "xpu", "hpu:1"])
def test_devices_whose_values_nobody_would_get_are_refused(kind: str) -> None:
    with pytest.raises(
        SettingsError, match=f"^device='{kind}': a peer exchanges values of the CPU and of CUDA devices"
    ):
        device_of(Setup(device=kind))
    with pytest.raises(SettingsError, match=r"model: .*not of \w+: move the model to the CPU with model\.to\('cpu'\)"):
        check_device(torch.device(kind), f"model: it is on {kind}")
    check_device(torch.device("cuda:1"), "model")


def test_a_model_and_an_optimizer_belong_to_one_peer_until_it_ends() -> None:
    model = nn.Linear(2, 2)
    optimizer = sgd(model)
    first, second, third = (Meeting(1).peer(0) for _ in range(3))
    with first, second:
        first.attach(model, optimizer)
        for again in (model, nn.Sequential(model)):
            with pytest.raises(
                SettingsError, match=r"^the optimizer is attached to the peer of rank 0 in this process"
            ):
                second.attach(again, optimizer)
            with pytest.raises(
                SettingsError, match=r"weight is attached .* end that peer with peer\.close\(\), or make"
            ):
                second.attach(again, sgd(again))
        second.attach(other := nn.Linear(2, 2), sgd(other))
    with third:
        third.attach(model, optimizer)
        optimizer.step()
        assert third.step == 1
        assert first.step == 0


def test_after_an_attach_that_failed_nobody_holds_the_model() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.RMSprop(model.parameters())
    with Meeting(1, algorithm="sgp:momentum=mixed").peer(0) as peer, pytest.raises(SettingsError, match="RMSprop"):
        peer.attach(model, optimizer)
    with (
        Meeting(2, start_timeout=0.1).peer(0) as peer,
        pytest.raises(Exception, match="none of the other 1 peers came"),
    ):
        peer.attach(model, optimizer)
    with Meeting(1).peer(0) as peer:
        peer.attach(model, optimizer)


def test_what_a_checkpoint_cannot_hold_is_refused_at_attach() -> None:
    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"inner": [{1, 2}]}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    model = nn.Linear(2, 2)
    said = refused(model, sgd(model), also={"count": 3})
    assert said.startswith("also['count'] is a int, which has no state_dict and load_state_dict")
    said = refused(model, sgd(model), StateError, also={"odd": Odd()})
    assert said.startswith("also.odd['inner'][0] is a builtins.set, which a checkpoint cannot hold")


@pytest.mark.parametrize("algorithm", ["osgp", "allreduce"])
def test_buffers_of_a_kind_that_is_not_mixed_are_in_nobodys_way(algorithm: str) -> None:
    def body(peer: Peer) -> list[str]:
        model = nn.Linear(2, 2)
        model.register_buffer("scales", torch.ones(3).to(torch.float8_e4m3fn))
        optimizer = sgd(model)
        peer.attach(model, optimizer)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        peer.consensus()
        with torch.no_grad():
            model.weight.fill_(float("nan"))
        found = peer._attached().not_finite()
        with torch.no_grad():
            model.weight.fill_(1.0)
        return found

    assert swarm(1, body, algorithm=algorithm) == [["weight"]]
