"""A model's numbers as flat vectors, so that they can be mixed without being gathered first.

Every trained parameter, and every floating-point buffer (such as the statistics of batch norm), becomes a view of one
flat vector per dtype. The user's tensors stay the same objects; only their memory moves. On the CPU the core reads and
mixes that memory directly. On a GPU there is a copy of it in pinned host memory, and the values are transferred at step
boundaries, on a separate stream.

Of a model that a crew holds, these are the parts of one row; `peers.model.spread` says how.

Tensors that are not mixed are the *rest*: frozen parameters and integer buffers. Newcomers get those that differ from
their own (`peers.model.rest`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
import xxhash
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from gossip.errors import SettingsError
from gossip.values.blocks import BFLOAT16, Values
from gossip.values.layout import SHARD_BYTES, Layout, Part
from peers.crew.crew import Crew
from peers.device import check_device
from peers.model.fineness import shard_limit
from peers.model.rest import RestBlocks
from peers.model.spread import (
    Copies,
    Holders,
    StandIns,
    check_placement,
    gather_parts,
    holders_of,
    is_spread,
    local_part,
)

__all__ = ["Replica", "is_finite"]

#: The dtypes that are mixed, in the order of their vectors.
_KINDS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
#: Each tensor starts at a multiple of this many bytes: kernels are slower on memory that is not aligned.
_ALIGNMENT = 64


class Replica:
    """One model, laid out flat."""

    def __init__(
        self,
        model: torch.nn.Module,
        shard_bytes: int = SHARD_BYTES,
        also: Mapping[str, torch.Tensor] | None = None,
        share: float = 1.0,
        compress: str = "none",
        crew: Crew | None = None,
    ) -> None:
        """Move the model's mixed tensors into flat vectors.

        Args:
            model: the model.
            shard_bytes: the most bytes of a shard.
            also: tensors that do not belong to the model and are mixed as well, by name.
            share: the share of the shards that is pushed per step: there have to be enough shards.
            compress: the codec of parcels, or `AUTO`, which chooses the codec and a share of the shards.
            crew: the processes that hold the model; without it this one alone.
        """
        crew = crew or Crew.single()
        gather_parts(model)
        mixed, rest = crew.together(lambda: _sorted_out(model, crew))  # a row that refuses it alone would just be gone
        if not mixed:
            raise SettingsError(
                f"model: no parameter of {type(model).__name__} requires a gradient, so none is trained"
            )
        buffers = [tensor for _, tensor in mixed if not isinstance(tensor, torch.nn.Parameter)]
        mixed += (also or {}).items()
        holders = holders_of(mixed, crew)
        self._model = model
        self._stand_ins = StandIns([tensor for _, tensor in mixed], holders)
        mixed = [(name, self._stand_ins.of(tensor)) for name, tensor in mixed]
        #: The buffers of the model that are mixed.
        self.buffers = [self._stand_ins.of(buffer) for buffer in buffers]
        devices = {tensor.device for _, tensor in mixed}
        if len(devices) > 1:
            raise SettingsError(
                f"the model is on several devices, {', '.join(sorted(map(str, devices)))}, but a peer has one replica "
                "on one device: move it with model.to(peer.device) before attach"
            )
        (self.device,) = devices
        check_device(self.device, f"model: it is on {self.device}")
        #: The tensors that are not mixed.
        self.rest = RestBlocks(rest)
        _refuse_shared(mixed, rest)
        large = {id(part) for part in self._stand_ins.large}
        kinds = _by_kind(mixed, holders, large)
        self._flats = [_flattened(tensors, self.device, len(held)) for (held, _), tensors in kinds.items()]
        self._flats += [part.view(-1) for part in self._stand_ins.large]
        #: The rows that hold each vector.
        self._holders = [held for held, _ in kinds] + [(crew.row,)] * len(large)
        self._copies = Copies(crew, self._holders)
        for held, flat in zip(self._holders, self._flats, strict=True):
            self._copies.take_first(held, flat)
        self._stand_ins.put()
        self._hosts = [_twin(flat) for flat in self._flats]
        cuda = self.device.type == "cuda"
        self._stream: torch.cuda.Stream | None = torch.cuda.Stream(self.device) if cuda else None  # type: ignore[no-untyped-call]
        #: The vectors for the core: the same memory on the CPU.
        self.arrays: Sequence[Values] = [
            _as_array(host[start:stop]) for host, (start, stop) in zip(self._hosts, self._own(), strict=True)
        ]
        limit = shard_limit(sum(array.nbytes for array in self.arrays), share, shard_bytes, compress)
        self.layout = Layout(tuple(Part.cut(array.size, limit, array.dtype) for array in self.arrays))
        self._shards = list(self._cut(self._flats))
        #: What must be equal in two models that are mixed: names, shapes and dtypes of all tensors.
        self.lines = [(name, _described(tensor)) for name, tensor in mixed]
        self.lines += [(name, f"{_described(tensor)} not mixed") for name, tensor in rest.items()]

    @property
    def fingerprint(self) -> str:
        """A hash of the lines."""
        return xxhash.xxh3_64(repr(self.lines).encode()).hexdigest()

    # The model of a crew

    def take(self) -> None:
        """Copy what torch keeps elsewhere into the vectors; for a plain model there is nothing to do."""
        if self._stand_ins:
            gather_parts(self._model)
            self._stand_ins.take()

    def put(self) -> None:
        """Copy the vectors to where torch keeps their values; for a plain model there is nothing to do."""
        self._stand_ins.put()

    def unite(self) -> None:
        """Let all rows have what several of them hold; each has exchanged its own slice. All rows are to call it."""
        for held, flat in zip(self._holders, self._flats, strict=True):
            self._copies.share(held, flat)
        self.put()

    def _own(self) -> list[tuple[int, int]]:
        """Return where this row's slice of each vector is: all of it, if no other row holds the vector."""
        both = zip(self._holders, self._flats, strict=True)
        return [self._copies.slice_of(held, flat.numel()) for held, flat in both]

    @property
    def vectors(self) -> list[torch.Tensor]:
        """The flat vectors in the memory of the model, not copies."""
        return self._flats

    def is_finite(self) -> bool:
        """Whether there is no NaN or infinity in the memory of the model."""
        self.take()
        return all(bool(torch.isfinite(shard).all()) for shard in self._shards)

    def place(self, tensor: torch.Tensor) -> tuple[int, int, int] | None:
        """Return the vector of a tensor, its start, and the start of the next one; None if it is in no vector."""
        tensor = self._stand_ins.of(tensor)
        if is_spread(tensor):
            return None
        for index, flat in enumerate(self._flats if tensor.numel() else []):
            if tensor.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr():
                step = _ALIGNMENT // flat.element_size()
                start = int(tensor.storage_offset() - flat.storage_offset())
                return index, start, min(start + -(-tensor.numel() // step) * step, flat.numel())
        return None

    def view(self, vectors: Sequence[torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
        """Return the view of a mixed tensor in vectors that have the replica's layout."""
        place, tensor = self.place(tensor), self._stand_ins.of(tensor)
        assert place is not None
        return vectors[place[0]][place[1] :].as_strided(tensor.shape, tensor.stride())

    def bounds(self, vector: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Return the shards of a vector, each with its start and stop in the vector."""
        before = sum(part.shards for part in self.layout.parts[:vector])
        part, (first, _) = self.layout.parts[vector], self._own()[vector]
        for shard in range(part.shards):
            start, stop = part.size * shard // part.shards, part.size * (shard + 1) // part.shards
            yield before + shard, (first + start, first + stop)

    def shard(self, shard: int) -> torch.Tensor:
        """Return a shard's values in the memory of the model, not a copy."""
        return self._shards[shard]

    def values(self) -> list[torch.Tensor]:
        """Return a copy of all values."""
        self.take()
        return [shard.clone() for shard in self._shards]

    def restore(self, values: Sequence[torch.Tensor]) -> None:
        """Restore the values that `values` returned."""
        with torch.no_grad():
            for shard, kept in zip(self._shards, values, strict=True):
                shard.copy_(kept)
        self.put()

    def lend(self) -> None:
        """Copy the values to the memory that the core reads; for a plain model on the CPU it is the same memory."""
        self.take()
        self._transfer(self._flats, self._hosts)

    def reclaim(self) -> None:
        """Copy the values back to the memory of the model; for a plain model on the CPU it is the same memory."""
        self._transfer(self._hosts, self._flats)
        self.put()

    def _transfer(self, sources: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
        if self._stream is None:
            return
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source, non_blocking=True)
        self._stream.synchronize()

    def _cut(self, flats: list[torch.Tensor]) -> Iterator[torch.Tensor]:
        for vector, flat in enumerate(flats):
            for _, (start, stop) in self.bounds(vector):
                yield flat[start:stop]


def _sorted_out(model: torch.nn.Module, crew: Crew) -> tuple[list[tuple[str, torch.Tensor]], dict[str, torch.Tensor]]:
    """Return the tensors that are mixed and those that are not; two names of the same memory count as one tensor."""
    mixed: list[tuple[str, torch.Tensor]] = []
    rest: dict[str, torch.Tensor] = {}
    named: list[tuple[str, torch.Tensor, bool]] = []
    named += [(name, parameter, parameter.requires_grad) for name, parameter in model.named_parameters()]
    # A mask of minus infinity is a constant, and a mean of infinities would be no number.
    named += [(name, buffer, is_finite(buffer)) for name, buffer in model.named_buffers()]
    for name, tensor, wanted in named:
        check_placement(name, tensor, crew)
        _check(name, local_part(tensor))
        if wanted and tensor.dtype in _KINDS:
            mixed.append((name, tensor))
        else:
            rest[name] = local_part(tensor)
    return mixed, rest


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds neither NaN nor infinity, or is of a kind that is not mixed."""
    tensor = local_part(tensor)
    plain = tensor.dtype in _KINDS and not tensor.is_meta and tensor.layout is torch.strided
    return not plain or bool(torch.isfinite(tensor).all())


def _check(name: str, tensor: torch.Tensor) -> None:
    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        raise SettingsError(
            f"{name} has no values yet, because its module is lazy: run a batch through it before attach"
        )
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_complex():
        kind = "on the meta device" if tensor.is_meta else f"{tensor.layout} of {tensor.dtype}"
        raise SettingsError(f"{name} is {kind}; only plain dense tensors of real numbers can be mixed")
    if type(tensor.data) is not torch.Tensor:
        raise SettingsError(
            f"{name} is a {type(tensor.data).__name__}, whose bytes have a meaning of its own; only plain tensors can "
            "be made equal at all peers"
        )


def _by_kind(
    mixed: list[tuple[str, torch.Tensor]], holders: list[Holders], large: set[int]
) -> dict[tuple[Holders, torch.dtype], list[tuple[str, torch.Tensor]]]:
    """Return the tensors of each vector, by the rows that hold it and its dtype: what this row has alone comes first.

    Args:
        mixed: the tensors, by name.
        holders: of each.
        large: the ids of those that are vectors by themselves.
    """
    kinds: dict[tuple[Holders, torch.dtype], list[tuple[str, torch.Tensor]]] = {}
    for held in sorted(set(holders), key=lambda one: (len(one), one)):
        for dtype in _KINDS:
            both = zip(mixed, holders, strict=True)
            found = [one for one, rows in both if rows == held and one[1].dtype == dtype and id(one[1]) not in large]
            if found:
                kinds[held, dtype] = found
    return kinds


def _flattened(tensors: list[tuple[str, torch.Tensor]], device: torch.device, slices: int) -> torch.Tensor:
    """Copy the tensors into one vector, and make each tensor a view of its place there.

    Args:
        tensors: of one dtype.
        device: of the vector.
        slices: the parts into which it can be cut: all are of the same length.
    """
    step = _ALIGNMENT // tensors[0][1].element_size()
    places: dict[tuple[object, ...], tuple[int, torch.Tensor]] = {}
    spans: list[tuple[int, int, str]] = []
    size = 0
    with torch.no_grad():
        moves = []
        for name, tensor in tensors:
            # Two parameters may share memory without being one object, as tied weights do.
            key = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (name,)
            if key not in places:
                _refuse_overlap(spans, name, tensor)
                places[key] = size, tensor.detach().clone(memory_format=torch.preserve_format)
                size += -(-tensor.numel() // step) * step
            moves.append((tensor, key))
        size = -(-max(size, step) // (step * slices)) * step * slices
        flat = torch.zeros(size, dtype=tensors[0][1].dtype, device=device)
        for tensor, key in moves:
            start, values = places[key]
            # A dense tensor keeps its order in memory, such as channels last; any other becomes contiguous.
            strides = values.stride()
            view = flat.as_strided(values.shape, strides, start)
            view.copy_(values)
            tensor.data = view
    return flat


def _refuse_shared(mixed: list[tuple[str, torch.Tensor]], rest: Mapping[str, torch.Tensor]) -> None:
    """Refuse a tensor that is not mixed and lies in memory that is: mixed tensors move to other memory."""
    spans: dict[int, list[tuple[int, int, str]]] = {}
    for name, tensor in mixed:
        spans.setdefault(tensor.untyped_storage().data_ptr(), []).append((*_span(tensor), name))
    for name, tensor in rest.items():
        start, stop = _span(tensor)
        for other_start, other_stop, other in spans.get(tensor.untyped_storage().data_ptr(), []):
            if start < other_stop and other_start < stop and _whole(tensor):
                raise SettingsError(
                    f"{name} is not mixed and shares memory with {other}, which is: freeze both, train both, or give "
                    f"{name} memory of its own with clone()"
                )


def _refuse_overlap(spans: list[tuple[int, int, str]], name: str, tensor: torch.Tensor) -> None:
    if not tensor.numel():
        return
    start, stop = _span(tensor)
    for other_start, other_stop, other in spans:
        if start < other_stop and other_start < stop and _whole(tensor):
            raise SettingsError(f"{name} and {other} share a part of their memory; they must share all of it, or none")
    spans.append((start, stop, name))


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where the memory of a tensor begins and ends."""
    if not tensor.numel():
        return 0, 0
    return tensor.data_ptr(), tensor.data_ptr() + _reach(tensor) * tensor.element_size()


def _reach(tensor: torch.Tensor) -> int:
    """Return the elements of memory from the first of a tensor to its last."""
    return sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1


def _whole(tensor: torch.Tensor) -> bool:
    """Whether the tensor fills its span of memory, so that another within the span must overlap."""
    return _reach(tensor) == tensor.numel()


def _twin(flat: torch.Tensor) -> torch.Tensor:
    if flat.device.type == "cpu":
        return flat
    return torch.empty_like(flat, device="cpu", pin_memory=flat.device.type == "cuda").copy_(flat)


def _as_array(host: torch.Tensor) -> Values:
    if host.dtype is torch.bfloat16:
        return host.view(torch.int16).numpy().view(BFLOAT16)
    array: Values = host.numpy()
    return array


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
