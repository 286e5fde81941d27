"""Plain PyTorch on a folder of large images, the reference of ``large_images.py``.

It does not import jembench: torchvision's ``ImageFolder`` in a ``DataLoader`` without workers, in
float32, with PyTorch's defaults.

    python plain_images.py evaluate FOLDER/test
    python plain_images.py train FOLDER/train
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

EVALUATION_BATCH, TRAINING_BATCH = 100, 64


def network(classes: int) -> nn.Module:
    """Return a small network, so that reading the images is most of the work."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def main(what: str, folder: str) -> None:
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import Compose, Normalize, ToTensor

    torch.set_num_threads(1)
    half = [0.5] * 3
    data = ImageFolder(folder, Compose([ToTensor(), Normalize(half, half)]))
    net = network(len(data.classes))
    if what == "evaluate":
        evaluate(net, DataLoader(data, EVALUATION_BATCH))
    else:
        train(net, DataLoader(data, TRAINING_BATCH, shuffle=True, drop_last=True))


@torch.no_grad()
def evaluate(net: nn.Module, loader: DataLoader[object]) -> None:
    """Print accuracy in percent and NLL in nats."""
    net.eval()
    correct, nll, count = 0, 0.0, 0
    for images, labels in loader:
        logits = net(images)
        correct += int((logits.argmax(1) == labels).sum())
        nll += float(F.cross_entropy(logits, labels, reduction="sum"))
        count += len(labels)
    print(100 * correct / count, nll / count)


def train(net: nn.Module, loader: DataLoader[object]) -> None:
    """Train for one epoch."""
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
