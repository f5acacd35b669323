"""What a grid costs: bytes, messages, seconds and memory of every split of a model over processes.

Everything here is a pure function of layers and a machine. `peers.planner` reads the layers of a torch model,
and ``gossip plan`` shows the predictions. Decision 45 has the assumptions, and where the paper differs (Gholami, Azad,
Jin, Keutzer, Buluc: Integrated Model, Batch and Domain Parallelism, arXiv:1712.04432).
"""

from gossip.costs.choosing_splits import SplitChoice, choose
from gossip.costs.exchange_across import Across
from gossip.costs.inner_kinds import KINDS, PAPER_KINDS
from gossip.costs.layers import ImageShape, Layer
from gossip.costs.machine import LinkSpeed, Machine, Pace
from gossip.costs.predictions import Job, LayerPrediction, MemoryNeed, Prediction, predict
from gossip.costs.volumes import Volume

__all__ = [
    "KINDS",
    "PAPER_KINDS",
    "Across",
    "ImageShape",
    "Job",
    "Layer",
    "LayerPrediction",
    "LinkSpeed",
    "Machine",
    "MemoryNeed",
    "Pace",
    "Prediction",
    "SplitChoice",
    "Volume",
    "choose",
    "predict",
]
