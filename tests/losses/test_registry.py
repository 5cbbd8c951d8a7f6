import math
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from torch import Tensor

from sparselabel.data.labels import UNKNOWN
from sparselabel.errors import ConfigError
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.registry import METHODS, make_method, parse, settings_of
from tests.conftest import Golden
from tests.losses import reference
from tests.losses.steps import after_one_epoch, build_method, make_step, value_and_gradient

SETTINGS: dict[str, dict[str, Any]] = {
    name: {"expected_positives": 1.5} for name in METHODS if "expected_positives" in settings_of(name)
}
PEER_EPSILON = 1e-5


def our_coding(labels: np.ndarray[Any, Any]) -> Tensor:
    """The authors' +1, 0 (unknown), -1 (negative) as 1, -1, 0."""
    return torch.from_numpy(np.select([labels == 1, labels == -1], [1, 0], UNKNOWN)).to(torch.int8)


def kept_lines(method: ComposedLoss) -> Tensor:
    """(n, 3, L) The numbers that role keeps about every row: φ and its moments."""
    memory = method.row_stores()["label_loss.rule.beliefs.lines"]
    values = memory.state()["values"]
    return values.view(len(values), 3, -1)


def golden_cases(cole: Golden) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(our method, its settings, case) for every loss of the authors' program but role."""
    found = []
    for case in cole.of_kind("loss"):
        function, hyper = case["function"].removeprefix("loss_"), case["hyper"]
        settings: dict[str, Any] = {}
        if "ls_coef" in hyper:
            settings["smoothing"] = 2 * hyper["ls_coef"]  # they use it as the flip weight itself
        if "expected_num_pos" in hyper:
            settings["expected_positives"] = hyper["expected_num_pos"]
        if function == "wan":
            settings["negative_weight"] = 1 / (case["inputs"]["logits"].shape[1] - 1)
        if function != "role" and "as_released" not in case["id"]:
            found.append((function.replace("_", "-"), settings, case))
    return found


