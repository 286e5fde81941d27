"""Statistics of features of generated images: IS, FID and KID.

The values equal torch-fidelity's, bit for bit. IS and FID are computed here, since torch-fidelity
imports torchvision and PyTorch's compiler, which takes longer than importing PyTorch. Resamples are
computed by other formulas, which are many times faster and agree with the values.

Legend: N generated images, M reference images, D features, K logits, S splits, R resamples.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, eigh
from torch import Tensor

from jembench import progress
from jembench.models.devices import one_thread
from jembench.stats.intervals import Indices, Statistic, multiplicities

Numbers = NDArray[np.float64]
Samples = Float[Tensor, "N D"]
Reference = Float[Tensor, "M D"]
Logits = Float[Tensor, "N K"]

_BLOCK = 1024

ORDER = 2020
"""The seed of the order of the images in torch-fidelity's Inception score."""


# --- Inception score ------------------------------------------------------------------------------


def inception_score(logits: Logits, splits: int) -> float:
    """Return the mean Inception score over S splits of the shuffled images.

    IS = exp(mean over images of KL(p(y|x) || p(y))).
    """
    n = len(logits)
    order = np.random.RandomState(ORDER).permutation(n)
    shuffled = logits[order].double()
    p = shuffled.softmax(dim=1)
    log_p = shuffled.log_softmax(dim=1)

    scores = []
    for split in _parts(n, splits):
        log_q = p[split].mean(dim=0, keepdim=True).log()
        divergences = (p[split] * (log_p[split] - log_q)).sum(dim=1)
        scores.append(divergences.mean().exp().item())
    return float(np.mean(scores))


