"""Tests of a sample against a distribution, and of two samples against each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_EXPECTED = 5.0  # a cell expected less often is pooled, or chi-square is no approximation
ENOUGH = 10  # null draws as extreme as the sample, after which more would change no verdict


def chi_square_p(statistic: float, freedom: int) -> float:
    """P(chi-square with `freedom` degrees >= statistic)."""
    if freedom == 0:
        return 1.0
    return _upper_gamma(freedom / 2, statistic / 2)


def fit(counts: Ints, p: Floats) -> tuple[float, int]:
    """Pearson's statistic of counts [K] against probabilities [K], and its degrees of freedom.

    Cells expected fewer than LEAST_EXPECTED times are pooled. A count where p is 0 is impossible:
    the statistic is infinite.
    """
    if counts[p <= 0].any():
        return math.inf, 1
    n = counts.sum()
    expected = n * p
    large = expected >= LEAST_EXPECTED
    cells, seen = expected[large], counts[large].astype(np.float64)
    rest, rest_seen = n - cells.sum(), n - seen.sum()
    if len(cells) and rest < LEAST_EXPECTED:
        smallest = int(cells.argmin())
        cells[smallest] += rest
        seen[smallest] += rest_seen
    else:
        cells, seen = np.append(cells, rest), np.append(seen, rest_seen)
    return float(((seen - cells) ** 2 / cells).sum()), len(cells) - 1


@dataclass(frozen=True)
class Distance:
    """A test's statistic, its mean under the null, and the p-value."""

    figure: float
    null: float
    p_value: float


def pull(samples: Sequence[Ints], p: Sequence[Floats], q: Sequence[Floats]) -> Distance:
    """Do samples lean from p towards q? By the share of tokens that q likes better than p does.

    One degree of freedom along the direction in which wrong acceptance errs, so it sees a faint
    fault earlier than chi-square over all tokens; two-sided, normal approximation.

    Args:
        samples: [n] tokens of each place; p, q: [V] at each place.
    """
    liked = [theirs > ours for ours, theirs in zip(p, q, strict=True)]
    sizes = np.asarray([len(sample) for sample in samples])
    shares = np.asarray([ours[which].sum() for ours, which in zip(p, liked, strict=True)])
    seen = sum(int(which[sample].sum()) for sample, which in zip(samples, liked, strict=True))
    expected, variance = float(sizes @ shares), float(sizes @ (shares * (1 - shares)))
    n = int(sizes.sum())
    score = (seen - expected) / math.sqrt(variance) if variance > LEAST_EXPECTED else 0.0
    return Distance(seen / n, expected / n, math.erfc(abs(score) / math.sqrt(2)))


def permutation_test(
    pairs: Sequence[tuple[Ints, Ints]], smallest_p: float, rng: np.random.Generator
) -> Distance:
    """Do two samples have one distribution? By total variation, averaged over columns and pairs.

    The null is exact: whole rows are dealt anew to the two samples, within each pair. Draws end
    once ENOUGH of them were as extreme (Besag and Clifford 1991), or when p can fall below
    `smallest_p`.

    Args:
        pairs: samples [n, P] and [m, P] of non-negative codes; rows are independent.
    """
    cells = [_cells(np.concatenate(pair)) for pair in pairs]
    sizes = [len(first) for first, _ in pairs]

    def distance(orders: Sequence[Ints]) -> float:
        parts = []
        for (codes, total), n, order in zip(cells, sizes, orders, strict=True):
            one = np.bincount(codes[order[:n]].ravel(), minlength=len(total))
            other = (total - one) / (len(codes) - n)
            parts.append(0.5 * np.abs(one / n - other).sum() / codes.shape[1])
        return float(np.mean(parts))

    figure = distance([np.arange(len(codes)) for codes, _ in cells])
    most = math.ceil(1.5 / smallest_p)
    null: list[float] = []
    extreme = 0
    while extreme < ENOUGH and len(null) < most:
        null.append(distance([rng.permutation(len(codes)) for codes, _ in cells]))
        extreme += null[-1] >= figure - 1e-12
    p = extreme / len(null) if extreme == ENOUGH else (extreme + 1) / (len(null) + 1)
    return Distance(figure, float(np.mean(null)), p)


def _cells(codes: Ints) -> tuple[Ints, Ints]:
    """[n, P] codes to cells, those of one column apart from those of another; [K] their counts."""
    wide = codes + np.arange(codes.shape[1]) * (int(codes.max()) + 1)
    _, cells, total = np.unique(wide, return_inverse=True, return_counts=True)
    return cells.reshape(codes.shape), total


def _upper_gamma(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(a, x); a > 0, x >= 0."""
    if x <= 0:
        return 1.0
    if math.isinf(x):
        return 0.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:  # the series of P converges fast here, the continued fraction of Q elsewhere
        term = total = 1.0 / a
        n = a
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        return max(0.0, 1.0 - scale * total)
    # modified Lentz: Q = scale / (x+1-a - 1(1-a)/(x+3-a - 2(2-a)/(x+5-a - ...)))
    b = x + 1.0 - a
    c, d = math.inf, 1.0 / b
    fraction = d
    for i in range(1, 10_000):
        b += 2.0
        numerator = -i * (i - a)
        d = 1.0 / (numerator * d + b)
        c = b + numerator / c
        fraction *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return scale * fraction
