"""AlexNet: most of its weights are in the linear layers, most of its work is in the convolutions.

    gossip plan -n 8 --batch 256 --input 3x227x227 examples/alexnet.py:AlexNet

This is the network of the paper about grids (arXiv:1712.04432). There is no data for it here, so it is planned with and
not trained: see docs/guide/plan.md.
"""

from torch import Tensor, nn


class AlexNet(nn.Module):
    """Five convolutions and three linear layers, for images of 227 x 227."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 96, 11, stride=4), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(96, 256, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(256, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2)),
        )
        self.classifier = nn.Sequential(
            *(nn.Flatten(), nn.Linear(9216, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()),
            nn.Linear(4096, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.classifier(self.features(images))
        return logits
