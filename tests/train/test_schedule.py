import pytest
import torch

from sparselabel.config import Phase
from sparselabel.train.schedule import learning_rate


def rates(phase: Phase, steps: int) -> list[float]:
    return [learning_rate(phase, step, steps) for step in range(steps)]


def test_constant() -> None:
    assert rates(Phase(epochs=1, learning_rate=0.3), 3) == [0.3, 0.3, 0.3]


def test_cosine_equals_torch() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=20)
    wanted = []
    for _ in range(20):
        wanted.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates(Phase(epochs=1, learning_rate=0.3, schedule="cosine"), 20) == pytest.approx(wanted, rel=1e-9)


def test_one_cycle_equals_torch() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=0.3, total_steps=50, pct_start=0.2, cycle_momentum=False
    )
    wanted = []
    for step in range(50):
        wanted.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if step < 49:
            schedule.step()
    assert rates(Phase(epochs=1, learning_rate=0.3, schedule="one-cycle"), 50) == pytest.approx(
        wanted, rel=1e-9
    )


def test_one_cycle_of_very_few_steps_stays_in_range() -> None:
    for steps in range(1, 12):
        assert all(
            0 < rate <= 0.3 for rate in rates(Phase(epochs=1, learning_rate=0.3, schedule="one-cycle"), steps)
        )
