"""State dicts as named tensors and a plain structure, and exactly back.

The state of an optimizer, a scheduler or a GradScaler is nested: dicts with numbers as keys, tuples of betas, None, and
tensors in between. `flatten` takes the tensors out, under names that say where they were. It writes the rest in types
that msgpack preserves: None, bool, int, float, str, bytes, and lists that begin with a tag:

    [LIST, ...]    [TUPLE, ...]    [DICT, key, value, ...]    [COUNTER, key, value, ...]
    [ORDERED, its _metadata or None, key, value, ...]         the result of torch.nn.Module.state_dict
    [TENSOR, name]                                            a tensor that is in two places has one name
    [BIG, bytes]                                              an int of more than 64 bits

Any other type is refused, with the path to it: a value that would come back as something else must not be saved
silently.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

import torch

from peers.state.storable import StateError, memory_of, why_not

__all__ = ["DEPTH", "flatten", "unflatten"]

#: Deeper than any real state; a deeper one contains itself, or is an attack.
DEPTH = 128
_LIST, _TUPLE, _DICT, _COUNTER, _ORDERED, _TENSOR, _BIG = range(7)
_DICTS: dict[int, type[Any]] = {_DICT: dict, _COUNTER: Counter, _ORDERED: OrderedDict}
_TAGS: dict[type[Any], int] = {list: _LIST, tuple: _TUPLE, dict: _DICT, Counter: _COUNTER, OrderedDict: _ORDERED}
_KEYS = (str, int, bool, float, bytes, tuple, type(None))
_Path = tuple[Any, ...]


def flatten(state: Any, prefix: str = "state") -> tuple[dict[str, torch.Tensor], Any]:
    """Return the tensors of a state by name, and the structure around them for msgpack.

    The tensors are the state's own, not copies. Aliases (the same values in the same memory) get one name, and are one
    tensor again afterwards. Views that overlap only in part become separate tensors.

    Args:
        state: The result of a ``state_dict()``, or nested dicts, lists, tuples, numbers, text and tensors.
        prefix: The beginning of the names. It must be different for each state of a snapshot: ``model``, ``optimizer``.

    Raises:
        StateError: If a value would not come back unchanged; the message says where it is.
    """
    flattener = _Flattener(prefix)
    structure = flattener.encode(state, ())
    return flattener.tensors, structure


def unflatten(tensors: Mapping[str, torch.Tensor], structure: Any, prefix: str = "state") -> Any:
    """Return the state from which `flatten` made this. Its tensors are the given ones, not copies; others are ignored.

    Raises:
        StateError: If the structure is not one that `flatten` made, or a tensor is missing.
    """
    return _decode(tensors, structure, (prefix,))


class _Flattener:
    def __init__(self, prefix: str) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[Hashable, str] = {}
        self._prefix = prefix

    def encode(self, state: Any, path: _Path) -> Any:
        # Exact types: a subclass (numpy's float64 of float, an IntEnum) would come back as its base.
        kind = type(state)
        if len(path) > DEPTH:
            raise StateError(f"{self._show(path[:6])}... is nested deeper than {DEPTH}: does it contain itself?")
        if kind in (bool, float, str, bytes) or state is None:
            return state
        if kind is int:
            if -(2**63) <= state < 2**64:
                return state
            return [_BIG, state.to_bytes(state.bit_length() // 8 + 1, "little", signed=True)]
        if isinstance(state, torch.Tensor):
            return [_TENSOR, self._name(state, path)]
        if kind in (list, tuple):
            return [_TAGS[kind], *(self.encode(item, (*path, index)) for index, item in enumerate(state))]
        if kind not in _TAGS:
            raise StateError(
                f"{self._show(path)} is a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot hold: use "
                "plain numbers, text, lists, dicts and tensors"
            )
        encoded = [_TAGS[kind]]
        if kind is OrderedDict:
            encoded.append(self.encode(getattr(state, "_metadata", None), (*path, "_metadata")))
        for key, value in state.items():
            if type(key) not in _KEYS:
                raise StateError(
                    f"{self._show(path)} has the key {key!r} of type {type(key).__qualname__}, which a checkpoint "
                    "cannot hold"
                )
            encoded += [self.encode(key, (*path, "key")), self.encode(value, (*path, key))]
        return encoded

    def _name(self, tensor: torch.Tensor, path: _Path) -> str:
        if (problem := why_not(tensor)) is not None:
            raise StateError(f"{self._show(path)} {problem}, so a checkpoint cannot hold it")
        memory = memory_of(tensor)
        if memory not in self._names:
            plain = name = ".".join([self._prefix, *map(str, path)])
            # The keys 1 and "1" give the same name, and so do ["a"]["b"] and ["a.b"].
            number = 1
            while name in self.tensors:
                name = f"{plain}~{(number := number + 1)}"
            self.tensors[name] = tensor
            self._names[memory] = name
        return self._names[memory]

    def _show(self, path: _Path) -> str:
        return _show((self._prefix, *path))


def _decode(tensors: Mapping[str, torch.Tensor], structure: Any, path: _Path) -> Any:
    if type(structure) is not list:
        return structure
    if len(path) > DEPTH + 1:
        raise StateError(f"{_show(path[:6])}... is nested deeper than {DEPTH}")
    tag, *content = structure or [None]
    if type(tag) is not int or not 0 <= tag <= _BIG:
        raise StateError(f"{_show(path)} is not part of a state: unknown tag {tag!r}")
    if tag in (_LIST, _TUPLE):
        items = [_decode(tensors, item, (*path, index)) for index, item in enumerate(content)]
        return items if tag == _LIST else tuple(items)
    if tag in (_TENSOR, _BIG):
        value = content[0] if len(content) == 1 else None
        if tag == _BIG and isinstance(value, bytes):
            return int.from_bytes(value, "little", signed=True)
        if tag == _TENSOR and isinstance(value, str):
            if value in tensors:
                return tensors[value]
            raise StateError(f"{_show(path)}: the tensor {value!r} is missing")
        raise StateError(f"{_show(path)} is not part of a state")
    state = _DICTS[tag]()
    if tag == _ORDERED and content:
        metadata = _decode(tensors, content.pop(0), (*path, "_metadata"))
        if metadata is not None:
            state._metadata = metadata
    if len(content) % 2:
        raise StateError(f"{_show(path)} has a key without a value")
    for key, value in zip(content[::2], content[1::2], strict=True):
        key = _decode(tensors, key, (*path, "key"))
        try:
            new = type(key) in _KEYS and key not in state
        except TypeError:  # a list in a tuple
            new = False
        if not new:
            raise StateError(f"{_show(path)} has the key {key!r} twice, or it cannot be a key")
        state[key] = _decode(tensors, value, (*path, key))
    return state


def _show(path: _Path) -> str:
    return str(path[0]) + "".join(f"[{key!r}]" for key in path[1:])
