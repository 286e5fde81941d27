"""A plain implementation of JEM by Algorithm 1 of Grathwohl et al. (2020), the reference of
jembench's speed.

It does not import jembench, and is not slow on purpose. Where the algorithm leaves a choice, it
takes PyTorch's default or that of the authors' implementation (wgrathwohl/JEM):

- float32, contiguous images and weights, eager: PyTorch's defaults. So is TF32 in the convolutions
  of a GPU.
- Images come from a ``DataLoader`` over PIL images, augmented one by one by torchvision. Worker
  processes do it for networks on a GPU; for a network on all cores of the CPU they were slower than
  no workers.
- The data of p(x) and the labelled data have separate loaders; data, samples and labelled data have
  separate passes.
- ``retain_graph=True`` at every sampling step. It costs memory rather than time.
- The replay buffer lies on the CPU: a batch of chains is copied to the device and back in each
  iteration.
- ``autograd.grad`` towards the images alone, so that sampling computes no parameter gradients; with
  ``backward``, which is common, a step would take 50 % longer.
- The loss is read in every iteration, to stop at divergence.
- cuDNN tries its algorithms and keeps the fastest (``cudnn.benchmark``), as the authors'
  implementation lets it.

The network is jembench's own, whose in-place activations are an advantage for the textbook.

Legend: N images, B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

STEP_SIZE, NOISE = 1.0, 0.01
BUFFER, REINIT = 10_000, 0.05
DATA_NOISE = 0.03
LEARNING_RATE = 1e-4
EVALUATION_BATCH = 100

tuned = torch.backends.cudnn.flags(enabled=True, benchmark=True)
"""The settings of cuDNN for the textbook's code only."""

Batch = tuple[Tensor, Tensor]
"""Images (B, C, H, W) and labels (B,)."""


class Images(Dataset[tuple[Tensor, int]]):
    """A dataset of pixels that become PIL images on access, as torchvision's CIFAR10."""

    def __init__(
        self, pixels: np.ndarray, labels: list[int], transform: Callable[[Image.Image], Tensor]
    ) -> None:
        self.pixels = pixels  # uint8 (N, H, W, C)
        self.labels = labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]


def add_noise(x: Tensor) -> Tensor:
    """Add the data noise of the paper."""
    return x + DATA_NOISE * torch.randn_like(x)


def training_transform(size: int) -> Any:
    """Return the transform: augmentation, then [-1, 1], then data noise."""
    from torchvision import transforms  # here, since it takes as long to import as PyTorch

    return transforms.Compose(
        [
            transforms.Pad(4, padding_mode="reflect"),
            transforms.RandomCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
            add_noise,
        ]
    )


def training_loader(
    pixels: np.ndarray, labels: list[int], *, batch: int, workers: int
) -> Iterator[Batch]:
    """Yield augmented batches without end."""
    images = Images(pixels, labels, training_transform(pixels.shape[1]))
    loader = DataLoader(images, batch_size=batch, shuffle=True, num_workers=workers, drop_last=True)
    while True:
        yield from loader


def evaluation_loader(pixels: np.ndarray, labels: list[int], *, workers: int) -> DataLoader[Any]:
    """Return the loader of the images in their order, within [-1, 1]."""
    from torchvision import transforms

    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))]
    )
    return DataLoader(
        Images(pixels, labels, transform), batch_size=EVALUATION_BATCH, num_workers=workers
    )


@tuned
def langevin(
    net: Callable[[Tensor], Tensor], x: Tensor, steps: int, noise: float = NOISE
) -> Tensor:
    """Run SGLD on log p(x) = logsumexp f(x)."""
    x = x.clone().requires_grad_()
    for _ in range(steps):
        grad = torch.autograd.grad(net(x).logsumexp(1).sum(), [x], retain_graph=True)[0]
        x.data += STEP_SIZE * grad + noise * torch.randn_like(x)
    return x.detach()


def jem_loss(
    net: nn.Module, x_data: Tensor, x_samples: Tensor, x_labelled: Tensor, y: Tensor
) -> Tensor:
    """Return the cross-entropy, minus the mean log p of the data, plus that of the samples."""
    log_p_data = net(x_data).logsumexp(1).mean()
    log_p_samples = net(x_samples).logsumexp(1).mean()
    return F.cross_entropy(net(x_labelled), y) - (log_p_data - log_p_samples)


