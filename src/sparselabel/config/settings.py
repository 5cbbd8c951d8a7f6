"""What can be set of a method, in the same words for all of them."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Settings:
    """Settings of the method; what is not given takes the method's own default (`sparselabel methods NAME`).

    Parameters
    ----------
    smoothing
        ε of label smoothing (bce-ls*, an-ls*).
    negative_weight
        Weight γ of assumed negatives (wan*).
    sampled_negatives
        One random pseudo-negative a picture and step instead of a weight (wan*).
    expected_positives
        K, the mean number of classes in a picture (role, en*, ep*): a number; a file that `sparselabel
        expect` wrote; or auto: estimated from stored features before training. Default: counted in fully
        labelled validation data.
    momentum
        μ of running averages (pseudo*, en*, ep, ep+*, *+cl, *+scl).
    weight
        Weight of the method's further term (epr*, role, *+cl, *+scl): λ of the count, or γ of consistency.
    distance
        Distance of consistency (*+cl, *+scl).
    map_scale
        Cells of a heat map for each cell of the model, along an axis (*+scl).
    top_maps
        Keep heat maps of so many classes of each picture (*+scl), the best; default: of all.
    positive_weight
        Weight of observed positives (epr*, role).
    threshold
        Score above which an unknown label counts as positive (pseudo*, splc*).
    positive_focus
        Exponent γ₊ of focal losses for positives (focal*, asl*, hill*, splc*, *+focal*, *+asl*, *+hill*).
    negative_focus
        Exponent γ₋ of focal losses for negatives (focal*, asl*, splc*, *+focal*, *+asl*).
    margin
        Taken off the scores of negatives in asl, else off the logits of positives (asl*, hill*, splc*,
        *+asl*, *+hill*).
    share
        Δ, the share of a batch's entries that count as large losses (ll-*), for each epoch in ll-r and ll-ct.
    entropy_weight
        α of the entropy of unknown labels (em*).
    soft_weight
        β of soft labels (em+apl*).
    warm_up
        Epochs before the first soft labels (em+apl*).
    belief_slope
        w at the end (gr*), of the belief σ(wp + b) in unknown labels; it starts at 0.
    belief_offset
        b at the end (gr*), of the belief σ(wp + b) in unknown labels; it starts at -2.
    preset
        The settings of the method's paper for a data set (ll-*, em*, gr*); what else is given beats them.
    """

    smoothing: float | None = None
    negative_weight: float | None = None
    sampled_negatives: bool | None = None
    expected_positives: float | str | None = None
    momentum: float | None = None
    weight: float | None = None
    distance: Literal["l1", "l2", "jsd"] | None = None
    map_scale: int | None = None
    top_maps: int | None = None
    positive_weight: float | None = None
    threshold: float | None = None
    positive_focus: float | None = None
    negative_focus: float | None = None
    margin: float | None = None
    share: float | None = None
    entropy_weight: float | None = None
    soft_weight: float | None = None
    warm_up: int | None = None
    belief_slope: float | None = None
    belief_offset: float | None = None
    preset: Literal["voc", "coco", "nus", "cub"] | None = None

    def given(self) -> dict[str, Any]:
        """The settings that were given."""
        return {key: value for key, value in asdict(self).items() if value is not None}
