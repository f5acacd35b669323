"""State dicts come back exactly: values, types, aliases; and what would not is refused by name."""

from __future__ import annotations

import enum
import math
import random
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from peers.state.random_states import capture_random_states, restore_random_states
from peers.state.state_dicts import DEPTH, flatten, unflatten
from peers.state.storable import DTYPES, StateError, copy_to_cpu

Optimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=0.1),
    "momentum": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "nesterov": lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda groups: torch.optim.Adam(groups, betas=(0.8, 0.95)),
    "adam tensor lr": lambda groups: torch.optim.Adam(groups, lr=torch.tensor(0.01)),
    "amsgrad": lambda groups: torch.optim.AdamW(groups, lr=0.01, amsgrad=True),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, lr_decay=0.1),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, momentum=0.5, centered=True),
    "lbfgs": lambda groups: torch.optim.LBFGS(
        [parameter for group in groups for parameter in group["params"]], history_size=3, line_search_fn="strong_wolfe"
    ),
}


def through_msgpack(state: Any, prefix: str = "optimizer") -> Any:
    tensors, structure = flatten(state, prefix)
    structure = msgpack.unpackb(
        msgpack.packb(structure, unicode_errors="surrogatepass"), unicode_errors="surrogatepass"
    )
    return unflatten({name: copy_to_cpu(tensor) for name, tensor in tensors.items()}, structure, prefix)


def same(left: Any, right: Any) -> bool:
    """Equal bit for bit, and of equal types all the way down."""
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        return left.dtype == right.dtype and left.shape == right.shape and raw(left) == raw(right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(*keys) and same(left[keys[0]], right[keys[1]]) for keys in zip(left, right, strict=True)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    return struct.pack("d", left) == struct.pack("d", right) if isinstance(left, float) else left == right


def raw(tensor: torch.Tensor) -> bytes:
    return copy_to_cpu(tensor).reshape(-1).view(torch.uint8).numpy().tobytes()


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps):
        batch = torch.randn(8, 4, generator=generator)

        def closure(batch: torch.Tensor = batch) -> float:
            optimizer.zero_grad()
            loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            return float(loss.detach())

        losses.append(optimizer.step(closure))
    return losses


def model_and_optimizer(make: Optimizer) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    first, last = list(model[0].parameters()), list(model[2].parameters())
    return model, make([{"params": first}, {"params": last, "lr": 0.003, "label": "head"}])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_comes_back_exactly_and_goes_on_as_if_nothing_had_happened(name: str) -> None:
    model, optimizer = model_and_optimizer(OPTIMIZERS[name])
    train(model, optimizer, 4, seed=1)
    before = optimizer.state_dict()
    restored = through_msgpack(before)
    assert same(before, restored)
    twin, other = model_and_optimizer(OPTIMIZERS[name])
    twin.load_state_dict(through_msgpack(model.state_dict(), "model"))
    other.load_state_dict(restored)
    assert train(model, optimizer, 4, seed=2) == train(twin, other, 4, seed=2)
    assert same(model.state_dict(), twin.state_dict())
    assert same(optimizer.state_dict(), other.state_dict())


def test_the_comparison_of_these_tests_sees_every_difference() -> None:
    pairs = [((1,), [1]), ({1: 0}, {"1": 0}), (True, 1), (1.0, 1), (0.0, -0.0), (torch.zeros(1), torch.zeros(()))]
    pairs += [(torch.zeros(1), torch.zeros(1).half()), (torch.zeros(1), -torch.zeros(1)), ({}, OrderedDict())]
    for left, right in pairs:
        assert same(left, left)
        assert not same(left, right), (left, right)


