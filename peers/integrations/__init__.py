"""Adapters for frameworks that have training loops of their own. Each needs its framework: see the extras."""
