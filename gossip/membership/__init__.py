"""Which peers are members, slow or dead, without a coordinator; see `gossip.membership.membership`."""

from gossip.membership.membership import Membership
from gossip.membership.membership_settings import MembershipSettings, membership_preset
from gossip.membership.record import Record, State

__all__ = ["Membership", "MembershipSettings", "Record", "State", "membership_preset"]
