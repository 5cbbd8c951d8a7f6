"""Whether rows differ from a baseline by more than the choice of test pictures explains.

A paired bootstrap over the test pictures (``metrics/bootstrap.py``). Where there are several seeds, a draw's
value of a method is its mean mAP over them, as in the table, with the seeds that both rows have. So the
interval is that of the mean of these very runs under another choice of pictures; what other seeds would do is
not in it: that is what the spread is for.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from sparselabel.compare.summary import Row, beside
from sparselabel.errors import RunError

SPLIT = "test"
SAMPLES = 2000


def with_differences(
    rows: Sequence[Row], against: str, say: Callable[[str], None], samples: int = SAMPLES
) -> list[Row]:
    """Add each row's difference to the row of ``against`` with its varied value, where both were tested."""
    from sparselabel.inference.saved_scores import saved_scores
    from sparselabel.metrics.bootstrap import Drawn, difference, drawn

    by_run = {(number, seed): path for number, row in enumerate(rows) for seed, path in row.paths.items()}

    @cache
    def draws(number: int, seed: int) -> Drawn:
        saved = saved_scores(by_run[number, seed], SPLIT)
        return drawn(saved.scores, saved.positive, samples)

    def added(number: int, row: Row) -> Row:
        base = beside(rows, against, row.value)
        if base is None or base is row or not row.test:
            return row
        seeds = [seed for seed in row.test if seed in base.test]
        if not seeds:
            return row
        place = next(place for place, one in enumerate(rows) if one is base)
        try:
            first, second = ([draws(at, seed) for seed in seeds] for at in (place, number))
        except RunError as error:  # trained by an older version, or files were removed
            say(f"no bootstrap for {row.method}: {error}")
            return row
        return replace(row, difference=difference(first, second))

    return [added(number, row) for number, row in enumerate(rows)]
