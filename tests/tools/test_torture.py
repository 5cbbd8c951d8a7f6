"""The short version of ``make torture``: each attack once; those that take long are a slow test.

``tests/training/test_resume.py`` kills runs too, and ``tests/fuzz`` reads mutated inputs.
"""

import pytest
from tools.torture import ATTACKS, BEGIN, END, Outcome, table, torture, with_table

LONG = ("kills", "commands", "inputs", "load")


@pytest.mark.parametrize(
    "attacks",
    [[name for name in ATTACKS if name not in LONG], pytest.param([*LONG], marks=pytest.mark.slow)],
)
def test_nothing_is_lost_differs_or_goes_unnoticed(attacks: list[str]) -> None:
    outcomes = torture(0, attacks)
    assert [outcome.what for outcome in outcomes] == [ATTACKS[name][0] for name in attacks]
    assert all(outcome.tries and not outcome.faults for outcome in outcomes), table(outcomes)


def test_the_table_is_replaced_or_added_to() -> None:
    kills, load = ATTACKS["kills"][0], ATTACKS["load"][0]
    page = f"before\n{BEGIN}\n{table([Outcome(load, 9, 0), Outcome(kills, 1_000, 1)])}\n{END}\nafter\n"
    again = with_table(page, [Outcome(kills, 5, 0)], add=False)
    assert again.startswith(f"before\n{BEGIN}\n| attack")
    assert again.endswith(f"{END}\nafter\n")
    rows = [line for line in again.splitlines() if line.startswith("|")][2:]
    assert rows == [f"| {kills} | 5 | 0 |", f"| {load} | 9 | 0 |"]
    assert f"| {kills} | 1,005 | 1 |" in with_table(page, [Outcome(kills, 5, 0)], add=True)
