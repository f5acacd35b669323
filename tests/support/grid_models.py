"""Models and machines whose costs are known."""

from __future__ import annotations

from gossip.costs import Across, Job, Layer, LinkSpeed, Machine, Pace

#: AlexNet as the paper has it: five convolutions, three fully connected layers, no biases.
ALEXNET = (
    Layer.convolution("conv1", (3, 227, 227), 96, 11, stride=4),
    Layer.convolution("conv2", (96, 27, 27), 256, 5, padding=2),
    Layer.convolution("conv3", (256, 13, 13), 384, 3, padding=1),
    Layer.convolution("conv4", (384, 13, 13), 384, 3, padding=1),
    Layer.convolution("conv5", (384, 13, 13), 256, 3, padding=1),
    Layer.linear("fc6", 9216, 4096),
    Layer.linear("fc7", 4096, 4096),
    Layer.linear("fc8", 4096, 1000),
)
#: A supercomputer as in the paper: a message takes 2 us, and a process gets 6 GB/s.
CORI = LinkSpeed(6e9, 2e-6)
#: 2.1 MB: a pair of linear layers.
PAIR = (Layer.linear("up", 256, 1024), Layer.linear("down", 1024, 256))


def all_reduced(layers: tuple[Layer, ...], batch: int) -> Job:
    """Return a job in which replicas average gradients, and computing takes no time, as in the paper's figures."""
    return Job(layers, batch, Pace(0.0), Across(gossips=False, overlaps=False))


def flat(processes: int, link: LinkSpeed = CORI) -> Machine:
    """Return a machine on which every process has the same link to every other."""
    return Machine((processes,), link, link)
