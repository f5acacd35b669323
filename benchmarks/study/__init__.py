"""How to scale, and which method when: real training inside the simulator, and docs/results/study.md made from it."""
