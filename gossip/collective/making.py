"""Which exchange goes with a policy."""

from __future__ import annotations

from gossip import codecs
from gossip.books.mass import Mass
from gossip.collective.attempts import Attempts
from gossip.collective.interface import Collective
from gossip.collective.reduction import Reduction
from gossip.collective.residuals import Residuals
from gossip.collective.server import ParameterServer
from gossip.errors import SettingsError
from gossip.policies.policy import Policy
from gossip.settings import Settings
from gossip.wire.messages import Address

__all__ = ["check_settings", "exchange_of"]

#: No codec.
_PLAIN = ("", "none")


def check_settings(policy: Policy, share: float, compress: str) -> None:
    """Raise an error if a policy that pushes no mass is told what it cannot do; one that does may be told anything."""
    if not policy.collective:
        return
    if share != 1:
        raise SettingsError(f"{policy.name} moves no mass: share is for algorithms that push it")
    if policy.collective == "server" and compress not in _PLAIN:
        raise SettingsError(
            f"{policy.name} sends moves and models as they are: compress is for allreduce and algorithms that push mass"
        )
    if policy.collective == "reduction":
        _residuals(policy, compress)


def _residuals(policy: Policy, compress: str) -> Residuals | None:
    """Return what the codec that gradients go through needs; None: they go as they are."""
    correction, plan = policy.correction, getattr(policy, "plan", "auto")
    if compress in _PLAIN:
        if correction:
            raise SettingsError(f"{policy.name}: correction is for sparse codecs: say compress topk, or adacomp")
        return None
    if compress == "auto":
        raise SettingsError(
            f"{policy.name} waits for everybody in any case, so nothing is measured: name a codec, such as int8"
        )
    if plan != "auto":
        raise SettingsError(
            f"{policy.name}: with a codec each part goes to its owner and back, by no plan: leave plan={plan} out"
        )
    return Residuals(codecs.parse(compress), correction)


def exchange_of(policy: Policy, me: Address, mass: Mass, settings: Settings) -> Collective | None:
    """Return the exchange that the policy needs beside the pushing of mass, if it needs one."""
    check_settings(policy, settings.share, settings.compress)
    if not policy.collective:
        return None
    if policy.collective == "server":
        return ParameterServer(me, mass.pool, first=settings.resend_first, ceiling=settings.resend_ceiling)
    return Reduction(
        me,
        Attempts(mass.pool, getattr(policy, "plan", "auto"), _residuals(policy, settings.compress)),
        first=settings.resend_first,
        ceiling=settings.resend_ceiling,
        # Gradients of half precision are summed in single.
        early_bytes=4 * mass.layout.total_bytes + (1 << 20),
    )
