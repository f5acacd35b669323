"""Who is a member, who is slow, who is dead, without a coordinator; see `gossip.membership.membership`."""

from gossip.membership.membership import Membership
from gossip.membership.record import Record, State
from gossip.membership.settings import MembershipSettings, membership_preset

__all__ = ["Membership", "MembershipSettings", "Record", "State", "membership_preset"]