def schedulers() -> list[Any]:
    def sgd() -> torch.optim.Optimizer:
        return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1, momentum=0.9)

    both = sgd()
    return [
        lr_scheduler.StepLR(sgd(), 3),
        lr_scheduler.MultiStepLR(sgd(), [2, 2, 5]),  # keeps a Counter
        lr_scheduler.CosineAnnealingLR(sgd(), 10),
        lr_scheduler.OneCycleLR(sgd(), 0.1, 10),
        lr_scheduler.CyclicLR(sgd(), 0.1, 0.2),
        lr_scheduler.ReduceLROnPlateau(sgd()),  # keeps infinity
        lr_scheduler.LambdaLR(sgd(), lambda _: 1.0),
        lr_scheduler.SequentialLR(both, [lr_scheduler.LinearLR(both), lr_scheduler.ConstantLR(both)], [3]),
    ]


@pytest.mark.parametrize("scheduler", schedulers(), ids=lambda scheduler: type(scheduler).__name__)
def test_schedulers_come_back_exactly(scheduler: Any) -> None:
    assert same(scheduler.state_dict(), through_msgpack(scheduler.state_dict()))


def test_a_grad_scaler_comes_back_exactly() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=3.0, growth_interval=7)
    other = torch.amp.GradScaler("cpu")
    other.load_state_dict(through_msgpack(scaler.state_dict()))
    assert same(scaler.state_dict(), other.state_dict())


def test_a_models_state_keeps_the_versions_of_its_modules() -> None:
    state = torch.nn.BatchNorm1d(3).state_dict()
    restored = through_msgpack(state)
    assert same(state, restored)
    assert restored._metadata == state._metadata
    assert restored._metadata[""] == {"version": 2}


@pytest.mark.parametrize("dtype", sorted(DTYPES, key=str), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (5, 7)], ids=str)
def test_every_type_and_shape_of_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    size = math.prod(shape) * dtype.itemsize
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), dtype=torch.uint8)
    tensor = bits.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    assert same(tensor, through_msgpack([tensor])[0])


def test_tensors_that_are_not_contiguous_come_back_by_value() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    state = [base.transpose(0, 2), base[:, ::2], torch.tensor(3.0).expand(4), base.to(torch.complex64).conj()]
    state += [torch.zeros(1, 3, 2, 2).to(memory_format=torch.channels_last), torch.nn.Parameter(base[0])]
    restored = through_msgpack(state)
    assert same(state, restored)
    assert not any(tensor.requires_grad for tensor in restored)


def test_an_alias_stays_an_alias_and_an_overlap_becomes_a_copy() -> None:
    base = torch.arange(6.0)
    empty = torch.empty(0)
    state = {"a": base, "b": [base], "c": base.view(6), "d": base[:3], "e": base.view(2, 3), "f": empty, "g": empty}
    state["h"] = torch.empty(0)
    tensors, _ = flatten(state, "x")
    assert list(tensors) == ["x.a", "x.d", "x.e", "x.f", "x.h"]
    restored = through_msgpack(state)
    restored["a"][0] = 9
    assert (float(restored["b"][0][0]), float(restored["c"][0])) == (9, 9)
    assert (float(restored["d"][0]), float(restored["e"][0, 0]), float(base[0])) == (0, 0, 0)
    assert restored["f"] is restored["g"] is not restored["h"]


def test_names_tell_where_and_never_collide() -> None:
    state = {1: torch.tensor(1), "1": torch.tensor(2), "a": {"b": torch.tensor(3)}, "a.b": torch.tensor(4)}
    tensors, _ = flatten(state, "o")
    assert list(tensors) == ["o.1", "o.1~2", "o.a.b", "o.a.b~2"]
    assert same(state, through_msgpack(state))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none() | st.tuples(st.integers()), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain)
def test_any_plain_state(state: Any) -> None:
    assert same(state, through_msgpack(state))


@pytest.mark.parametrize("value", [2**63, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 2**200, -(2**199), -(2**71)])
def test_ints_of_any_length(value: int) -> None:
    assert through_msgpack(value) == value


@pytest.mark.parametrize("bits", [0x7FF0000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 1, 0x8000000000000000])
def test_floats_keep_their_bits(bits: int) -> None:
    value = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    assert struct.pack("<d", through_msgpack([value])[0]) == bits.to_bytes(8, "little")


