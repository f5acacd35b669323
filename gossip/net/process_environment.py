"""Environment variables that a process which gossips should be started with.

They are for glibc's malloc, which reads them when a process starts; a library must not change them for everybody in its
process. Parcels are received into memory that ZeroMQ allocates, megabytes at a time, and frees once they are merged.
By default such memory goes back to the system at once and is paged in, and cleared, again for the next parcel:
10 to 20% of the engine's CPU time, measured with parcels of 4 MiB.
"""

from __future__ import annotations

__all__ = ["ENVIRONMENT"]

ENVIRONMENT: dict[str, str] = {
    # One heap for all threads. Other heaps are at most 64 MiB each and go back to the system whenever one is empty,
    # whatever the threshold below. The price: threads that allocate at the same moment wait for each other; Python's
    # small objects, and what is small and was freed just before by the same thread, do not come this way.
    "MALLOC_ARENA_MAX": "1",
    # Blocks up to 32 MiB, the most that glibc takes here, come from the heap rather than from a mapping of their own.
    # The price: a hole in the heap can be used again, but does not go back to the system.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    # The free end of the heap goes back to the system only beyond 1 GiB. The price: a process keeps the most that it
    # ever needed for parcels, about two models.
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
