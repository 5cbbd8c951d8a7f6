"""``sparselabel differ``: whether one run is better than another on a split."""

from pathlib import Path

from sparselabel.cli.terminal import plain_console


def differ(run: Path, other: Path, /, *, split: str = "test", samples: int = 2000) -> None:
    """Compare two evaluated runs on the same images: difference of mAP and its 95 % interval.

    The images are resampled with replacement many times, the same for both runs (a paired bootstrap).

    Example: `sparselabel differ runs/an runs/role --split test`

    Parameters
    ----------
    run
        Folder of an evaluated run.
    other
        Folder of another evaluated run; the difference is its mAP minus that of the first.
    split
        Which split of the data: test, val or train.
    samples
        Number of bootstrap samples.
    """
    from sparselabel.errors import counted
    from sparselabel.inference.saved_scores import saved_pair
    from sparselabel.metrics.bootstrap import paired_bootstrap
    from sparselabel.metrics.label_metrics import map_name_of
    from sparselabel.run import Run

    first, second = saved_pair(Run(run), Run(other), split)
    bootstrap = paired_bootstrap(first.array, second.array, first.positive, samples)
    console = plain_console()
    console.print(f"{split}: {counted(len(first.labels), 'image')}, {map_name_of(first.labels)}")
    wide = max(len(str(path)) for path in (run, other))
    for path, value in ((run, bootstrap.first), (other, bootstrap.second)):
        console.print(f"  {path!s:{wide}}  {100 * value:.2f}")
    low, middle, high = (
        f"{100 * number:+.2f}".replace("-", "−")
        for number in (bootstrap.low, bootstrap.difference, bootstrap.high)
    )
    interval = f"95 % interval {low} to {high}"
    if bootstrap.same_sign is None:
        console.print(f"no difference, {interval} over {bootstrap.samples:,} draws")
    else:
        sign = f"{bootstrap.same_sign:.1%} of {bootstrap.samples:,} draws have its sign"
        if bootstrap.low <= 0 <= bootstrap.high:
            sign += "\nthe interval contains 0: the difference is not more than chance"
        console.print(f"difference {middle}, {interval}; {sign}")
