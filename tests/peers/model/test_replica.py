"""A replica: the user's tensors become views of one flat vector per kind of number, and stay the same tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import nn

from gossip.errors import SettingsError
from peers.model.replica import Replica


class Zoo(nn.Module):
    """All that a model may hold: four kinds of number, tied and frozen parameters, buffers, channels last, nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.Linear(2, 3).requires_grad_(False)
        self.wide = nn.Parameter(torch.randn(3, dtype=torch.float64))
        self.brain = nn.Parameter(torch.randn(9, 2).to(torch.bfloat16))
        self.narrow = nn.Parameter(torch.randn(5).to(torch.float16))
        self.scalar = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.transposed = nn.Parameter(torch.randn(4, 6).t())
        self.register_buffer("counts", torch.arange(4))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("hidden", torch.randn(3), persistent=False)


def spans(model: nn.Module) -> list[tuple[int, int]]:
    """Return where each mixed tensor lies in memory, once each."""
    mixed = [one for one in model.parameters() if one.requires_grad]
    mixed += [one for one in model.buffers() if one.is_floating_point()]
    places = {(one.data_ptr(), one.numel() * one.element_size()) for one in mixed if one.numel()}
    return sorted((start, start + size) for start, size in places)


def test_tensors_stay_the_same_objects_with_the_same_values_and_strides() -> None:
    torch.manual_seed(1)
    model = Zoo()
    before = {name: (one, one.detach().clone(), one.stride()) for name, one in model.state_dict(keep_vars=True).items()}
    Replica(model)
    after = model.state_dict(keep_vars=True)
    assert list(after) == list(before)
    for name, (tensor, values, strides) in before.items():
        assert after[name] is tensor, name
        assert torch.equal(tensor, values), name
        assert tensor.stride() == strides, name
        assert tensor.dtype == values.dtype, name
    assert model.convolution.weight.is_contiguous(memory_format=torch.channels_last)
    assert model.transposed.t().is_contiguous()


def test_there_is_one_vector_per_kind_and_the_core_reads_the_same_memory() -> None:
    model = Zoo()
    replica = Replica(model)
    assert [array.dtype.name for array in replica.arrays] == ["float64", "float32", "bfloat16", "float16"]
    for dtype, array in zip([torch.float64, torch.float32, torch.bfloat16, torch.float16], replica.arrays, strict=True):
        base = array.ctypes.data
        tensors = [one for one in [*model.parameters(), *model.buffers()] if one.dtype == dtype]
        for tensor in tensors:
            inside = base <= tensor.data_ptr() < base + array.nbytes
            assert inside is (tensor.requires_grad or not isinstance(tensor, nn.Parameter)) or not tensor.numel()
    replica.arrays[1][:] = 2.5
    assert all(bool((one == 2.5).all()) for one in [model.scalar, model.norm.running_mean, model.hidden])
    assert not bool((model.frozen.weight == 2.5).any())
    assert model.counts.tolist() == [0, 1, 2, 3]
    with torch.no_grad():
        model.brain.fill_(7.0)
    assert float(replica.arrays[2][0]) == 7.0


def test_tensors_are_aligned_and_do_not_overlap() -> None:
    model = Zoo()
    Replica(model)
    places = spans(model)
    assert all(start % 64 == 0 for start, _ in places)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(places))


def test_what_lies_between_tensors_is_zero_so_that_distances_do_not_see_it() -> None:
    model = Zoo()
    replica = Replica(model)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.zero_()
    assert all(not array.astype("f8").any() for array in replica.arrays)


def test_tied_parameters_stay_tied_whether_one_object_or_one_memory() -> None:
    model = Zoo()
    model.twin = nn.Parameter(model.scalar.data.view(1))  # another object and another shape: refused
    with pytest.raises(SettingsError, match="share a part of their memory"):
        Replica(model)
    model = Zoo()
    model.twin = nn.Parameter(model.brain.data)
    Replica(model)
    assert model.head.weight is model.embedding.weight
    assert model.twin.data_ptr() == model.brain.data_ptr()
    with torch.no_grad():
        model.twin[0, 0] = 3.0
    assert float(model.brain.detach()[0, 0]) == 3.0


def test_shards_cover_the_vectors_and_are_views() -> None:
    model = Zoo()
    replica = Replica(model, shard_bytes=64)
    assert replica.layout.shards > 4
    assert sum(replica.shard(shard).numel() for shard in range(replica.layout.shards)) == sum(
        array.size for array in replica.arrays
    )
    for shard in range(replica.layout.shards):
        assert replica.shard(shard).numel() * replica.shard(shard).element_size() <= 64
        replica.shard(shard).fill_(4.0)
    assert all(bool((one == 4.0).all()) for one in model.parameters() if one.requires_grad)


