"""Which exchange goes with a policy."""

from __future__ import annotations

from gossip.collective.exchange import Exchange
from gossip.collective.reduction import Reduction
from gossip.collective.server import ParameterServer
from gossip.errors import SettingsError
from gossip.mass import Mass
from gossip.messages import Address
from gossip.policies.policy import Policy
from gossip.settings import Settings

__all__ = ["check_settings", "exchange_of"]


def check_settings(policy: Policy, share: float, compress: str) -> None:
    """Raise an error if a setting for the pushing of mass is given to a policy that pushes none."""
    if policy.collective and (share != 1 or compress not in ("", "none")):
        raise SettingsError(f"{policy.name} moves no mass: share and compress are for algorithms that push it")


def exchange_of(policy: Policy, me: Address, mass: Mass, settings: Settings) -> Exchange | None:
    """Return the exchange that the policy needs beside the pushing of mass, if it needs one."""
    check_settings(policy, settings.share, settings.compress)
    if not policy.collective:
        return None
    if policy.collective == "server":
        return ParameterServer(me, mass.pool, first=settings.resend_first, ceiling=settings.resend_ceiling)
    return Reduction(
        me,
        mass.pool,
        kind=getattr(policy, "plan", "auto"),
        first=settings.resend_first,
        ceiling=settings.resend_ceiling,
        # Gradients of half precision are summed in single.
        early_bytes=4 * mass.layout.total_bytes + (1 << 20),
    )
