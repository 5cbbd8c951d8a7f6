"""Expected positives, worked by hand (Verelst 2023 eq. 3–5)."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from sparselabel.errors import ConfigError, DataError
from sparselabel.losses.base import ComposedLoss
from sparselabel.losses.expected_negatives import ExpectedLabels, positives_of_classes
from sparselabel.losses.step import Progress
from tests.losses.steps import build_method, make_step, targets_of


def test_equation_3_where_every_row_has_one_positive() -> None:
    counts, none = torch.tensor([5, 3, 2]), torch.zeros(3, dtype=torch.int64)
    assert positives_of_classes(1.5, counts, none, 10).tolist() == [8, 5, 3]  # 1.5·(5, 3, 2), halves up
    assert positives_of_classes(1.0, counts, none, 10).tolist() == [5, 3, 2]


def test_rows_without_a_positive_or_with_several() -> None:
    none = torch.zeros(3, dtype=torch.int64)
    # Ten rows, of which only five have a positive: K·N positives in all, shared as the annotations are.
    assert positives_of_classes(2.0, torch.tensor([3, 2, 0]), none, 10).tolist() == [10, 8, 0]
    # Two a row: eq. 3 would say K·count, twice too many.
    assert positives_of_classes(3.0, torch.tensor([10, 6, 4]), none, 10).tolist() == [10, 9, 6]


def test_at_least_the_annotated_at_most_all_but_the_negatives() -> None:
    counts, negatives = torch.tensor([5, 5, 0]), torch.tensor([0, 4, 0])
    assert positives_of_classes(0.5, counts, negatives, 10).tolist() == [5, 5, 0]
    assert positives_of_classes(9.0, counts, negatives, 10).tolist() == [10, 6, 0]
    assert positives_of_classes([7.4, 20.0, 3.0], counts, negatives, 10).tolist() == [7, 6, 0]
    with pytest.raises(ConfigError, match="one for each of the 3 classes, not 2 numbers"):
        positives_of_classes([1.0, 2.0], counts, negatives, 10)


# Four images, two classes; K = 1.5: class 0 has 3·1.5 → 5 places for 4 rows but one observed negative: 3;
# class 1 has 1·1.5 → 2, so one place beside the annotated row.
OBSERVED = torch.tensor([[1, -1], [1, -1], [1, -1], [0, 1]], dtype=torch.int8)

FIRST = Progress(0, 2, 0, 1e-3)


def seen(method: ComposedLoss, scores: list[list[float]], epoch: int) -> None:
    """One epoch in which the model says these scores."""
    logits = torch.tensor(scores, dtype=torch.float64).logit()
    step = make_step(logits, OBSERVED, progress=Progress(epoch, 9, 0, 1e-3))
    method.begin_epoch(step.progress)
    method(step)
    method.update(step)


def losses_of(method: ComposedLoss, logits: Tensor, epoch: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    logits = logits.clone().requires_grad_()
    step = make_step(logits, OBSERVED, progress=Progress(epoch, 9, 0, 1e-3))
    losses = method(step)
    (gradient,) = torch.autograd.grad(losses["labels"], logits)
    return losses["labels"].detach(), gradient, targets_of(method, step).weight


def test_en_by_hand() -> None:
    method = build_method("en", OBSERVED, expected_positives=1.5, momentum=0.8)
    first = [[0.9, 0.2], [0.8, 0.5], [0.7, 0.3], [0.6, 0.9]]
    seen(method, first, 0)
    running = method.estimates()
    assert running is not None
    # Annotated: .8·1 + .2·f; unknown: .2·f; observed negative: 0.
    wanted = torch.tensor([[0.98, 0.04], [0.96, 0.1], [0.94, 0.06], [0.0, 0.98]])
    torch.testing.assert_close(running, wanted)
    logits = torch.tensor([[0.9, 0.2], [0.8, 0.5], [0.7, 0.3], [0.6, 0.9]], dtype=torch.float64).logit()
    _, _, weight = losses_of(method, logits, epoch=0)
    assert weight.tolist() == [[1, 1]] * 4  # in the first epoch all unknown ones are negative
    method.begin_epoch(Progress(1, 9, 0, 1e-3))
    loss, gradient, weight = losses_of(method, logits)
    assert weight.tolist() == [[1, 1], [1, 0], [1, 1], [1, 1]]  # row 1 is the one expected positive
    terms = [0.9, 0.8, 0.7, 0.9], [0.8, 0.7, 0.4]  # annotated: −log f; negatives: −log(1−f)
    by_hand = -sum(math.log(value) for part in terms for value in part) / 8
    assert float(loss) == pytest.approx(by_hand, abs=1e-12)
    by_hand_gradient = [[-0.1, 0.2], [-0.2, 0.0], [-0.3, 0.3], [0.6, -0.1]]
    torch.testing.assert_close(gradient, torch.tensor(by_hand_gradient, dtype=torch.float64) / 8)


def test_ep_by_hand() -> None:
    method = build_method("ep", OBSERVED, expected_positives=1.5, momentum=0.8)
    seen(method, [[0.9, 0.2], [0.8, 0.5], [0.7, 0.3], [0.6, 0.9]], 0)
    method.begin_epoch(Progress(1, 9, 0, 1e-3))
    logits = torch.tensor([[0.9, 0.2], [0.8, 0.5], [0.7, 0.3], [0.6, 0.9]], dtype=torch.float64).logit()
    loss, gradient, weight = losses_of(method, logits)
    assert weight.tolist() == [[1, 1]] * 4
    by_hand = -sum(math.log(v) for v in (0.9, 0.8, 0.7, 0.9, 0.5, 0.8, 0.7, 0.4)) / 8
    assert float(loss) == pytest.approx(by_hand, abs=1e-12)
    assert gradient[1, 1] == pytest.approx(-0.5 / 8)


def test_ties_go_to_the_lower_row_and_observed_negatives_are_never_chosen() -> None:
    observed = torch.tensor([[-1], [0], [-1], [-1], [1]], dtype=torch.int8)
    method = build_method("en", observed, expected_positives=0.4)  # 2 of 5, one beside the annotated
    logits = torch.zeros(5, 1)
    first = make_step(logits, observed, progress=FIRST)
    method(first)
    method.update(first)
    method.begin_epoch(Progress(1, 2, 0, 1e-3))
    targets = targets_of(method, make_step(logits, observed))
    assert targets.weight[:, 0].tolist() == [0, 1, 1, 1, 1]


def test_an_epoch_that_nobody_began_is_refused() -> None:
    method = build_method("en", OBSERVED, expected_positives=1.5)
    logits = torch.zeros(4, 2)
    for begun, stepped in ((None, 1), (0, 1), (1, 2)):
        if begun is not None:
            method.begin_epoch(Progress(begun, 9, 0, 1e-3))
        method(make_step(logits, OBSERVED, progress=Progress(stepped - 1, 9, 0, 1e-3)))
        late = make_step(logits, OBSERVED, progress=Progress(stepped, 9, 0, 1e-3))
        said = rf"epoch {stepped + 1} came before .*criterion\.set_epoch\({stepped}\)"
        with pytest.raises(ConfigError, match=said):
            method(late)


def test_the_choice_is_in_the_methods_state() -> None:
    method = build_method("en", OBSERVED, expected_positives=1.5)
    seen(method, [[0.9, 0.2], [0.8, 0.5], [0.7, 0.3], [0.6, 0.9]], 0)
    method.begin_epoch(Progress(1, 9, 0, 1e-3))
    part = next(part for part in method.parts() if isinstance(part, ExpectedLabels))
    assert part.threshold_row.tolist() == [-1, 1]
    assert {name.rpartition(".")[2] for name in method.state_dict()} == {"threshold_score", "threshold_row"}


def test_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected_positives must be a number above 0, not 'auto'"):
        build_method("en", OBSERVED, expected_positives="auto")
    with pytest.raises(ConfigError, match="needs expected_positives"):
        build_method("en", OBSERVED)


def test_a_count_for_every_class_may_be_any_array() -> None:
    for counts in ([4.0, 2.0], np.array([4, 2]), torch.tensor([4.0, 2.0])):
        method = build_method("en", OBSERVED, expected_positives=counts)
        part = next(part for part in method.parts() if isinstance(part, ExpectedLabels))
        assert part.num_to_select.tolist() == [0, 1]  # one row of class 0 is an observed negative
    for wrong in ([1.0, float("nan")], [1.0, -1.0], [[1.0, 2.0]], ["a", "b"]):
        with pytest.raises(ConfigError, match="expected_positives must be"):
            build_method("en", OBSERVED, expected_positives=wrong)


def test_numbers_beyond_all_images() -> None:
    counts, none = torch.tensor([5, 3]), torch.zeros(2, dtype=torch.int64)
    assert positives_of_classes(1e30, counts, none, 10).tolist() == [10, 10]
    for wrong in (float("inf"), float("nan"), 0.0, -2.0, True):
        with pytest.raises(ConfigError, match="expected_positives must be a number above 0"):
            build_method("en", OBSERVED, expected_positives=wrong)
    for words in ("auto", "counted"):
        with pytest.raises(ConfigError, match="sparselabel expect"):
            build_method("en", OBSERVED, expected_positives=words)


@pytest.mark.parametrize("name", ["en", "ep", "epr", "role"])
def test_more_classes_in_a_image_than_there_are(name: str) -> None:
    build_method(name, OBSERVED, expected_positives=2.0)
    with pytest.raises(ConfigError, match=r"so at most the 2 there are, not 2\.5: count them in a few dozen"):
        build_method(name, OBSERVED, expected_positives=2.5)


def test_more_images_of_a_class_than_there_are() -> None:
    with pytest.raises(ConfigError, match=r"its number of images, so at most the 4 there are, not 5\.5"):
        build_method("en", OBSERVED, expected_positives=[1.0, 5.5])


def test_rows_that_are_not_in_the_labels_are_refused() -> None:
    method = build_method("en", OBSERVED, expected_positives=1.5)
    with pytest.raises(DataError, match="row 9 is none of the 4 rows that the method was prepared for"):
        method(make_step(torch.zeros(2, 2), OBSERVED[:2], rows=torch.tensor([1, 9]), progress=FIRST))
