"""The gossip protocol: mass, parcels, ledgers and the policies that move them."""

from gossip.version import __version__

__all__ = ["__version__"]
