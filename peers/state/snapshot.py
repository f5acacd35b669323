"""The state of a peer that a restart needs, and the copy of it from which a writer works."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import msgpack
import torch

from peers.state.state_dicts import flatten, unflatten
from peers.state.storable import StateError, copy_to_cpu, memory_of, why_not

__all__ = ["REST_LIMIT", "CheckpointSnapshot", "FrozenSnapshot", "freeze", "thaw"]

#: The most bytes of a rest. Long lists of numbers belong among the tensors.
REST_LIMIT = 64 * 2**20
#: A name that safetensors reserves.
_RESERVED = "__metadata__"


@dataclass
class CheckpointSnapshot:
    """The state of one peer at one step.

    Attributes:
        tensors: Model, optimizer and anything else, by name; on any device. After loading they are on the CPU.
        extra: The rest, in nested dicts, lists and tuples of str, bytes, int, float, bool and None: the step, weights,
            the position in the data, random states, the structures that `flatten` returned.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FrozenSnapshot:
    """A snapshot that no later step changes: contiguous tensors on the CPU, each once, and the rest in bytes."""

    tensors: dict[str, torch.Tensor]
    rest: bytes


def freeze(snapshot: CheckpointSnapshot) -> FrozenSnapshot:
    """Copy a snapshot, each tensor once, into CPU memory.

    Raises:
        StateError: If it has content that a checkpoint cannot hold; the message says what and where.
    """
    tensors: dict[str, torch.Tensor] = {}
    first: dict[Hashable, str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in snapshot.tensors.items():
        _check(name, tensor)
        original = first.setdefault(memory_of(tensor), name)
        if original == name:
            tensors[name] = copy_to_cpu(tensor)
        else:  # tied weights are stored once, and tied again when they are loaded
            aliases[name] = original
    strays, extra = flatten(snapshot.extra, "extra")
    if strays:
        raise StateError(f"{next(iter(strays))} is a tensor: put it among the tensors of the snapshot, or `flatten` it")
    rest: bytes = msgpack.packb([extra, aliases], unicode_errors="surrogatepass")
    if len(rest) > REST_LIMIT:
        raise StateError(f"extra takes {len(rest)} bytes, more than {REST_LIMIT}: put long lists among the tensors")
    return FrozenSnapshot(tensors, rest)


def thaw(frozen: FrozenSnapshot) -> CheckpointSnapshot:
    """Return the snapshot that was frozen. The bytes are not trusted: raises StateError if they are not a rest."""
    try:
        # msgpack itself refuses lengths beyond the input, and nesting that would exhaust the stack.
        rest = msgpack.unpackb(frozen.rest, unicode_errors="surrogatepass", strict_map_key=True)
    except (ValueError, msgpack.UnpackException, MemoryError, RecursionError) as error:
        raise StateError(f"not msgpack: {type(error).__name__} {error}".rstrip()) from error
    if not isinstance(rest, list) or len(rest) != 2 or not isinstance(rest[1], dict):
        # Not the value itself: its repr may exhaust the stack.
        raise StateError(f"the rest of a snapshot must be a list of two items, not this {type(rest).__name__}")
    structure, aliases = rest
    tensors = dict(frozen.tensors)
    for name, original in aliases.items():
        if type(name) is not str or name in tensors or type(original) is not str or original not in frozen.tensors:
            raise StateError(f"the tensor {name!r} cannot be an alias of {original!r}, which must be a stored tensor")
        tensors[name] = frozen.tensors[original]
    extra = unflatten({}, structure, "extra")
    if not isinstance(extra, dict):
        raise StateError(f"extra must be a dict, not a {type(extra).__name__}")
    return CheckpointSnapshot(tensors, extra)


def _check(name: object, tensor: object) -> None:
    if not isinstance(name, str) or name == _RESERVED:
        raise StateError(f"tensors: {name!r} cannot be the name of a tensor")
    if not isinstance(tensor, torch.Tensor):
        raise StateError(f"tensors[{name!r}] is a {type(tensor).__qualname__}, not a tensor: put it into extra")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise StateError(f"tensors: {name!r} cannot be the name of a tensor: it is not Unicode text") from error
    if (problem := why_not(tensor)) is not None:
        raise StateError(f"tensors[{name!r}] {problem}, so a checkpoint cannot hold it")
