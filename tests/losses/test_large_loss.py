"""Large losses, worked by hand; test_large_loss_golden.py ties them to the authors' numbers."""

from pathlib import Path

import torch

from sparselabel.losses.registry import make_method
from sparselabel.losses.step import Layout, Progress
from tests.losses.steps import build_method, make_step, targets_of

OBSERVED = torch.tensor([[1, -1, 0]], dtype=torch.int8)


def test_no_more_large_losses_than_unknown_labels() -> None:
    # The program goes on with the observed positives there.
    logits = torch.tensor([[2.0, 1.0, -1.0]], dtype=torch.float64)
    for name, value in (("ll-r", [1.0, 0.0, 0.0]), ("ll-ct", [1.0, 1.0, 0.0])):
        targets = targets_of(build_method(name, OBSERVED, share=1.0), make_step(logits, OBSERVED))
        assert targets.value.tolist() == [value]
        assert targets.weight.tolist() == [[1.0, float(name == "ll-ct"), 1.0]]


def test_the_number_of_large_losses_is_exact() -> None:
    observed = torch.full((4, 25), -1, dtype=torch.int8)
    logits = torch.arange(100.0).view(4, 25)
    for epoch, wanted in ((0, 0), (1, 4), (2, 8), (4, 16)):  # ⌈100·.04·epoch⌉; binary .04 is more
        progress = Progress(epoch, 9, 0, 1e-3)
        targets = targets_of(
            build_method("ll-r", observed, share=0.04), make_step(logits, observed, progress=progress)
        )
        assert int((targets.weight == 0).sum()) == wanted
        targets = targets_of(
            build_method("ll-cp", observed, share=0.04), make_step(logits, observed, progress=progress)
        )
        assert int(targets.value.sum()) == min(wanted, 4)


def test_equal_losses_are_large_together() -> None:
    observed = torch.full((1, 4), -1, dtype=torch.int8)
    targets = targets_of(
        build_method("ll-r", observed, share=0.25), make_step(torch.tensor([[3.0, 3.0, 1.0, 0.0]]), observed)
    )
    assert targets.weight.tolist() == [[0.0, 0.0, 1.0, 1.0]]


def test_corrections_are_kept_in_a_file_too(tmp_path: Path) -> None:
    observed = torch.full((5, 11), -1, dtype=torch.int8)
    logits = torch.randn(5, 11, generator=torch.manual_seed(0))
    kept = []
    for keep in ("ram", "file"):
        method = make_method("ll-cp", share=0.1)
        method.prepare(Layout(torch.arange(5), observed, 5, folder=tmp_path, keep=keep))
        step = make_step(logits, observed)
        method(step)
        method.update(step)
        assert int(targets_of(method, step).value.sum()) == 12  # ⌈5.5⌉ were turned before, as many now
        kept.append(method.logged_state(torch.arange(5))["corrected_labels"])
    assert torch.equal(*kept)
    largest = torch.zeros(55).scatter(0, logits.flatten().topk(6).indices, 1).bool().view(5, 11)
    assert torch.equal(kept[0], largest)