def test_every_loss_is_tied_to_the_authors_numbers(cole: Golden) -> None:
    cases = golden_cases(cole)
    assert {name for name, _, _ in cases} == {"bce", "bce-ls", "iu", "iun", "an", "an-ls", "wan", "epr"}
    for name, settings, case in cases:
        logits = torch.from_numpy(case["inputs"]["logits"]).double()
        labels = case["inputs"]["labels"]
        full = case["inputs"].get("true_labels", labels)
        truth = torch.from_numpy(full).double()
        observed = our_coding(labels)
        for epsilon, tolerance in ((PEER_EPSILON, 1e-9), (0.0, 1e-12)):
            x = logits.clone().requires_grad_()
            value = reference.loss(name, x, observed, truth, epsilon, **settings)
            (gradient,) = torch.autograd.grad(value, x)
            if epsilon:
                wanted = (
                    torch.tensor(case["values"]["loss64"], dtype=torch.float64),
                    torch.from_numpy(case["outputs"]["grad64"]),
                )
            else:
                method = build_method(name, observed, **settings)
                wanted = value_and_gradient(method, logits, observed, truth.to(torch.int8))
            torch.testing.assert_close(value.detach(), wanted[0], rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(gradient, wanted[1], rtol=tolerance, atol=tolerance)


def test_role_is_tied_to_the_authors_numbers(cole: Golden) -> None:
    cases = [case for case in cole.of_kind("loss") if case["function"] == "loss_role"]
    assert len(cases) == 8
    for case in cases:
        logits = torch.from_numpy(case["inputs"]["logits"]).double()
        estimates = torch.from_numpy(case["inputs"]["est_logits"]).double()
        observed = our_coding(case["inputs"]["labels"])
        expected = case["hyper"]["expected_num_pos"]
        for epsilon, tolerance in ((PEER_EPSILON, 1e-9), (0.0, 1e-6)):
            f, y = logits.clone().requires_grad_(), estimates.clone().requires_grad_()
            value = 0.5 * (
                reference.role_side(f, y, observed, expected, epsilon)
                + reference.role_side(y, f, observed, expected, epsilon)
            )
            gradient, gradient_of_estimates = torch.autograd.grad(value, (f, y))
            if epsilon:
                wanted = (
                    torch.tensor(case["values"]["loss64"], dtype=torch.float64),
                    torch.from_numpy(case["outputs"]["grad64"]),
                )
                torch.testing.assert_close(
                    gradient_of_estimates,
                    torch.from_numpy(case["outputs"]["grad_est_logits64"]),
                    rtol=tolerance,
                    atol=tolerance,
                )
            else:
                method = build_method("role", observed, expected_positives=expected)
                kept_lines(method)[:, 0] = estimates.float()  # φ is kept in float32
                wanted = value_and_gradient(method, logits, observed, None)
            torch.testing.assert_close(value.detach(), wanted[0], rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(gradient, wanted[1], rtol=tolerance, atol=tolerance)


def numbers_to_set() -> list[tuple[str, str]]:
    """(method, setting) for all that takes any number; whole numbers and expected_positives are elsewhere."""
    found = []
    for name in [*METHODS, "an+cl", "an+scl", "csl-i+cluster", "csl-i+fixmatch"]:
        types = {key: kind for part in parse(name).methods for key, kind in get_type_hints(part.make).items()}
        numbers = [key for key, kind in types.items() if kind in (float, float | None)]
        found += [(name, key) for key in settings_of(name) if key in numbers and key != "expected_positives"]
    return found


@pytest.mark.parametrize(("name", "setting"), numbers_to_set())
def test_numbers_that_cannot_be_are_refused(name: str, setting: str) -> None:
    given = {"expected_positives": 1.5} if "expected_positives" in settings_of(name) else {}
    impossible = [math.nan, math.inf, -math.inf] + [-1.0] * (not setting.startswith("belief_"))
    for value in impossible:
        with pytest.raises(ConfigError, match=rf"\b{setting}\b.* {value}"):
            make_method(name, **given, **{setting: value})


# Two images, three classes, worked by hand: logits 0 give f = ½, so every entry costs log 2.
LOG2 = math.log(2)
OBSERVED = torch.tensor([[1, -1, -1], [-1, 0, 1]], dtype=torch.int8)
TRUTH = torch.tensor([[1, 1, 0], [0, 0, 1]], dtype=torch.int8)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("bce", {}, LOG2),
        ("bce-ls", {"smoothing": 0.2}, LOG2),
        ("iu", {}, 3 * LOG2 / 6),  # three observed entries
        ("iun", {}, 5 * LOG2 / 6),  # all but the hidden positive
        ("an", {}, LOG2),
        ("an-ls", {}, LOG2),
        ("wan", {}, (3 + 3 * 0.5) * LOG2 / 6),  # γ = 1/(3−1) on three unknown entries
        ("wan", {"negative_weight": 0.25}, (3 + 3 * 0.25) * LOG2 / 6),
        ("epr", {"expected_positives": 1.2}, 3 * LOG2 / 6 + ((1.5 - 1.2) / 3) ** 2),
        ("epr", {"expected_positives": 1.2, "positive_weight": 3.0}, 7 * LOG2 / 6 + 0.01),
        ("epr", {"expected_positives": 1.2, "count_weight": 2.0}, 3 * LOG2 / 6 + 0.02),
        ("pseudo", {}, LOG2),
    ],
)
def test_worked_by_hand_at_one_half(name: str, settings: dict[str, Any], expected: float) -> None:
    method = build_method(name, OBSERVED, **settings)
    loss, _ = value_and_gradient(method, torch.zeros(2, 3, dtype=torch.float64), OBSERVED, TRUTH)
    assert float(loss) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_finite_at_large_logits(name: str) -> None:
    observed = torch.tensor([[1, -1, 0], [-1, 1, 0]], dtype=torch.int8).repeat(2, 1)
    truth = torch.tensor([[1, 1, 0], [0, 1, 0]], dtype=torch.int8).repeat(2, 1)
    for sign in (1, -1):
        logits = torch.full((4, 3), 100.0 * sign)
        method = build_method(name, observed, **SETTINGS.get(name, {}))
        after_one_epoch(method, logits, observed, truth)
        loss, gradient = value_and_gradient(method, logits, observed, truth)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient).all()
        assert float(loss) > 1.0


