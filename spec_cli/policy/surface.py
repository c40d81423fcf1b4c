"""A measured time as a function of a forward's size: a fitted line under a table of cells.

The monotone model is that of TurboSpec (Liu et al. 2024, arXiv 2406.14066, section 4):
`seconds = fixed + per_token * tokens + per_row * rows + per_context_token * context`, with
coefficients that are never negative. Over it lies a table of measured cells, keyed by rows and
tokens, because real step times have knees and jumps (kernel changes) that no line follows.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import exp2, log2, sqrt

from spec_cli.policy.cell import CLIP, Cell, Features, Point, clip, interpolate, lean_on_neighbours

_EXACT_BUCKETS = 16
_HALF_LIFE = 128
_DRIFT_RATE = 0.1
_DRIFT_Z = 3.0
_LEAST_DRIFT = 0.05
_DRIFT_SAMPLES = 24
_FULL_WEIGHT = 8
_REFIT_INTERVAL = 32
_PRIOR_STRENGTH = 0.05


@dataclass(frozen=True, slots=True)
class CostPrior:
    """A guess at the model's coefficients, all in seconds; only their ratios matter after a step.

    Attributes:
        fixed_s: Of a forward, whatever its size.
        per_token_s: For each packed token.
        per_row_s: For each row.
        per_context_token_s: For each token of context, summed over the rows.
    """

    fixed_s: float
    per_token_s: float
    per_row_s: float = 0.0
    per_context_token_s: float = 0.0


def _bucket(count: int) -> int:
    """Counts up to 16 as they are, then four buckets an octave."""
    if count <= _EXACT_BUCKETS:
        return count
    return _EXACT_BUCKETS + int(4.0 * log2(count / _EXACT_BUCKETS) + 1.0)


class TimeSurface:
    """Seconds as a function of four features, refined along rows and one more axis.

    A common factor follows the machine's own drift (heat, other work): what a well-known cell
    suddenly takes longer, all others will too. It cancels out of every comparison between them.

    Args:
        prior: Coefficients to start from.
        monotone: Whether more tokens (the second feature and the axis) never take less time.
        line_weight: Samples of a cell that the fitted line is worth.
    """

    def __init__(
        self, prior: CostPrior, *, monotone: bool = False, line_weight: float = 0.5
    ) -> None:
        self._line_weight = line_weight
        self._monotone = monotone
        self._prior = (
            prior.fixed_s, prior.per_token_s, prior.per_row_s, prior.per_context_token_s,
        )  # fmt: skip
        self._fit: Features = self._prior
        self._cells: dict[tuple[int, int], Cell] = {}
        self._curves: dict[int, list[Point]] = {}
        self._drift = 1.0
        self._error = 0.0
        self._variance = 0.01
        self.num_samples = 0
        """Times learnt."""

    @property
    def coefficients(self) -> Features:
        """Seconds per unit of each feature, drift included."""
        fit, drift = self._fit, self._drift
        return (fit[0] * drift, fit[1] * drift, fit[2] * drift, fit[3] * drift)

    def count(self, num_rows: int, position: int) -> float:
        """Samples in the cell, fewer as they age."""
        cell = self._cells.get((_bucket(num_rows), _bucket(position)))
        return 0.0 if cell is None else self._fresh(cell)

    def _fresh(self, cell: Cell) -> float:
        return cell.count * exp2((cell.last - self.num_samples) / _HALF_LIFE)

    def observe(self, features: Features, num_rows: int, position: int, seconds: float) -> None:
        """Learn one measured time."""
        if seconds <= 0.0:
            return
        key = (_bucket(num_rows), _bucket(position))
        cell = self._cells.get(key)
        if cell is None:
            known = bool(self._cells)
            expected = self.seconds(features, num_rows, position) / self._drift if known else None
            self._cells[key] = Cell(features, position, seconds / self._drift, expected)
        else:
            if cell.count >= _DRIFT_SAMPLES:
                expected = cell.seconds * self._model(features) / self._model(cell.features)
                self._follow_drift(seconds / (expected * self._drift) - 1.0)
            cell.add(features, position, seconds / self._drift)
        self.num_samples += 1
        self._cells[key].last = self.num_samples
        if cell is None or self.num_samples % _REFIT_INTERVAL == 0:
            self._refit()
            self._curves.clear()
        else:
            self._curves.pop(key[0], None)

    def _follow_drift(self, error: float) -> None:
        """Move the common factor once the errors of well-known cells agree that it has moved.

        Less than that a cell keeps to itself: its own early error must not shift its neighbours.
        """
        error = clip(1.0 + error, 1.0, CLIP) - 1.0
        self._error += _DRIFT_RATE * (error - self._error)
        self._variance += _DRIFT_RATE * (error * error - self._variance)
        chance = sqrt(self._variance * _DRIFT_RATE / (2.0 - _DRIFT_RATE))
        if abs(self._error) > max(_LEAST_DRIFT, _DRIFT_Z * chance):
            self._drift *= 1.0 + self._error
            self._error = 0.0

    def _model(self, features: Features) -> float:
        fit = self._fit
        return (
            fit[0] * features[0] + fit[1] * features[1]
            + fit[2] * features[2] + fit[3] * features[3]
        )  # fmt: skip

    def _refit(self) -> None:
        """Least squares of relative errors over the cells, drawn to the prior, never negative."""
        cells = list(self._cells.values())
        weights = [min(cell.count, _FULL_WEIGHT) / _FULL_WEIGHT for cell in cells]
        total = sum(weights)
        prior = self._prior
        scale = 0.0
        magnitude = [0.0] * 4
        gram = [[0.0] * 4 for _ in range(4)]
        moment = [0.0] * 4
        for cell, weight in zip(cells, weights, strict=True):
            share = [feature / cell.seconds for feature in cell.features]
            scale += weight / max(1e-12, sum(p * x for p, x in zip(prior, share, strict=True)))
            for i, x in enumerate(share):
                magnitude[i] += weight * x
                moment[i] += weight * x
                row = gram[i]
                for j, y in enumerate(share):
                    row[j] += weight * x * y
        scale /= total
        fit = [p * scale for p in prior]
        for i in range(4):
            strength = _PRIOR_STRENGTH * (magnitude[i] / total) ** 2 + 1e-12
            gram[i][i] += strength
            moment[i] += strength * fit[i]
        for _ in range(24):  # coordinate descent: the exact minimum under the sign constraint
            for i in range(4):
                row = gram[i]
                away = row[0] * fit[0] + row[1] * fit[1] + row[2] * fit[2] + row[3] * fit[3]
                fit[i] = max(0.0, fit[i] + (moment[i] - away) / row[i])
        self._fit = (max(fit[0], 1e-9), fit[1], fit[2], fit[3])

    def curve(self, num_rows: int) -> list[Point]:
        """Measured over modelled time along the axis: (position, ratio, samples), ascending."""
        rows = _bucket(num_rows)
        curve = self._curves.get(rows)
        if curve is None:
            cells = [cell for key, cell in self._cells.items() if key[0] == rows]
            cells.sort(key=lambda cell: cell.position)
            line = self._line_weight
            curve = [
                (
                    cell.position,
                    (cell.count * cell.seconds / self._model(cell.features) + line)
                    / (cell.count + line),
                    self._fresh(cell),
                )
                for cell in cells
            ]
            curve = lean_on_neighbours(curve, cells)
            if self._monotone and len(cells) > 1:
                curve = self._isotonic(curve, cells)
            self._curves[rows] = curve
        return curve

    def _isotonic(self, curve: list[Point], cells: list[Cell]) -> list[Point]:
        """The nearest curve whose times do not fall (pool adjacent violators; Barlow et al. 1972).

        Weights are squared sample counts: the time of a cell met a few times may be that of an
        outlier, so it gives way to its well-known neighbours.
        """
        like = max(cells, key=lambda cell: cell.count).features
        models = [self._model((like[0], point[0], like[2], like[3])) for point in curve]
        times = [point[1] * model for point, model in zip(curve, models, strict=True)]
        if all(earlier <= later for earlier, later in pairwise(times)):
            return curve
        blocks: list[tuple[float, float, int]] = []  # weight, mean seconds, cells
        for cell, seconds in zip(cells, times, strict=True):
            block = (float(min(cell.count, _FULL_WEIGHT)) ** 2, seconds, 1)
            while blocks and blocks[-1][1] > block[1]:
                weight, mean, size = blocks.pop()
                both = weight + block[0]
                block = (both, (weight * mean + block[0] * block[1]) / both, size + block[2])
            blocks.append(block)
        level = [mean for _, mean, size in blocks for _ in range(size)]
        return [
            (point[0], seconds / model, point[2])
            for point, seconds, model in zip(curve, level, models, strict=True)
        ]

    def scale_prior(self, features: Features, seconds: float) -> None:
        """Before anything was measured, take the prior's size from an impure time."""
        if not self._cells:
            scale = seconds / self._model(features)
            fit = self._fit
            self._fit = (fit[0] * scale, fit[1] * scale, fit[2] * scale, fit[3] * scale)

    @property
    def is_measured(self) -> bool:
        """Whether any time was learnt."""
        return bool(self.num_samples)

    def ratio(self, num_rows: int, position: float) -> float:
        """Measured over modelled time at a position, measured there or not."""
        return interpolate(self.curve(num_rows), position)

    def seconds(self, features: Features, num_rows: int, position: float) -> float:
        """The expected time."""
        return self._drift * self._model(features) * self.ratio(num_rows, position)