class Colour(enum.IntEnum):
    RED = 1


class Special(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "value",
    [
        *(object(), len, {1, 2}, bytearray(b"x"), 1j, np.float64(1), np.zeros(2), Colour.RED, torch.Size([1])),
        *(defaultdict(int), torch.float32, torch.device("cpu"), torch.nn.Linear(1, 1)),
        *(torch.zeros(2, device="meta"), torch.zeros(2).to_sparse(), torch.zeros(2, dtype=torch.complex128)),
        torch.zeros(2).as_subclass(Special),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_is_refused_by_its_path(value: Any) -> None:
    with pytest.raises(StateError, match=r"^optimizer\['state'\]\[3\]\['exp'\]\[1\] "):
        flatten({"state": {3: {"exp": [0, value]}}}, "optimizer")


@pytest.mark.parametrize(
    "key", [Colour.RED, torch.zeros(1), frozenset(), (1, object())], ids=lambda key: str(type(key))
)
def test_keys_that_would_not_come_back_are_refused(key: Any) -> None:
    with pytest.raises(StateError, match=r"^s\['a'\]"):
        flatten({"a": {key: 1}}, "s")


def test_a_state_that_contains_itself_is_refused() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(StateError, match="contain itself"):
        flatten(state)


def test_the_deepest_state_comes_back() -> None:
    state: Any = 1
    for _ in range(DEPTH):
        state = [state]
    assert through_msgpack(state) == state


def nested(depth: int) -> Any:
    structure: Any = [0]
    for _ in range(depth):
        structure = [0, structure]
    return structure


@pytest.mark.parametrize(
    "structure",
    [
        *(
            [],
            [99],
            [-1],
            [True],
            ["x"],
            [None],
            [[0]],
            [2, "key"],
            [4],
            [4, None, "key"],
            [2, [0], 1],
            [2, 1, 1, 1, 2],
        ),
        *([2, [1, [0]], 1], [2, [5, "t"], 1], [5], [5, 1], [5, "absent"], [6, "x"], [6], [5, "t", "t"], nested(200)),
    ],
    ids=str,
)
def test_structures_that_nobody_made_are_refused(structure: Any) -> None:
    if structure == [4]:  # an OrderedDict without its metadata: odd, and harmless
        assert unflatten({}, structure) == OrderedDict()
        return
    with pytest.raises(StateError, match=r"^state"):
        unflatten({"t": torch.zeros(1)}, structure)


def draw_all() -> list[Any]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.randn(3).tolist()]


def test_random_states_come_back_exactly() -> None:
    draw_all()  # an odd number of gaussians: one is cached in each generator, and must come back too
    states = capture_random_states("cpu")
    expected = [draw_all() for _ in range(3)]
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert draw_all() != expected[0]
    restore_random_states(through_msgpack(states), "cpu")
    assert [draw_all() for _ in range(3)] == expected


def test_the_state_of_cuda_is_that_of_the_replicas_device(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {torch.device("cuda:1"): torch.arange(16, dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: states.__setitem__(device, state))
    captured = capture_random_states("cuda:1")
    expected = states.pop(torch.device("cuda:1"))
    restore_random_states(through_msgpack(captured), "cpu")
    assert not states
    restore_random_states(through_msgpack(captured), torch.device("cuda:0"))
    assert states.keys() == {torch.device("cuda:0")}
    assert same(states[torch.device("cuda:0")], expected)
    assert capture_random_states()["cuda"] is None


@pytest.mark.parametrize("name", ["python", "numpy", "torch"])
@pytest.mark.parametrize("bad", [None, {}, b"", "x", (3, (1, 2), None)], ids=str)
def test_random_states_that_are_none_are_refused(name: str, bad: Any) -> None:
    before = capture_random_states()
    with pytest.raises(StateError, match="not random states"):
        restore_random_states({**before, name: bad})
    restore_random_states(before)


def test_counters_are_counters() -> None:
    assert same(Counter("aab"), through_msgpack(Counter("aab")))
