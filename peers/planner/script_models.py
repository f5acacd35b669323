"""The model that a script defines: ``train.py:Net``, ``train.py:resnet(16)``.

The script is run up to `peers.join`, or to its end. So a training script can be named as it is: classes and functions
above the call are there, and nothing is trained.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

import peers
from gossip.errors import SettingsError

__all__ = ["model_of"]


class _Joined(BaseException):
    """The script has come to `peers.join`. Not an Exception, so that the script does not catch it."""


def model_of(text: str) -> nn.Module:
    """Return the model that ``SCRIPT:NAME`` or ``SCRIPT:NAME(ARGUMENTS)`` names; arguments are literals.

    NAME is a class or function that returns a module, or a module.
    """
    script, colon, expression = text.partition(".py:")
    path = Path(f"{script}.py" if colon else text)
    if not path.is_file():
        raise SettingsError(f"{text!r}: there is no file {path}; a model is written train.py:Net")
    module = _run(path)
    if not expression:
        raise SettingsError(f"{text!r} names no model: write {path}:NAME, where NAME is one of {_candidates(module)}")
    name, positional, named = _parse(text, expression)
    if not hasattr(module, name):
        raise SettingsError(f"{text!r}: {path} defines no {name} before peers.join; it has {_candidates(module)}")
    found = getattr(module, name)
    if callable(found) and not isinstance(found, nn.Module):
        found = _called(text, found, positional, named)
    if not isinstance(found, nn.Module):
        raise SettingsError(f"{text!r} is a {type(found).__name__}, not a torch.nn.Module")
    return found


def _parse(text: str, expression: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Read ``Net`` or ``Net(16, deep=True)``."""
    try:
        tree = ast.parse(expression, mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            named = {word.arg: ast.literal_eval(word.value) for word in tree.keywords if word.arg}
            if len(named) == len(tree.keywords):
                return tree.func.id, [ast.literal_eval(one) for one in tree.args], named
        elif isinstance(tree, ast.Name):
            return tree.id, [], {}
    except (SyntaxError, ValueError):
        pass
    raise SettingsError(f"{text!r}: {expression!r} is not a name, as in Net, or one with arguments, as in Net(16)")


def _run(path: Path) -> ModuleType:
    """Run a script until it joins, with no arguments of its own, and return what it has defined."""

    def stop(*_: Any, **__: Any) -> None:
        raise _Joined

    module = ModuleType("planned_script")
    module.__file__ = str(path)
    argv, join = sys.argv, peers.join
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules[module.__name__] = module  # dataclasses look their module up
    peers.join = stop  # type: ignore[assignment]
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec"), module.__dict__)  # noqa: S102
    except _Joined:
        pass
    except SystemExit as end:
        raise SettingsError(f"{path} ended with exit code {end.code} before it called peers.join") from end
    except Exception as error:
        raise SettingsError(f"{path} failed before it called peers.join: {type(error).__name__}: {error}") from error
    finally:
        peers.join = join
        sys.argv = argv
        sys.path.remove(str(path.parent.resolve()))
    return module


def _called(text: str, make: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> Any:
    try:
        return make(*positional, **named)
    except Exception as error:
        raise SettingsError(
            f"{text!r} cannot be made: {type(error).__name__}: {error}; arguments are written train.py:Net(16)"
        ) from error


def _candidates(module: ModuleType) -> str:
    """Return what a script defines itself and may be a model."""
    own = [
        name
        for name, value in vars(module).items()
        if isinstance(value, nn.Module) or getattr(value, "__module__", "") == module.__name__
    ]
    return ", ".join(own) or "none"