def _parts(n: int, splits: int) -> list[slice]:
    """Return the S consecutive parts of n images."""
    return [slice(i * n // splits, (i + 1) * n // splits) for i in range(splits)]


def inception_score_in_order(logits: Logits, splits: int) -> float:
    """Return the Inception score of the images in their order.

    Each split has N // S images; the remaining images are left out.

    This is the score of the code of Barratt & Sharma (2018), arXiv:1801.01973, which the
    reproducibility report uses. Neighbouring images that are alike, as in a replay buffer, lower
    the score.
    """
    used = len(logits) // splits * splits
    scores = [inception_score(part, 1) for part in logits[:used].chunk(splits)]
    return float(np.mean(scores))


def resampled_score(logits: Logits, splits: int, *, even: bool = False) -> Statistic:
    """Return the mean score of index matrices (R, N), whose columns are divided into the S splits.

    With ``even``, the splits are of equal size and the remaining columns are left out.

    With KL = sum_k p log p - sum_k p log q, a split's score needs only the sums of p and of sum_k p
    log p over the split.
    """
    log_p: Numbers = logits.double().log_softmax(dim=1).numpy()
    p = np.exp(log_p)
    negentropy = (p * log_p).sum(axis=1, keepdims=True)
    summands = np.concatenate([p, negentropy], axis=1)

    n = len(p)
    used = n
    if even:
        used -= n % splits
    parts = _parts(used, splits)

    def scores(indices: Indices) -> Numbers:
        of_splits = []
        for part in parts:
            drawn = indices[:, part]
            sums = multiplicities(drawn, n) @ summands
            of_splits.append(_score(sums / drawn.shape[1]))
        mean: Numbers = np.stack(of_splits).mean(axis=0)
        return mean

    return scores


def _score(means: Numbers) -> Numbers:
    """Return exp of the mean KL from the means of p and, in the last column, of sum_k p log p."""
    q, mean_negentropy = means[:, :-1], means[:, -1]
    log_q = np.log(q, out=np.zeros_like(q), where=q > 0)  # 0 log 0 = 0
    scores: Numbers = np.exp(mean_negentropy - (q * log_q).sum(axis=1))
    return scores


# --- Fréchet distance -----------------------------------------------------------------------------


SMALL = 512
"""FID is resampled by default up to this number of features: a resample takes about a tenth of a
second on a core, and seconds with Inception's 2,048 features.
"""


class Moments(NamedTuple):
    """A fitted Gaussian, float64."""

    mean: Numbers  # (D,)
    covariance: Numbers  # (D, D)


def _numbers(features: Tensor) -> Numbers:
    return features.double().numpy()


def fid(generated: Samples, reference: Reference) -> float:
    """Return |mean_1 - mean_2|^2 + tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)) in float64."""
    first, second = _numbers(generated), _numbers(reference)
    difference = first.mean(axis=0) - second.mean(axis=0)
    squares = difference @ difference

    covariance_1 = np.cov(first, rowvar=False)
    covariance_2 = np.cov(second, rowvar=False)
    eigenvalues = np.linalg.eigvals(covariance_1 @ covariance_2).astype(complex)
    shared = np.sqrt(eigenvalues).real.sum()
    return float(squares + np.trace(covariance_1) + np.trace(covariance_2) - 2 * shared)


def frechet_distance(first: Moments, second: Moments) -> float:
    """Return the distance of :func:`fid` by a symmetric eigenvalue problem."""
    shared = _eigenvalues(first.covariance, second.covariance).clip(min=0)
    traces = first.covariance.trace() + second.covariance.trace()
    squares = np.square(first.mean - second.mean).sum()
    return float(squares + traces - 2 * np.sqrt(shared).sum())


def _eigenvalues(first: Numbers, second: Numbers) -> Numbers:
    """Return the eigenvalues of S_1 S_2.

    With S_1 = R R.T, the symmetric matrix R.T S_2 R has the same eigenvalues.
    """
    options = {"eigvals_only": True, "check_finite": False}
    values: Numbers
    try:
        # LAPACK's sygv has Cholesky's factor as R, and this driver is the fastest one.
        values = eigh(second, first, type=2, driver="gv", **options)
    # Cholesky's method fails where a feature depends on other features, or never changes
    except LinAlgError:
        variances, directions = eigh(first, check_finite=False)
        root = directions * np.sqrt(variances.clip(min=0))
        values = eigh(root.T @ second @ root, **options)
    return values


def weighted_moments(features: Numbers, weights: Numbers) -> Moments:
    """Return mean and unbiased covariance of features that are repeated by weights.

    Args:
        features: float64 (N, D); the error of rounding grows with the square of their mean.
        weights: float64 (N,).
    """
    drawn = weights > 0
    n = weights.sum()
    roots = np.sqrt(weights[drawn])
    scaled = features[drawn]
    scaled *= roots[:, None]
    mean = roots @ scaled / n
    products = scaled.T @ scaled  # numpy computes half of a symmetric product
    return Moments(mean, (products - n * np.outer(mean, mean)) / (n - 1))


def resampled_fid(generated: Samples, reference: Reference) -> Statistic:
    """Return FID of index matrices (R, N) and (R, M)."""
    samples, real = _numbers(generated), _numbers(reference)
    # rounding errors grow with the mean, so the means' difference is added afterwards
    centre, centre_of_real = samples.mean(axis=0), real.mean(axis=0)
    apart = centre - centre_of_real
    samples = samples - centre
    real = real - centre_of_real

    def distance(of_samples: Numbers, of_real: Numbers) -> float:
        first = weighted_moments(samples, of_samples)
        second = weighted_moments(real, of_real)
        return frechet_distance(first._replace(mean=first.mean + apart), second)

    def distances(drawn_samples: Indices, drawn_real: Indices) -> Numbers:
        of_samples = multiplicities(drawn_samples, len(samples)).astype(float)
        of_real = multiplicities(drawn_real, len(real)).astype(float)
        resamples = list(zip(of_samples, of_real, strict=True))
        shown = progress.track(resamples, "", "resamples")
        # with more threads, eigenvalues take many times as long while other processes are busy
        with one_thread():
            return np.array([distance(*weights) for weights in shown])

    return distances


# --- kernel distance ------------------------------------------------------------------------------


def kid(generated: Samples, reference: Reference, subsets: int, subset_size: int) -> float:
    """Return the mean over subsets of the unbiased squared MMD.

    It is slightly below 0 for equal distributions.
    """
    from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

    options = {"kid_subsets": subsets, "kid_subset_size": subset_size, "verbose": False}
    distances = kid_features_to_metric(generated.double(), reference.double(), **options)
    return float(distances[KEY_METRIC_KID_MEAN])


def resampled_kid(generated: Samples, reference: Reference) -> Statistic:
    """Return the unbiased squared MMD of all images, of index matrices (R, N) and (R, M).

    :func:`kid` estimates it by a mean over subsets. An image is not paired with itself, but is with
    its copies in the resample; the bias of these pairs cancels in the interval, which only uses
    deviations.
    """
    x, y = _numbers(generated), _numbers(reference)
    n, m = len(x), len(y)

    def distances(drawn_x: Indices, drawn_y: Indices) -> Numbers:
        a = multiplicities(drawn_x, n).astype(float)
        b = multiplicities(drawn_y, m).astype(float)
        within_x = _sums_of_pairs(x, a) / (n * (n - 1))
        within_y = _sums_of_pairs(y, b) / (m * (m - 1))
        between = _sums_between(x, y, a, b) / (n * m)
        unbiased: Numbers = within_x + within_y - 2 * between
        return unbiased

    return distances


def _sums_of_pairs(x: Numbers, a: Numbers) -> Numbers:
    """Return the sum of a_i k(x_i, x_j) a_j without the kernel of an image and itself."""
    squares = (x * x).sum(axis=1)
    itself = _cube(squares / x.shape[1] + 1)
    sums: Numbers = _sums_within(x, a) - a @ itself
    return sums


def _cube(base: Numbers) -> Numbers:
    return base * base * base  # several times faster than base**3


def _kernel(x: Numbers, y: Numbers) -> Numbers:
    return _cube(x @ y.T / x.shape[1] + 1)


def _sums_between(x: Numbers, y: Numbers, a: Numbers, b: Numbers) -> Numbers:
    """Return the sum of a_i k(x_i, y_j) b_j for rows of a (R, N) and b (R, M).

    The N x M matrix is never whole in memory.
    """
    total = np.zeros(len(a))
    for start in progress.track(range(0, len(x), _BLOCK), "", "blocks"):
        rows = slice(start, start + _BLOCK)
        total += ((a[:, rows] @ _kernel(x[rows], y)) * b).sum(axis=1)
    return total


def _sums_within(x: Numbers, a: Numbers) -> Numbers:
    """Return the sum of a_i k(x_i, x_j) a_j for each row of a (R, N).

    The upper half of the symmetric kernel suffices.
    """
    total = np.zeros(len(a))
    for start in progress.track(range(0, len(x), _BLOCK), "", "blocks"):
        rows = slice(start, start + _BLOCK)
        kernel = _kernel(x[rows], x[start:])
        kernel[:, _BLOCK:] *= 2  # the blocks below the diagonal
        total += ((a[:, rows] @ kernel) * a[:, start:]).sum(axis=1)
    return total


def standardised(generated: Samples, reference: Reference) -> tuple[Samples, Reference]:
    """Standardise each feature by the reference; only shift constant features."""
    mean = reference.mean(dim=0)
    deviation = reference.std(dim=0)
    deviation = deviation.where(deviation > 0, 1.0)
    return (generated - mean) / deviation, (reference - mean) / deviation
