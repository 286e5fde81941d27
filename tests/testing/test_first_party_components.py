import dataclasses

from jembench.interfaces import DataSpec, Features
from jembench.testing import check_dataset, check_metric, check_sampler, parametrize

SAMPLERS = (
    "sgld",
    "sgld:clip=0.5,start=class-gaussian",
    "sgld:bounded=true,noise=0.05,step_size=0.1,steps=5",
    "pcd:buffer=100",
    "pcd:bounded=true,buffer=100,clip=1.0,noise=0.0,start=class-gaussian",
    "proximal:buffer=100",
    "proximal:buffer=100,start=uniform",
    "ascent:noise=0.01,start=shapes",
    r'ascent:start="mixture:starts=\"permuted,images:set=inverted,class-gaussian\",weights=\"2,1,1\""',
)

COLOURS = DataSpec(name="colours", shape=(3, 4, 6), num_classes=2, bounds=(0.0, 1.0))
UNLABELLED = DataSpec(name="unlabelled", shape=(1, 8, 8), num_classes=0)

METRICS = (
    "accuracy",
    "nll:resamples=100,scaling=temperature",
    "brier:resamples=100",
    "ece:resamples=100",
    "adaptive-ece:resamples=100",
    "classwise-ece:resamples=100",
    "ood:resamples=100,set=interp",
    "ood:resamples=100,score=grad-norm,set=uniform",
    "ood:resamples=100,score=refinement:steps=2,set=inverted",
    "selective:resamples=100,score=log-px",
    "shift:resamples=100,set=corrupted:by=contrast",
    "log-density:resamples=100",
    "bits-per-dim:resamples=100",
    "log-z:chains=4,leapfrog=1,resamples=100,temperatures=3",
    "energy-gap:resamples=100",
    "iteration-time",
    "chain-age:resamples=100",
    "class-samples:resamples=100",
    "confident-samples:resamples=100",
    "pgd:budget=quick,images=2,restarts=1,steps=1",
    "boundary:budget=quick,images=2,queries=5",
)

OF_FEATURES = (
    "chain-drift:steps=3,",
    "is:",
    "fid:",
    "kid:",
    "prc:",
    "density-coverage:",
    "memorisation:",
    "neighbours:",
)


class PixelFeatures:
    """Features that are pixels: as good as any for what metrics promise, and known at once."""

    name = "pixels"
    identity = "pixels@0"

    def prepare(self, dataset, cache, device): ...

    def features(self, images):
        flat = images.flatten(1).float() / 255
        return Features(pool=flat[:, :16], logits=8 * flat[:, 16:26])


def named(checks):
    """The checks, each with the spec in its name."""
    return [dataclasses.replace(check, name=f"{check.spec} {check.name}") for check in checks]


@parametrize([check for spec in SAMPLERS for check in named(check_sampler(spec))])
def test_samplers(check):
    check()


@parametrize(
    [
        check
        for data in (COLOURS, UNLABELLED)
        for spec in (
            "sgld",
            "pcd:buffer=100",
            "proximal:buffer=100,start=uniform",
            "ascent:start=shapes",
        )
        for check in named(check_sampler(spec, data))
    ]
)
def test_samplers_for_other_images(check):
    check()


@parametrize([check for spec in METRICS for check in named(check_metric(spec))])
def test_metrics(check):
    check()


@parametrize(
    [
        check
        for metric in OF_FEATURES
        for check in named(check_metric(f"{metric}features={__name__}:PixelFeatures,resamples=10"))
    ]
)
def test_metrics_of_features(check):
    check()


@parametrize(named(check_dataset("digits")))
def test_digits(check):
    check()
