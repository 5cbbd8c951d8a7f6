"""an and iun, tied to the numbers of the authors of em."""

import pytest
import torch

from tests.conftest import Golden
from tests.losses import reference as single_positive
from tests.losses.authors_numbers import cases_of, differentiated, golden_numbers, inputs, same
from tests.losses.steps import build_method, value_and_gradient


@pytest.mark.parametrize("name", ["an", "iun"])
def test_baselines_of_em(reweighting: Golden, name: str) -> None:
    cases = cases_of(reweighting, f"em/{name}_s")
    for case in cases:
        logits, observed = inputs(case)
        truth = torch.from_numpy(case["inputs"].get("true_labels", case["inputs"]["labels"])).to(torch.int8)
        theirs, plain = (
            differentiated(
                lambda x, e=epsilon, o=observed, t=truth: single_positive.loss(name, x, o, t, e), logits
            )
            for epsilon in (1e-5, 0.0)
        )
        same(theirs, golden_numbers(case), 1e-9)
        same(value_and_gradient(build_method(name, observed), logits, observed, truth), plain, 1e-12)
    assert len(cases) == 3
