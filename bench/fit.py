"""How cost grows: the exponent of a power law through points, by least squares in log–log."""

import math
from collections.abc import Sequence


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """b of cost = a · size^b. Raises ValueError without two different sizes, or for costs ≤ 0."""
    if len(sizes) != len(costs) or len(set(sizes)) < 2 or min(*sizes, *costs) <= 0:
        raise ValueError(f"no line through sizes {list(sizes)} and costs {list(costs)}")
    across, up = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_across, mean_up = sum(across) / len(across), sum(up) / len(up)
    slope = sum((x - mean_across) * (y - mean_up) for x, y in zip(across, up, strict=True))
    return slope / sum((x - mean_across) ** 2 for x in across)
