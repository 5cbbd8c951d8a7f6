import torch

from tests.losses.steps import build_method, value_and_gradient


def test_the_papers_scale_of_epr() -> None:
    # Cole 2021 §5.3 divides the positives by B: positive_weight = L.
    observed = torch.tensor([[1, -1, -1, -1], [-1, 1, -1, -1]], dtype=torch.int8)
    logits = torch.randn(2, 4, dtype=torch.float64, generator=torch.manual_seed(0))
    method = build_method("epr", observed, expected_positives=2.0, positive_weight=4.0)
    loss, _ = value_and_gradient(method, logits, observed, None)
    f = torch.sigmoid(logits)
    wanted = -(f[0, 0].log() + f[1, 1].log()) / 2 + ((f.sum() / 2 - 2.0) / 4) ** 2
    torch.testing.assert_close(loss, wanted)
