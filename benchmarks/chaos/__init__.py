"""The fault matrix: swarms of real processes, one fault each, and figures that must hold. See docs/results/chaos.md."""
