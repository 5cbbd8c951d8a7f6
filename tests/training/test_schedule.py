from typing import Any

import pytest
import torch

from sparselabel.config import Phase
from sparselabel.training.schedule import lr_at, momentum_at


def rates(phase: Phase, steps: int) -> list[float]:
    return [lr_at(phase, step, steps) for step in range(steps)]


def test_constant() -> None:
    assert rates(Phase(epochs=1, lr=0.3), 3) == [0.3, 0.3, 0.3]


def test_cosine_equals_torch() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    wanted = []
    for _ in range(20):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates(Phase(epochs=1, lr=0.3, schedule="cosine"), 20) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_one_cycle_equals_torch(kind: Any) -> None:
    extra = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind([torch.zeros(1, requires_grad=True)], lr=0.1, **extra)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=50, pct_start=0.2)
    wanted = []
    for step in range(50):
        (group,) = optimizer.param_groups
        wanted.append((group["lr"], group["momentum"] if extra else group["betas"][0]))
        optimizer.step()
        if step < 49:
            schedule.step()
    phase = Phase(epochs=1, lr=0.3, schedule="one-cycle")
    assert rates(phase, 50) == pytest.approx([rate for rate, _ in wanted], rel=1e-9)
    moved = [momentum_at(phase, step, 50) for step in range(50)]
    assert moved == pytest.approx([value for _, value in wanted], rel=1e-9)
    assert (moved[0], moved[9], moved[49]) == pytest.approx((0.95, 0.85, 0.95))


def test_others_leave_the_momentum_alone() -> None:
    for schedule in ("constant", "cosine"):
        assert momentum_at(Phase(epochs=1, schedule=schedule), 3, 10) is None


def test_one_cycle_of_very_few_steps_stays_in_range() -> None:
    for steps in range(1, 12):
        assert all(0 < rate <= 0.3 for rate in rates(Phase(epochs=1, lr=0.3, schedule="one-cycle"), steps))
