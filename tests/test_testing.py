"""``check_loss`` on all our losses and on some that are wrong."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sparselabel.cli import app
from sparselabel.errors import ConfigError, DataWarning
from sparselabel.losses import EntryLosses, LabelLoss, Step, TargetLoss, cross_entropy, register, registry
from sparselabel.losses.registry import METHODS, combinations
from sparselabel.losses.target_rules import AssumedNegative
from sparselabel.testing import check_loss


@pytest.mark.parametrize("name", [*METHODS, "en+asl+scl", "patchml+cluster"])
def test_our_losses_pass(name: str) -> None:
    check_loss(name)


@pytest.fixture
def names() -> Iterator[None]:
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


class Halved(LabelLoss):
    """Assume negative, at a weight, for tests."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, step: Step) -> EntryLosses:
        """The entry losses."""
        logits = step.outputs[0].logits
        losses = self.weight * cross_entropy(logits, (step.observed == 1).to(logits.dtype), step.observed)
        return EntryLosses(losses, torch.ones_like(step.observed, dtype=torch.bool))


def halved(weight: float = 0.5) -> LabelLoss:
    """Half of assume negative (a test).

    Parameters
    ----------
    weight
        What it is multiplied by.
    """
    return Halved(weight)


@pytest.mark.usefixtures("names")
def test_a_loss_of_ones_own_passes_and_combines() -> None:
    register("halved", keeps_entry_loss="it is a test")(halved)
    check_loss("halved")
    check_loss("halved+scl", weight=0.3)
    assert "halved+scl" in combinations()


class OrderLoss(Halved):
    """Wrong: the first image of a batch counts twice."""

    def forward(self, step: Step) -> EntryLosses:
        """The entry losses."""
        losses, counted = super().forward(step)
        return EntryLosses(torch.cat([2 * losses[:1], losses[1:]]), counted)


class LogLoss(Halved):
    """Wrong: log of a score, which is 0 at large logits."""

    def forward(self, step: Step) -> EntryLosses:
        """The entry losses."""
        losses: Tensor = -torch.log(1 - torch.sigmoid(step.outputs[0].logits))
        return EntryLosses(losses, torch.ones_like(step.observed, dtype=torch.bool))


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("kind", "wrong"), [(OrderLoss, "depends on the order of images"), (LogLoss, "at logits of 100")]
)
def test_what_is_wrong_is_said(kind: type[Halved], wrong: str) -> None:
    register("wrong")(lambda: kind(1.0))
    with pytest.raises(AssertionError, match=wrong):
        check_loss("wrong")


@pytest.mark.usefixtures("names")
def test_a_plain_target_loss_takes_other_entry_losses() -> None:
    register("plain")(lambda: TargetLoss(AssumedNegative(), cross_entropy))
    check_loss("plain+asl+cl")


@pytest.mark.usefixtures("names")
def test_names_and_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="small letters, digits and dashes, not 'My Loss'"):
        register("My Loss")
    with pytest.raises(ConfigError, match="setting 'weight' of other has no default"):
        register("other")(Halved)


@pytest.mark.usefixtures("names")
def test_another_packages_losses_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "their_losses.py").write_text(
        "import sparselabel\nfrom tests.test_testing import halved\n"
        "sparselabel.register('theirs', keeps_entry_loss='it is a test')(halved)\n".replace("\\\n", "\n")
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = EntryPoints(
        [EntryPoint("theirs", "their_losses", registry.GROUP), EntryPoint("b", "nowhere", registry.GROUP)]
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    with pytest.warns(DataWarning, match="the losses of nowhere cannot be used"):
        registry.load_plugins()
    check_loss("theirs")
    app(["methods", "theirs"], result_action="return_value")
    shown = capsys.readouterr().out
    assert "Half of assume negative" in shown
    assert "--settings.weight" in shown


class Returning(LabelLoss):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, step: Step) -> EntryLosses:
        losses = step.outputs[0].logits.square()
        ones = torch.ones_like(losses, dtype=torch.bool)
        kinds = {
            "tensor": losses,
            "nothing": None,
            "column": EntryLosses(losses[:, :1], ones[:, :1]),
            "floats": EntryLosses(losses, ones.float()),
        }
        return kinds[self.kind]  # type: ignore[return-value]


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize("kind", ["tensor", "nothing", "column", "floats"])
def test_what_is_no_entry_losses_is_refused(kind: str) -> None:
    register("returning")(lambda: Returning(kind))
    with pytest.raises(ConfigError) as refused:
        check_loss("returning")
    assert (refused.value.what, refused.value.value) == ("loss", "Returning")


@pytest.mark.usefixtures("names")
def test_a_loss_without_a_gradient_or_of_another_kind() -> None:
    class Detached(Halved):
        def forward(self, step: Step) -> EntryLosses:
            losses, counted = super().forward(step)
            return EntryLosses(losses.detach(), counted)

    register("detached")(lambda: Detached(1.0))
    with pytest.raises(AssertionError, match="gradient"):
        check_loss("detached")
    register("number")(lambda: 3)  # type: ignore[type-var]
    with pytest.raises(ConfigError) as refused:
        check_loss("number")
    assert (refused.value.value, refused.value.allowed) == ("int", "LabelLoss")
    with pytest.raises(AssertionError, match="name"):
        check_loss(halved)  # type: ignore[arg-type]


@pytest.mark.usefixtures("names")
def test_a_name_is_given_and_belongs_to_one_module() -> None:
    ours = METHODS["en"]
    with pytest.raises(ConfigError) as refused:
        register("en")(halved)
    assert (refused.value.what, refused.value.value, METHODS["en"]) == ("name", "en", ours)
    register("halved")(halved)
    register("halved")(halved)  # a cell that is run again
    with pytest.raises(ConfigError) as refused:
        register(halved)  # type: ignore[arg-type]
    assert refused.value.what == "name"
    with pytest.raises(ConfigError) as refused:
        register("typeless")(lambda weight=0.5: Halved(weight))
    assert refused.value.what == "weight"