def test_state_dicts_can_still_be_saved_loaded_and_copied() -> None:
    torch.manual_seed(2)
    model, other = Zoo(), Zoo()
    replica = Replica(model)
    places = spans(model)
    model.load_state_dict(other.state_dict())
    assert spans(model) == places
    for name, tensor in other.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    assert float(replica.arrays[0][0]) == float(other.wide.detach()[0])
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.wide.fill_(9.0)
    assert float(model.wide.detach()[0]) == float(other.wide.detach()[0]), "a deep copy is a copy"


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "scalar", nn.Parameter(torch.zeros(2))),
        lambda model: setattr(model, "scalar", nn.Parameter(torch.zeros((), dtype=torch.float64))),
        lambda model: setattr(model, "another", nn.Parameter(torch.zeros(1))),
        lambda model: model.wide.requires_grad_(False),
        lambda model: model.frozen.requires_grad_(True),
        lambda model: setattr(model, "counts", torch.zeros(5, dtype=torch.int64)),
    ],
    ids=["shape", "kind", "name", "frozen", "trained", "buffer"],
)
def test_a_fingerprint_tells_models_apart(change: Callable[[Zoo], object]) -> None:
    changed = Zoo()
    change(changed)
    assert Replica(Zoo()).fingerprint == Replica(Zoo()).fingerprint, "values do not matter"
    assert Replica(changed).fingerprint != Replica(Zoo()).fingerprint


def test_what_cannot_be_mixed_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="no parameter of Linear requires a gradient"):
        Replica(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(SettingsError, match="weight is on the meta device"):
        Replica(nn.Linear(2, 2, device="meta"))
    with pytest.raises(SettingsError, match=r"weight is torch\.strided of torch\.complex64"):
        Replica(nn.Linear(2, 2, dtype=torch.complex64))
    with pytest.raises(SettingsError, match="weight has no values yet"):
        Replica(nn.LazyLinear(2))
    trained, tied = nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False)
    tied.weight.data = trained.weight.data
    with pytest.raises(SettingsError, match=r"1\.weight is not mixed and shares memory with 0\.weight, which is"):
        Replica(nn.Sequential(trained, tied))
    sparse = nn.Module()
    sparse.odd = nn.Parameter(torch.eye(3).to_sparse())
    with pytest.raises(SettingsError, match=r"odd is torch\.sparse_coo"):
        Replica(sparse)


def test_parameters_that_share_a_part_of_their_memory_are_refused() -> None:
    base = torch.randn(8)
    model = nn.Module()
    model.first, model.second = nn.Parameter(base[:5]), nn.Parameter(base[3:])
    with pytest.raises(SettingsError, match="second and first share a part of their memory"):
        Replica(model)


def test_neighbours_in_one_memory_become_places_of_their_own() -> None:
    base = torch.arange(8.0)
    model = nn.Module()
    model.first, model.second = nn.Parameter(base[:4]), nn.Parameter(base[4:])
    model.even, model.odd = nn.Parameter(torch.arange(6.0)[::2]), nn.Parameter(torch.ones(1).expand(3))
    Replica(model)
    with torch.no_grad():
        model.first.fill_(9.0)
    assert model.second.tolist() == [4.0, 5.0, 6.0, 7.0]
    assert base.tolist() == list(range(8)), "the memory is the replica's own now"
    assert model.even.tolist() == [0.0, 2.0, 4.0]
    with torch.no_grad():
        model.odd[0] = 5.0
    assert model.odd.tolist() == [5.0, 1.0, 1.0], "each element has its own place"


@pytest.mark.parametrize(("share", "shards"), [(1.0, 1), (0.25, 4), (0.3, 10), (0.5, 2), (0.01, 100)])
def test_a_share_finds_as_many_shards_as_it_needs(share: float, shards: int) -> None:
    """Even of a small model a quarter is a quarter, not the one shard that there is."""
    layout = Replica(nn.Linear(64, 64), share=share).layout
    assert layout.shards == shards
    assert round(share * layout.shards) / layout.shards == pytest.approx(share)
    assert Replica(nn.Linear(64, 64), shard_bytes=64, share=share).layout.shards == 260, "nor larger than told"


@pytest.mark.parametrize(
    ("width", "share", "shards"),
    [
        (2048, 1.0, 16),
        (1024, 1.0, 5),  # of 1 MiB at most
        (64, 1.0, 1),
        (64, 0.25, 4),  # which somebody asked for
    ],
)
def test_auto_finds_as_many_shards_as_its_least_share_needs_if_they_are_worth_it(
    width: int, share: float, shards: int
) -> None:
    layer = nn.Linear(width, width)
    assert Replica(layer, share=share, compress="auto").layout.shards == shards
    assert Replica(layer, 1 << 10, share=share, compress="auto").layout.shards > 16, "nor larger than told"


def test_a_mask_of_infinities_is_a_constant_and_is_not_mixed() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))
    model.register_buffer("mean", torch.zeros(2))
    replica = Replica(model)
    assert replica.is_finite(), "else training would seem to have diverged"
    assert [tuple(buffer.shape) for buffer in replica.buffers] == [(2,)]
