"""What one step took: its time, its bytes and its samples."""

from __future__ import annotations

import time

__all__ = ["StepMeter"]


class StepMeter:
    """Measures the steps of one peer, one after the other."""

    def __init__(self) -> None:
        self._made = self._began = time.monotonic()
        #: The seconds for which all steps so far waited for other peers.
        self.waited = 0.0
        self._bytes_sent = self._bytes_received = self._samples = 0

    @property
    def age(self) -> float:
        """The seconds since the meter was made."""
        return time.monotonic() - self._made

    @property
    def seconds(self) -> float:
        """The seconds since the step began."""
        return time.monotonic() - self._began

    def restart(self) -> None:
        """Let the step begin now: the time before belongs to no step."""
        self._began = time.monotonic()

    def skip_samples(self, samples: int) -> None:
        """Leave out the samples up to this total: they were counted in an earlier life."""
        self._samples = samples

    def finish(self, waited: float, bytes_sent: int, bytes_received: int, samples: int) -> dict[str, float]:
        """Return the figures of the step that ends now, and begin the next one.

        Args:
            waited: the seconds for which this step waited for other peers.
            bytes_sent: since the start.
            bytes_received: since the start.
            samples: since the start.
        """
        now = time.monotonic()
        self.waited += waited
        figures = {
            "seconds": now - self._began,
            "wait_seconds": waited,
            "bytes_sent": bytes_sent - self._bytes_sent,
            "bytes_received": bytes_received - self._bytes_received,
            "samples": samples - self._samples,
        }
        self._began = now
        self._bytes_sent, self._bytes_received, self._samples = bytes_sent, bytes_received, samples
        return figures
