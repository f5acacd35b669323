"""What is claimed, measured: each module is a named command, ``python -m benchmarks.NAME``."""
