"""Query2Label against the numbers of its authors' program."""

from typing import Any

import pytest
import torch

from sparselabel.errors import ModelError
from sparselabel.models import query2label
from sparselabel.models.query2label import (
    QueryHead,
    from_released,
    sine_position_encoding,
)
from tests.conftest import Golden


@pytest.fixture(scope="module")
def q2l() -> Golden:
    return Golden("q2l")


def head_of(case: dict[str, Any]) -> QueryHead:
    hyper = case["hyper"]
    head = QueryHead(
        hyper["in_channels"],
        hyper["num_class"],
        hyper["hidden_dim"] if hyper["keep_input_proj"] else None,
        heads=hyper["nheads"],
        inner=hyper["dim_feedforward"],
        encoder_layers=hyper["enc_layers"],
        decoder_layers=hyper["dec_layers"],
        self_attention="later" if hyper["keep_other_self_attn_dec"] else "none",
    ).eval()
    released = {
        role.removeprefix("sd:"): torch.from_numpy(value)
        for role, value in case["inputs"].items()
        if role.startswith("sd:")
    }
    head.load_state_dict(from_released(released))
    return head


@pytest.mark.parametrize("number", [0, 1, 2])
def test_equals_the_authors_program(q2l: Golden, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = q2l.cases[f"q2l/head{number}"]
    head, out = head_of(case), {key: torch.from_numpy(value) for key, value in case["outputs"].items()}
    features = torch.from_numpy(case["inputs"]["features"]).requires_grad_()
    place = torch.from_numpy(case["inputs"]["pos"])
    torch.testing.assert_close(sine_position_encoding(head.input_proj(features)), place, rtol=0, atol=1e-6)
    logits = head(features).logits
    torch.testing.assert_close(logits, out["logits32"], rtol=1e-5, atol=1e-5)
    (gradient,) = torch.autograd.grad(logits.sum(), features)
    torch.testing.assert_close(gradient, out["grad_features32"], rtol=1e-4, atol=1e-5)
    # The authors' code of places is float32 whatever the model is.
    monkeypatch.setattr(query2label, "sine_position_encoding", place.to)
    double = head.double()(features.double()).logits
    torch.testing.assert_close(double, out["logits64"], rtol=1e-9, atol=1e-12)


def test_attention_sums_to_one_over_the_cells_and_does_not_change_the_logits(q2l: Golden) -> None:
    case = q2l.cases["q2l/head1"]
    head, features = head_of(case), torch.from_numpy(case["inputs"]["features"])
    with torch.no_grad():
        shown, plain = head(features, maps=True), head(features)
    assert shown.maps is None
    assert plain.attention is None
    assert shown.attention is not None
    assert shown.attention.shape == (3, 4, 3, 3)
    torch.testing.assert_close(shown.attention.sum(dim=(2, 3)), torch.ones(3, 4))
    torch.testing.assert_close(shown.logits, plain.logits, rtol=1e-5, atol=1e-6)


def test_self_attention_of_the_first_layer_adds_the_same_to_all_queries() -> None:
    torch.manual_seed(0)
    head = QueryHead(8, 3, self_attention="first").eval()
    assert [layer.has_self_attention for layer in head.decoder] == [True, False]
    first: Any = head.decoder[0]
    features = torch.randn(2, 8, 2, 2)
    with torch.no_grad():
        first.self_attn.in_proj_bias.uniform_(-1, 1)
        expected = head(features).logits
        # Nothing was found yet, so the values that queries see are the projection's bias, whoever looks.
        said = first.norm1(first.self_attn.out_proj(first.self_attn.in_proj_bias[16:]))
        first.has_self_attention = False
        cross = first.forward
        first.forward = lambda found, *others: cross(found + said, *others)
        torch.testing.assert_close(head(features).logits, expected)


def test_any_size_of_view() -> None:
    head = QueryHead(8, 3).eval()
    for side in (2, 5):
        assert head(torch.randn(2, 8, side, side + 1)).logits.shape == (2, 3)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_places_in_half_precision_are_those_of_float32_rounded(half: torch.dtype) -> None:
    cells = torch.zeros(2, 256, 14, 13)
    code = sine_position_encoding(cells)
    assert code.dtype == torch.float32
    assert torch.equal(sine_position_encoding(cells.to(half)), code.to(half))
    torch.testing.assert_close(sine_position_encoding(cells.double()), code.double(), rtol=0, atol=1e-5)
    assert sine_position_encoding(cells.double()).dtype == torch.float64


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ModelError, match=r"its 4 heads divide, not 10: give `query=\{'width': 8\}`$"):
        QueryHead(10, 3)
    with pytest.raises(ModelError, match=r"its 6 heads divide, not 8: give `query=\{'width': 12\}`$"):
        QueryHead(10, 3, 8, heads=6)
    QueryHead(10, 3, 12, heads=6)
