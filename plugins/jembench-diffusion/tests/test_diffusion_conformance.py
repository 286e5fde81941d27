"""Diffusion models, as densities and as classifiers, keep what every model promises."""

from jembench.testing import check_model, parametrize

SMALL = "timesteps=4,evaluations=2,sampling_steps=2,schedule=log-snr"


@parametrize(check_model(f"diffusion:net=unet-8,{SMALL}"))
def test_the_density(check):
    check()


@parametrize(check_model(f"diffusion:net=mlp-16,weighting=uniform,{SMALL}"))
def test_the_classifier(check):
    check()
