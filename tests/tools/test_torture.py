"""The short version of ``make torture``: each attack once; kills, which take longest, are a slow test.

``tests/training/test_resume.py`` kills runs too.
"""

import pytest
from tools.torture import ATTACKS, kills, table, torture

QUICK = [what for what, attack in ATTACKS.items() if attack is not kills]


@pytest.mark.parametrize("attacks", [QUICK, pytest.param([*ATTACKS], marks=pytest.mark.slow)])
def test_nothing_is_lost_differs_or_goes_unnoticed(attacks: list[str]) -> None:
    outcomes = torture(0, attacks)
    assert [(outcome.what, outcome.tries, outcome.faults) for outcome in outcomes] == [
        (what, 1, 0) for what in attacks
    ], table(outcomes)