@pytest.mark.parametrize("name", METHODS)
def test_order_of_rows_and_classes_does_not_matter(name: str) -> None:
    generator = torch.manual_seed(3)
    logits = torch.randn(6, 5, dtype=torch.float64, generator=generator)
    truth = (torch.rand(6, 5, generator=generator) < 0.4).to(torch.int8)
    observed = torch.where(
        torch.rand(6, 5, generator=generator) < 0.5, truth, torch.tensor(-1, dtype=torch.int8)
    )
    rows, classes = torch.randperm(6, generator=generator), torch.randperm(5, generator=generator)
    method = build_method(name, observed, **SETTINGS.get(name, {}))
    other = build_method(name, observed[rows][:, classes], **SETTINGS.get(name, {}))
    if name == "role":  # the draws at the start belong to places, so they move along
        kept_lines(other)[:] = kept_lines(method)[rows][:, :, classes]
    after_one_epoch(method, logits, observed, truth)
    loss, gradient = value_and_gradient(method, logits, observed, truth)
    moved = logits[rows][:, classes], observed[rows][:, classes], truth[rows][:, classes]
    after_one_epoch(other, *moved)
    loss_moved, gradient_moved = value_and_gradient(other, *moved)
    tolerance = 1e-6 if name == "role" else 1e-12  # estimates are float32
    if name.endswith("+scl"):
        tolerance = 1 / 255  # heat maps are rounded by numbers that belong to rows
    torch.testing.assert_close(loss_moved, loss, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(gradient_moved, gradient[rows][:, classes], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [*METHODS, "asl+cl", "hill+cl"])
def test_padding_counts_for_nothing(name: str) -> None:
    observed = torch.tensor([[1, -1, 0], [-1, 1, -1]], dtype=torch.int8)
    truth = torch.tensor([[1, 1, 0], [0, 1, 0]], dtype=torch.int8)
    logits = torch.tensor([[0.5, -1.0, 0.3], [0.1, 2.0, -0.7]], dtype=torch.float64)
    method = build_method(name, observed, **SETTINGS.get(name, {}))
    after_one_epoch(method, logits, observed, truth)
    plain = method(make_step(logits, observed, truth))
    padded = method(
        make_step(
            torch.cat([logits, torch.full((1, 3), 5.0, dtype=torch.float64)]),
            torch.cat([observed, observed[:1]]),
            torch.cat([truth, truth[:1]]),
            torch.tensor([0, 1, -1]),
        )
    )
    for key, value in plain.items():
        torch.testing.assert_close(padded[key], value)


@pytest.mark.parametrize("name", METHODS)
def test_half_precision_logits_are_computed_in_float32(name: str) -> None:
    observed, truth = OBSERVED, TRUTH
    method = build_method(name, observed, **SETTINGS.get(name, {}))
    logits = torch.zeros(2, 3, dtype=torch.bfloat16)
    after_one_epoch(method, logits, observed, truth)
    losses = method(make_step(logits, observed, truth))
    assert all(value.dtype == torch.float32 for value in losses.values())


def test_wrong_use_is_explained() -> None:
    with pytest.raises(ConfigError, match="no method 'rolle': did you mean 'role'"):
        make_method("rolle")
    with pytest.raises(ConfigError, match="'an-ls' has no setting 'smothing'") as raised:
        make_method("an-ls", smothing=0.1)
    assert (raised.value.what, raised.value.parameters) == ("settings.smothing", ["settings.smoothing"])
    assert "did you mean" in str(raised.value)
    with pytest.raises(ConfigError, match=r"'an' has no setting 'smoothing': leave `smoothing` out"):
        make_method("an", smoothing=0.1)
    with pytest.raises(ConfigError, match=r"smoothing must be in \[0, 1\], not 1.5"):
        make_method("an-ls", smoothing=1.5)
    with pytest.raises(ConfigError, match="needs expected_positives"):
        make_method("epr")
    with pytest.raises(ConfigError, match="expected_positives must be a number above 0, not 'auto'"):
        make_method("role", expected_positives="auto")
    with pytest.raises(ConfigError, match=r"iu leaves unknown labels out .* have none"):
        build_method("iu", torch.tensor([[1, -1]]))
    with pytest.raises(ConfigError, match="not both"):
        make_method("wan", negative_weight=0.1, sampled_negatives=True)
    with pytest.raises(ConfigError, match="needs complete labels"):
        build_method("bce", OBSERVED)(make_step(torch.zeros(2, 3), OBSERVED))
