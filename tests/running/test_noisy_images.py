import torch

from jembench.data.pixels import to_float
from jembench.models.predictions import noisy


def test_noise_is_gaussian_of_that_deviation_in_the_model_s_units():
    images = torch.full((400, 1, 8, 8), 128, dtype=torch.uint8)
    for bounds, scale in (((-1.0, 1.0), 1.0), ((0.0, 1.0), 0.5)):
        noise = (noisy(images, 0.03, bounds) - to_float(images, bounds)) / (0.03 * scale)
        assert abs(noise.mean()) < 0.02
        assert abs(noise.std() - 1) < 0.02
        assert abs(noise.pow(4).mean() - 3) < 0.15
        # equal images have noise of their own
        assert noise.flatten(1).unique(dim=0).shape[0] == 400


def test_it_is_the_same_for_every_model_and_another_for_other_images():
    images = torch.arange(48, dtype=torch.uint8).view(3, 1, 4, 4)
    once = noisy(images, 0.1, (-1.0, 1.0))
    assert torch.equal(once, noisy(images, 0.1, (-1.0, 1.0)))
    other = images.clone()
    other[2] += 1
    change = (
        noisy(other, 0.1, (-1.0, 1.0))
        - to_float(other, (-1.0, 1.0))
        - (once - to_float(images, (-1.0, 1.0)))
    )
    assert change.abs().mean() > 0.05
