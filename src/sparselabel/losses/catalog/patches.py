"""Methods of PatchML: labels bought at random, points and boxes, and images without any label.

``cluster`` and ``with_fixmatch`` add to a method what puts images without labels to use.
"""

from collections.abc import Sequence

from sparselabel.losses.base import SparseLoss, batch_sum, counted_mean
from sparselabel.losses.catalog.adding import beside_others, with_term
from sparselabel.losses.fixmatch import ConfidentViews
from sparselabel.losses.patch import BoxRule, PatchLoss
from sparselabel.losses.patch_cluster import FAR, AnnotatedOnly, PseudoLabels, PseudoLoss, Source
from sparselabel.losses.selective import SelectiveFocal, SelectiveUnknown, Unknown
from sparselabel.losses.setting_checks import not_negative


def csl_i(
    unknown: Unknown = "selective",
    likeliest: int = 5,
    prior: Sequence[float] | None = None,
    prior_threshold: float = 0.5,
    gamma_pos: float = 0.0,
    gamma_neg: float = 1.0,
    gamma_unknown: float = 4.0,
) -> SparseLoss:
    """Class-aware selective loss: unknown is negative unless likely positive (Ben-Baruch 2022; PatchML eq.
    1).

    ``unknown`` selective: left out are the ``likeliest``·B unknown entries with the highest scores of a batch
    of B images, and all of a class whose ``prior`` is above ``prior_threshold``; negative: none; ignore:
    all. ``prior``: a file with a number for each class by name, or auto: a short run in ignore mode comes
    first, and the mean scores of its model are the prior; default: none is used. Focus (exponents) 0, 1 and 4
    for positive, negative and unknown entries, where answers are drawn at random; the authors take 0, 3, 4
    where a number is fixed for each class. The sum over the entries, as in their program; beside other terms
    the mean over those that are not left out (ours). Observed negatives are on its negative side.
    """
    target_rule = SelectiveUnknown(unknown, likeliest, prior, prior_threshold)
    entry_loss = SelectiveFocal(gamma_pos, gamma_neg, gamma_unknown)
    return SparseLoss(target_rule, entry_loss, reduction=batch_sum)


def patchml(
    unknown: Unknown = "ignore",
    unknown_cells: Unknown = "ignore",
    patch_weight: float = 1.0,
    positive_cell_weight: float = 1.0,
    negative_cell_weight: float = 1.0,
    unknown_cell_weight: float = 1.0,
    box_rule: BoxRule = "half",
    likeliest: int = 5,
    prior: Sequence[float] | None = None,
    prior_threshold: float = 0.5,
    gamma_pos: float = 0.0,
    gamma_neg: float = 1.0,
    gamma_unknown: float = 4.0,
) -> SparseLoss:
    """Points and boxes label cells, beside the image-level loss of csl-i in ignore mode (PatchML eq. 1–3).

    A point makes its cell positive, a box those it covers by half (``box_rule`` half) or meets (any); all
    cells of an absent class are negative; the others are left out, or (``unknown_cells``) negative, or, as
    csl-p has it, negative but for a marked class's likeliest. ``patch_weight`` is w_patch, w_image is 1;
    ``..._cell_weight`` are w₊, w₋ and w_u of eq. 2. PatchML prints no weights, no exponents and no
    denominators: ours are 1, those of csl-i on cells too, and each sum divided by how many labels, or cells,
    are in it. Images without any label are left out of the image-level loss in every mode (their set D^u, eq.
    5).
    """
    target_rule = SelectiveUnknown(unknown, likeliest, prior, prior_threshold, annotated_only=True)
    focus = gamma_pos, gamma_neg, gamma_unknown
    cells = SelectiveFocal(
        *focus,
        not_negative("positive_cell_weight", positive_cell_weight),
        not_negative("negative_cell_weight", negative_cell_weight),
        not_negative("unknown_cell_weight", unknown_cell_weight),
    )
    patches = PatchLoss(patch_weight, unknown_cells, cells, box_rule)
    return SparseLoss(target_rule, SelectiveFocal(*focus), {"patches": patches}, counted_mean)


