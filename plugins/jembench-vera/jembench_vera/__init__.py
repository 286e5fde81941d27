"""VERA: JEM with a generator in place of chains.

Grathwohl et al. (ICLR 2021), arXiv:2010.04230.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jembench.plugin import Names, Range, SpecError, network

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec
    from jembench_vera.model import VERA

Count = Annotated[int, Range(least=1, most=10_000)]
NotNegative = Annotated[float, Range(least=0)]
Positive = Annotated[float, Range(above=0)]


def vera(
    data: DataSpec,
    *,
    net: Annotated[str, Names()] = "auto",
    dropout: float = 0.3,
    classification: NotNegative = 100.0,
    gradient: NotNegative = 0.1,
    p_control: NotNegative = 0.0,
    n_control: NotNegative = 0.0,
    unlabelled: NotNegative = 0.0,
    entropy: NotNegative = 1e-4,
    particles: Count = 20,
    width: Count = 256,
    latent: Count = 128,
    generator_rate: Positive = 6e-5,
    posterior_rate: Positive = 3e-5,
    refinement: Annotated[int, Range(least=0, most=1_000_000)] = 0,
) -> VERA:
    """JEM's network, trained on p(y|x) and p(x) with samples of a generator.

    The generator learns by an estimated gradient of its entropy.

    Defaults are from the authors' command for CIFAR-10: the weights of the loss's terms, and the
    learning rates of the generator and of the posterior's width. ``refinement`` is the number of
    MALA steps of a sample.
    """
    from jembench_vera.generator import Generator, ImageNet
    from jembench_vera.model import VERA, Terms

    if data.num_classes < 1:
        raise SpecError(
            f"{data.name} is unlabelled, and vera is trained on p(y|x) too. Choose labelled data."
        )
    terms = Terms(
        classification=classification,
        gradient=gradient,
        p_control=p_control,
        n_control=n_control,
        unlabelled=unlabelled,
        entropy=entropy,
    )
    images = ImageNet(data, latent=latent, width=width)
    generator = Generator(images, data.bounds, latent=latent, particles=particles)
    rates = {"generator": generator_rate, "posterior": posterior_rate}
    net_of_energy = network(data, net=net, dropout=dropout)
    return VERA(net_of_energy, generator, terms, rates, refinement)
