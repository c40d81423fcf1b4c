"""The measured time of nearly equal forwards. Timings have outliers, most of them too long."""

CLIP = 0.3
"""Farthest a sample may pull, as a part of the estimate."""
_FIRST_CLIP = 0.4
_RATE = 0.04
_FIRST_SAMPLES = 5
_STEADY = 1.3
"""Of the least of the first samples, above which one is an outlier: two of three may be."""
_NEIGHBOUR_WEIGHT = 2.0
"""Samples that the cells beside it are worth to a cell that has one, which may be an outlier."""

Features = tuple[float, float, float, float]
"""What the fitted line multiplies its coefficients with."""
Point = tuple[float, float, float]
"""Position, measured over modelled time, samples."""


def clip(seconds: float, expected: float, part: float) -> float:
    """A sample, no farther from what was expected than a part of it."""
    return min(expected * (1.0 + part), max(expected * (1.0 - part), seconds))


class Cell:
    """The measured time of nearly equal steps."""

    __slots__ = ("count", "features", "first", "last", "position", "seconds")

    def __init__(
        self, features: Features, position: float, seconds: float, expected: float | None
    ) -> None:
        self.features = features
        self.position = position
        self.first = [seconds]
        # One sample may be an outlier: until there is a second it may not say much that is new.
        self.seconds = seconds if expected is None else clip(seconds, expected, _FIRST_CLIP)
        self.count = 1
        self.last = 0

    def add(self, features: Features, position: float, seconds: float) -> None:
        """A median of the first samples, those far above the least left out, then a moving mean."""
        self.count += 1
        rate = max(_RATE, 1.0 / self.count)
        if self.count <= _FIRST_SAMPLES:
            self.first.append(seconds)
            self.first.sort()
            near = [time for time in self.first if time <= _STEADY * self.first[0]]
            self.seconds = near[(len(near) - 1) // 2]
        else:
            self.seconds += rate * (clip(seconds, self.seconds, CLIP) - self.seconds)
        old = self.features
        self.features = (
            old[0] + rate * (features[0] - old[0]),
            old[1] + rate * (features[1] - old[1]),
            old[2] + rate * (features[2] - old[2]),
            old[3] + rate * (features[3] - old[3]),
        )
        self.position += rate * (position - self.position)


def lean_on_neighbours(curve: list[Point], cells: list[Cell]) -> list[Point]:
    """Draw the ratios of cells with a single sample to those of the confirmed cells beside them."""
    confirmed = [point for point, cell in zip(curve, cells, strict=True) if cell.count > 1]
    if not confirmed:
        return curve
    result = []
    for point, cell in zip(curve, cells, strict=True):
        ratio = point[1]
        if cell.count == 1:
            beside = interpolate(confirmed, point[0])
            ratio = (ratio + _NEIGHBOUR_WEIGHT * beside) / (1.0 + _NEIGHBOUR_WEIGHT)
        result.append((point[0], ratio, point[2]))
    return result


def interpolate(points: list[Point], position: float) -> float:
    """The ratio between points by straight lines, and level beyond their ends."""
    left: Point | None = None
    for right in points:
        if right[0] >= position:
            if left is None or right[0] == position:
                return right[1]
            part = (position - left[0]) / (right[0] - left[0])
            return left[1] + part * (right[1] - left[1])
        left = right
    return 1.0 if left is None else left[1]
