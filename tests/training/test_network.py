import torch

from sparselabel.models.backbone import make_backbone
from sparselabel.models.classifier import Classifier, LinearHead
from sparselabel.training.network import freeze_unused_parameters


def trained(backbone: str, *, frozen: bool = False) -> tuple[Classifier, set[str]]:
    network = make_backbone(backbone, "none", size=32)
    classifier = Classifier(network, LinearHead(network.width, 3))
    classifier.freeze(frozen)
    freeze_unused_parameters(classifier, 32)
    return classifier, {name for name, value in classifier.named_parameters() if value.requires_grad}


def test_what_no_logit_depends_on_is_not_trained() -> None:
    classifier, names = trained("test_convnext")
    everything = {name for name, _ in classifier.named_parameters()}
    assert everything - names == {"backbone.network.head.norm.weight", "backbone.network.head.norm.bias"}
    classifier.train()(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).logits.sum().backward()
    assert {name for name, value in classifier.named_parameters() if value.grad is not None} == names


def test_a_frozen_backbone_stays_frozen() -> None:
    assert trained("test_convnext", frozen=True)[1] == {"head.linear.weight", "head.linear.bias"}


def test_batch_norm_does_not_count_the_trial() -> None:
    classifier, names = trained("test_efficientnet")
    assert names == {name for name, _ in classifier.named_parameters()}
    counted = [value for name, value in classifier.named_buffers() if name.endswith("num_batches_tracked")]
    assert counted
    assert not any(counted)