def csl_p(
    unknown: Unknown = "ignore",
    patch_weight: float = 1.0,
    positive_cell_weight: float = 1.0,
    negative_cell_weight: float = 1.0,
    unknown_cell_weight: float = 1.0,
    box_rule: BoxRule = "half",
    likeliest: int = 5,
    prior: Sequence[float] | None = None,
    prior_threshold: float = 0.5,
    gamma_pos: float = 0.0,
    gamma_neg: float = 1.0,
    gamma_unknown: float = 4.0,
) -> SparseLoss:
    """Patch-selective: as patchml, but a marked class's unlikely unknown cells are negative (PatchML §3.2,
    CSL-P).

    Left out are its likeliest unknown cells, a quarter of all cells (ours; PatchML has "top k").
    """
    weights = patch_weight, positive_cell_weight, negative_cell_weight, unknown_cell_weight
    prior_of = likeliest, prior, prior_threshold
    return patchml(unknown, "selective", *weights, box_rule, *prior_of, gamma_pos, gamma_neg, gamma_unknown)


def fixmatch(
    sure_positive: float = 0.9,
    sure_negative: float = 0.1,
    strong_weight: float = 1.0,
    gamma_pos: float = 0.0,
    gamma_neg: float = 1.0,
) -> SparseLoss:
    """FixMatch for many labels: csl-i in ignore mode, and +fixmatch (Sohn et al. 2020; PatchML table 3, row
    I).

    The mean over observed labels, and a term for the unknown ones: see +fixmatch.
    """
    base = csl_i("ignore", gamma_pos=gamma_pos, gamma_neg=gamma_neg)
    return with_fixmatch(base, sure_positive, sure_negative, strong_weight)


def with_fixmatch(
    method: SparseLoss, sure_positive: float = 0.9, sure_negative: float = 0.1, strong_weight: float = 1.0
) -> SparseLoss:
    """FixMatch: unknown labels that one view is sure of are the targets of another (Sohn et al. 2020).

    The second view of an image is strong: two random changes of its colors beside crop and flip. Where the
    weak view's score is above τ₊ (``sure_positive``) or below τ₋ (``sure_negative``), the strong view's
    cross-entropy with 1 or 0 is added at ``strong_weight``, divided by the number of unknown labels. PatchML
    says neither its values (.9, .1 and 1 are ours) nor whether it was kept to images without labels; here it
    is for every unknown label. Cutout, which FixMatch has too, would hide what was labeled: left out (ours),
    unless --views.cutout asks for it; that and --views.rand-augment are for the strong view alone.
    """
    return with_term(method, "strong", ConfidentViews(sure_positive, sure_negative, strong_weight))


def cluster(
    method: SparseLoss,
    prototypes: Source | None = None,
    near: float | None = None,
    far: float = FAR,
    pseudo_weight: float = 1.0,
    box_rule: BoxRule = "half",
) -> SparseLoss:
    """PatchCluster: images without labels get some, by the features of annotated cells (PatchML §3.3, eq.
    4–5).

    Before every epoch (ours) once training has settled, the prototype of each class is the mean feature of
    its annotated cells in all training images, seen whole. An image without any label is positive for a
    class if one of its cells is within the cosine distance ``near`` (d⁺, .3; PatchML .30–.35) of the
    prototype, and negative if all are beyond ``far`` (d⁻, ours .7). They act at image level only, at
    ``pseudo_weight``. ``prototypes`` images: mean features of whole images instead (PatchML's I+PC; d⁺ .1),
    which is the default for methods without points. Labels and pseudo labels are each divided by their own
    number (ours), but with iu both by B·L, as iu itself divides.
    """
    source = prototypes or ("cells" if method.needs.spatial_labels else "images")
    labels = PseudoLabels(source, near, far, box_rule)
    loss = PseudoLoss(labels, method.entry_loss, beside_others(method.reduction), pseudo_weight)
    return with_term(method, "pseudo", loss, AnnotatedOnly(method.target_rule))
