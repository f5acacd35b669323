"""The version numbers, in the one place that everything reads them from.

docs/compatibility.md says what each of them promises and when it is increased.
"""

__version__ = "0.1.0"
#: The protocol between peers: a frame of another version is rejected.
WIRE = 5
#: The format of checkpoints: one with a higher number is refused.
CHECKPOINT = 1
