"""What was chosen for parcels, and why."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Choice"]


@dataclass(frozen=True)
class Choice:
    """How parcels go out from now on, and why."""

    codec: str
    share: float
    reason: str

    def __str__(self) -> str:
        return self.codec if self.share == 1 else f"{self.codec}, {self.share:.0%} of the shards"
