"""Making the exchange that a policy needs, and checking the settings for it."""

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
    """Raise a `SettingsError` if a policy that pushes no mass has settings that it does not support."""
    if not policy.collective:
        return
    if share != 1:
        raise SettingsError(f"{policy.name} moves no mass, so share={share:g} cannot apply; leave share out")
    if policy.collective == "server" and compress not in _PLAIN:
        raise SettingsError(
            f"{policy.name} does not compress moves and models; leave compress={compress} out, or use allreduce or an "
            "algorithm that pushes mass"
        )
    if policy.collective == "reduction":
        _residuals(policy, compress)


def _residuals(policy: Policy, compress: str) -> Residuals | None:
    """Return the residuals of the codec of gradients; None: gradients are not compressed."""
    correction, plan = policy.correction, getattr(policy, "plan", "auto")
    if compress in _PLAIN:
        if correction:
            raise SettingsError(f"{policy.name}: correction needs a sparse codec; set compress to topk or adacomp")
        return None
    if compress == "auto":
        raise SettingsError(
            f"{policy.name} waits for all peers in any case, so it cannot measure which codec suits the links; set "
            "compress to a codec, such as int8"
        )
    if plan != "auto":
        raise SettingsError(
            f"{policy.name}: with a codec each part goes to its owner and back, without a plan: leave plan={plan} out"
        )
    return Residuals(codecs.parse(compress), correction)


def exchange_of(
    policy: Policy, me: Address, mass: Mass, settings: Settings, *, lives_drawn: bool = False
) -> Collective | None:
    """Return the exchange that the policy needs besides pushing mass, if it needs one.

    Args:
        policy: the algorithm.
        me: this peer.
        mass: its values.
        settings: of the protocol.
        lives_drawn: whether this peer and the others drew their lives, so that none of them knows another's yet.
    """
    check_settings(policy, settings.share, settings.compress)
    if not policy.collective:
        return None
    if policy.collective == "server":
        return ParameterServer(
            me,
            mass.pool,
            first=settings.resend_first,
            ceiling=settings.resend_ceiling,
            lives_drawn=lives_drawn,
        )
    return Reduction(
        me,
        Attempts(mass.pool, getattr(policy, "plan", "auto"), _residuals(policy, settings.compress)),
        first=settings.resend_first,
        ceiling=settings.resend_ceiling,
        # Gradients of half precision are summed in single precision.
        early_bytes=4 * mass.layout.total_bytes + (1 << 20),
    )
