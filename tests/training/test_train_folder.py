"""Settings chosen for a folder of images."""

from dataclasses import replace

import pytest

from sparselabel.config import HeadPhase, Machine, TrainConfig
from sparselabel.errors import ModelError, spell
from sparselabel.training.train_folder import choose_backbone, choose_schedule


def test_the_schedule_is_chosen_by_machine_and_images(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    cpu, plain = Machine(accelerator="cpu"), TrainConfig()
    config = choose_schedule(plain, set(), cpu, (2500, 20), said.append)
    assert config == replace(plain, frozen=True)  # of which auto makes soft
    assert choose_schedule(plain, set(), cpu, (200_000, 20), said.append).head.batch_size == 64
    named = choose_schedule(replace(plain, method="gr"), set(), cpu, (5000, 20), said.append)
    assert (named.frozen, named.head.batch_size) == (True, 64)
    assert said[-1].startswith("no GPU: a linear classifier on features of resnet50")
    assert choose_schedule(plain, {"finetune.epochs"}, cpu, (5000, 20), said.append) == plain
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    config = choose_schedule(plain, set(), Machine(), (5000, 20), said.append)
    assert (config.frozen, config.head.epochs, config.finetune.epochs) == (False, 5, 25)
    assert said[-1] == "there is a GPU: resnet50, the head alone, then everything"
    assert choose_schedule(plain, set(), Machine(), (300, 20), said.append).frozen
    assert said[-1].startswith("only 300 images for 20 classes: a linear classifier")
    assert [
        choose_schedule(plain, set(), Machine(), (images, 80), said.append).frozen for images in (7999, 8000)
    ] == [True, False]


def test_training_everything_is_called_better_only_where_images_are_enough_for_that() -> None:
    said: list[str] = []
    for images in (1492, 8000):
        choose_schedule(TrainConfig(), set(), Machine(accelerator="cpu"), (images, 80), said.append)
    few, many = said
    assert few.endswith(" trains everything, in hours)")
    assert many.endswith(" trains everything: better, but hours)")


def test_a_flag_changes_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    cpu, plain = Machine(accelerator="cpu"), TrainConfig()
    chosen = choose_schedule(plain, set(), cpu, (5000, 20), said.append)
    assert (
        choose_schedule(plain, {"head.epochs"}, cpu, (5000, 20), said.append) == chosen
    )  # the default, restated
    told = TrainConfig(frozen=True, head=HeadPhase(epochs=3, batch_size=16))
    given = {"frozen", "head.epochs", "head.batch_size"}
    assert choose_schedule(told, given, cpu, (5000, 20), said.append) == told
    assert spell(said[-1]).startswith("`frozen`: a linear classifier on features of resnet50")
    assert choose_schedule(plain, {"finetune.lr"}, cpu, (5000, 20), said.append) == plain
    assert spell(said[-1]).startswith("the whole network is trained, as `finetune.lr` is given; features")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    told = TrainConfig(head=HeadPhase(epochs=3))
    config = choose_schedule(told, {"head.epochs"}, Machine(), (5000, 20), said.append)
    assert (config.frozen, config.head.epochs, config.finetune.epochs) == (False, 3, 25)
    begun = TrainConfig(frozen=True, head=HeadPhase(epochs=7))
    assert choose_schedule(told, {"head.epochs"}, cpu, (5000, 20), said.append, begun) == TrainConfig(
        frozen=True, head=HeadPhase(epochs=3)
    )


def test_the_backbone_is_one_whose_weights_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    there = {"mobilenetv2_100", "resnet18", "resnet50"}

    def make(name: str, *_: object, **__: object) -> None:
        if name not in there:
            raise ModelError(f"no weights of {name}")

    monkeypatch.setattr("sparselabel.training.network.make_backbone", make)
    monkeypatch.setattr("sparselabel.training.network.refuse_without_cells", lambda *_: None)
    cpu = Machine(accelerator="cpu")
    assert choose_backbone(TrainConfig(), set(), cpu, said.append).config.backbone == "mobilenetv2_100"
    own = TrainConfig(weights="weights.safetensors")  # a flag changes what it names
    assert choose_backbone(own, {"weights"}, cpu, said.append).config.backbone == "mobilenetv2_100"
    there.clear()
    there.add("resnet18")
    assert choose_backbone(TrainConfig(), set(), cpu, said.append).config.backbone == "resnet18"
    assert said == ["the weights of mobilenetv2_100 cannot be had, so it is resnet18, whose weights can"]
    there.add("mobilenetv2_100")  # a run that goes on has the network that it was begun with
    begun = TrainConfig(backbone="resnet18", frozen=True, head=HeadPhase(batch_size=8))
    going_on = choose_backbone(TrainConfig(), set(), cpu, said.append, begun).config
    assert choose_schedule(going_on, set(), cpu, (5000, 20), said.append, begun) == begun
    told = TrainConfig(backbone="resnet18")
    assert choose_backbone(told, {"backbone"}, cpu, said.append).config == told
    there.clear()
    with pytest.raises(ModelError, match="no weights of mobilenetv2_100"):
        choose_backbone(TrainConfig(), set(), cpu, said.append)