class Training:
    """The base class of both trainings: Adam, and a step of it."""

    def __init__(self, net: nn.Module, device: torch.device) -> None:
        self.net = net.to(device)
        self.device = device
        self.optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)

    def descend(self, loss: Tensor) -> None:
        """Take one step of Adam."""
        if abs(loss.item()) > 1e8:
            raise RuntimeError("training has diverged")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class JemTraining(Training):
    """The training of JEM by Algorithm 1."""

    def __init__(
        self,
        net: nn.Module,
        pixels: np.ndarray,
        labels: list[int],
        *,
        batch: int,
        steps: int,
        device: torch.device,
        workers: int,
    ) -> None:
        super().__init__(net, device)
        self.batch, self.steps = batch, steps
        self.data = training_loader(pixels, labels, batch=batch, workers=workers)
        self.labelled = training_loader(pixels, labels, batch=batch, workers=workers)
        size = pixels.shape[1]
        self.buffer = torch.empty(BUFFER, pixels.shape[3], size, size).uniform_(-1, 1)

    def sample(self) -> Tensor:
        """Draw chains from the buffer, restart some of them, move them and put them back."""
        slots = torch.randint(BUFFER, (self.batch,))
        kept = self.buffer[slots]
        new = torch.empty_like(kept).uniform_(-1, 1)
        restart = (torch.rand(self.batch) < REINIT).float()[:, None, None, None]
        start = restart * new + (1 - restart) * kept
        self.net.eval()
        samples = langevin(self.net, start.to(self.device), self.steps)
        self.net.train()
        self.buffer[slots] = samples.cpu()
        return samples

    @tuned
    def iterate(self) -> None:
        """Run one iteration of training."""
        x, _ = next(self.data)
        x_labelled, y = next(self.labelled)
        samples = self.sample()
        x, x_labelled, y = x.to(self.device), x_labelled.to(self.device), y.to(self.device)
        self.descend(jem_loss(self.net, x, samples, x_labelled, y))


class ClassifierTraining(Training):
    """The training of the same network by cross-entropy alone."""

    def __init__(
        self,
        net: nn.Module,
        pixels: np.ndarray,
        labels: list[int],
        *,
        batch: int,
        device: torch.device,
        workers: int,
    ) -> None:
        super().__init__(net, device)
        self.labelled = training_loader(pixels, labels, batch=batch, workers=workers)

    @tuned
    def iterate(self) -> None:
        """Run one iteration of training."""
        x, y = next(self.labelled)
        self.net.train()
        self.descend(F.cross_entropy(self.net(x.to(self.device)), y.to(self.device)))


@tuned
@torch.no_grad()
def logits(net: nn.Module, loader: DataLoader[Any], device: torch.device) -> Tensor:
    """Return f(x) of all images, (N, K)."""
    net.eval()
    return torch.cat([net(x.to(device)).cpu() for x, _ in loader])


@tuned
def gradient_scores(net: nn.Module, loader: DataLoader[Any], device: torch.device) -> Tensor:
    """Return -|d log p(x) / dx| of all images, (N,)."""
    net.eval()
    scores = []
    for images, _ in loader:
        x = images.to(device).requires_grad_()
        grad = torch.autograd.grad(net(x).logsumexp(1).sum(), [x])[0]
        scores.append(-grad.flatten(1).norm(dim=1).cpu())
    return torch.cat(scores)


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """Return the probability that a score inside (N,) is higher than one outside (M,)."""
    from sklearn.metrics import roc_auc_score

    truth = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    return float(roc_auc_score(truth, np.concatenate([inside, outside])))


def auroc_interval(
    inside: np.ndarray, outside: np.ndarray, resamples: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the 95 % interval of AUROC by the percentiles of resamples of both sets."""
    values = [
        auroc(rng.choice(inside, len(inside)), rng.choice(outside, len(outside)))
        for _ in range(resamples)
    ]
    return np.quantile(values, [0.025, 0.975])
