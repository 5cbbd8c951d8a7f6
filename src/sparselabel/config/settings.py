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
        One random pseudo-negative per image and step instead of a weight (wan*).
    expected_positives
        K, the mean number of classes in an image (role, en*, ep*, pu*): a number; a file that `sparselabel
        expect` wrote; or auto: estimated from stored features before training. Default: counted in fully
        labeled validation data.
    momentum
        μ of running averages (pseudo*, en*, ep, ep+*, *+cl, *+scl).
    weight
        Weight of the method's further term (epr*, role, *+cl, *+scl): λ of the count, or γ of consistency.
    distance
        Distance of consistency (*+cl, *+scl).
    map_scale
        Cells of a heat map for each cell of the model, along an axis (*+scl).
    top_maps
        Keep heat maps of so many classes of each image (*+scl), the best; default: of all.
    positive_weight
        Weight of observed positives (epr*, role).
    threshold
        Score above which an unknown label counts as positive (pseudo*, splc*).
    gamma_pos
        Exponent γ₊ of focal losses for positives (focal*, asl*, hill*, splc*, *+focal*, *+asl*, *+hill*,
        csl-*, patchml*, fixmatch*).
    gamma_neg
        Exponent γ₋ of focal losses for negatives (focal*, asl*, splc, splc+cl, splc+scl, *+focal*, *+asl*,
        csl-*, patchml*, fixmatch*).
    gamma_unknown
        Exponent γ_u of unknown labels and cells that count as negative (csl-*, patchml*).
    margin
        Taken off the scores of negatives in asl, else off the logits of positives (asl*, hill*, splc,
        splc+cl, splc+scl, *+asl*, *+hill*, pu*); in pu times log 1/u, for the chance u that an unknown label
        is present.
    scale
        So many times the mean over the entries instead of their sum (asl); Query2Label takes 1000.
    share
        Δ, the share of a batch's entries that count as large losses (ll-*), for each epoch in ll-r and ll-ct.
    entropy_weight
        α of the entropy of unknown labels (em*, pu*).
    unknown_weight
        Weight of unknown labels (pu*).
    soft_weight
        β of soft labels (em+apl*).
    warm_up
        Epochs before the first soft labels (em+apl*).
    belief_slope
        w at the end (gr*), of the belief σ(wp + b) in unknown labels; it starts at 0.
    belief_offset
        b at the end (gr*), of the belief σ(wp + b) in unknown labels; it starts at -2.
    unknown
        What an unknown label is (csl-*, patchml*): negative, left out (ignore), or left out where it is
        likely positive and else negative (selective).
    likeliest
        So many unknown labels per image of a batch count as likely positive (csl-*, patchml*).
    prior
        How often each class is there (csl-*, patchml*), to leave out unknown labels of frequent ones: a
        JSON or CSV file with a number for each class by name; or auto: the mean scores of a short run in
        ignore mode, which comes first. Default: not looked at.
    prior_threshold
        The prior above which a class is frequent (csl-*, patchml*).
    unknown_cells
        As unknown, for cells (patchml*); selective: as csl-p has it.
    patch_weight
        w_patch of the loss of cells (patchml*, csl-p*).
    positive_cell_weight
        w₊ of cells that a point or box makes positive (patchml*, csl-p*).
    negative_cell_weight
        w₋ of cells of absent classes (patchml*, csl-p*).
    unknown_cell_weight
        w_u of unknown cells that count as negative (patchml*, csl-p*).
    box_rule
        Which cells a box makes positive (patchml*, csl-p*, *+cluster*): those it covers by half, or any.
    prototypes
        What prototypes are means of (*+cluster*): annotated cells, or whole images. Default: cells, where
        the method has points or boxes.
    near
        d⁺, the cosine distance to a prototype up to which an image is positive (*+cluster*).
    far
        d⁻, the cosine distance to a prototype beyond which an image is negative (*+cluster*).
    pseudo_weight
        Weight of pseudo labels (*+cluster*).
    sure_positive
        τ₊, the weak view's score above which a label is the strong view's target (fixmatch*, *+fixmatch*).
    sure_negative
        τ₋, the score below which it is (fixmatch*, *+fixmatch*).
    strong_weight
        Weight of the strong view (fixmatch*, *+fixmatch*).
    preset
        The settings of the method's paper (ll-*, em*, gr*, splc*, asl*): for a data set, of splc for 75 % of
        COCO's labels, of asl those of Query2Label. What else is given beats them; with --boost those of ll-*
        are boostlu.
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
    gamma_pos: float | None = None
    gamma_neg: float | None = None
    margin: float | None = None
    scale: float | None = None
    share: float | None = None
    entropy_weight: float | None = None
    unknown_weight: float | None = None
    soft_weight: float | None = None
    warm_up: int | None = None
    belief_slope: float | None = None
    belief_offset: float | None = None
    gamma_unknown: float | None = None
    unknown: Literal["negative", "ignore", "selective"] | None = None
    likeliest: int | None = None
    prior: str | None = None
    prior_threshold: float | None = None
    unknown_cells: Literal["negative", "ignore", "selective"] | None = None
    patch_weight: float | None = None
    positive_cell_weight: float | None = None
    negative_cell_weight: float | None = None
    unknown_cell_weight: float | None = None
    box_rule: Literal["half", "any"] | None = None
    prototypes: Literal["cells", "images"] | None = None
    near: float | None = None
    far: float | None = None
    pseudo_weight: float | None = None
    sure_positive: float | None = None
    sure_negative: float | None = None
    strong_weight: float | None = None
    preset: Literal["voc", "coco", "nus", "cub", "coco-75", "boostlu", "q2l"] | None = None

    def given(self) -> dict[str, Any]:
        """The settings that were given."""
        return {key: value for key, value in asdict(self).items() if value is not None}
