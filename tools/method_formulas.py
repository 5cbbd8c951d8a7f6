"""What each method computes, as a formula, and when to take it: the pages in docs/methods are made of it.

f is the score σ(x) of an entry, x its logit, z its observed label: 1, 0 or ? (unknown), y its true one, s its
running score; F and H are scores and heat maps of cells, a logits of the G² cells, t is the epoch. ℓ₊ is
−log f, ℓ₋ is −log(1−f). A formula is the loss of an entry unless it begins with 𝓛, which is that of a batch
of B images, L classes, or with x. Whatever it says, an observed negative is ℓ₋ (but in asl, focal, csl-i
and those made of it).
"""

from typing import NamedTuple

from sparselabel.errors import ConfigError


class Formula(NamedTuple):
    """LaTeX, and when the method is a good choice."""

    latex: str
    when: str


FORMULAS: dict[str, Formula] = {
    "bce": Formula(
        r"\ell = y\,\ell_+ + (1-y)\,\ell_-",
        "To know what full labels would give: it sees all of them. Not for sparse labels.",
    ),
    "bce-ls": Formula(
        r"\ell = y'\,\ell_+ + (1-y')\,\ell_-,\qquad y' = (1-\varepsilon)\,y + \varepsilon/2",
        "As bce, where scores shall not become too sure.",
    ),
    "iu": Formula(
        r"\ell = [z=1]\,\ell_+ + [z=0]\,\ell_-",
        "Where many answers are no, so that there are many observed negatives; unknown labels teach nothing.",
    ),
    "iun": Formula(
        r"\ell = [z=1]\,\ell_+ + [y=0]\,\ell_-",
        "To know what false negatives cost: an oracle that is told all that is absent.",
    ),
    "an": Formula(
        r"\ell = [z=1]\,\ell_+ + [z\neq 1]\,\ell_-",
        "The baseline to compare with. Good where almost all positives are annotated.",
    ),
    "an-ls": Formula(
        r"\ell = z'\,\ell_+ + (1-z')\,\ell_-,\qquad z' = (1-\varepsilon)[z=1] + \varepsilon/2",
        "A cheap improvement of an: wrong negatives are held less firmly.",
    ),
    "wan": Formula(
        r"\ell = [z=1]\,\ell_+ + \gamma\,[z\neq 1]\,\ell_-,\qquad \gamma = 1/(L-1)",
        "Where false negatives hurt more than false positives; scores come out too high.",
    ),
    "epr": Formula(
        r"\mathcal{L} = \tfrac{1}{BL}\sum [z=1]\,\ell_+ + \lambda\Big(\frac{\hat k - k}{L}\Big)^2,\qquad"
        r" \hat k = \tfrac1B\sum f",
        "Where the mean number of classes in an image is known and little else.",
    ),
    "role": Formula(
        r"\mathcal{L} = \tfrac12\big[\mathcal{L}'(F\mid\tilde Y) + \mathcal{L}'(\tilde Y\mid F)\big],\qquad"
        r" \tilde Y = \sigma(\phi),\quad \mathcal{L}' = \text{cross-entropy} + \text{epr}",
        "Where estimates of the missing labels are wanted too. It keeps one number for every entry.",
    ),
    "pseudo": Formula(
        r"\ell = [z=1 \lor s>\tau]\,\ell_+ + [z\neq 1 \land s\le\tau]\,\ell_-,\qquad"
        r" s \leftarrow \mu s + (1-\mu) f",
        "As a baseline for methods that correct labels.",
    ),
    "en": Formula(
        r"\ell = [z=1]\,\ell_+ + [\hat z = 0]\,\ell_-,\qquad"
        r" \hat z_i = 1 \text{ for the } p_i \text{ highest } s_i,\quad"
        r" p_i = \mathrm{round}\frac{K N c_i}{\sum_j c_j}",
        "Single positives, where K is known or estimated and features tell classes apart from the start.",
    ),
    "ep": Formula(
        r"\ell = [\hat z = 1]\,\ell_+ + [\hat z = 0]\,\ell_-",
        "Hardly: early mistakes confirm themselves. Take en.",
    ),
    "focal": Formula(
        r"\ell = [z=1]\,(1-f)^{\gamma_+}\ell_+ + [z\neq1]\,f^{\gamma_-}\ell_-",
        "Where classes are rare and labels complete; it has no cure for missing ones.",
    ),
    "asl": Formula(
        r"\ell = [z=1]\,(1-f)^{\gamma_+}\ell_+ - [z\neq1]\,f_m^{\gamma_-}\log(1-f_m),\qquad"
        r" f_m = \max(f-m, 0)",
        "Full labels with many classes; it is Query2Label's loss (`--settings.preset q2l`).",
    ),
    "hill": Formula(
        r"\ell = -[z=1]\,(1-\sigma(x-1))^{2}\log\sigma(x-1) + [z=?]\,(1.5-f)\,f^2",
        "Sparse positives, no number to be known before: what scores high is pulled down less again.",
    ),
    "splc": Formula(
        r"\ell = [z=1 \lor (z=? \land f>\tau)]\,(1-f')^{2}\,(-\log f') + [\text{else}]\,f^{2}\,\ell_-,"
        r"\qquad f' = \sigma(x-1)\text{ if } z=1,\text{ else } f",
        "As hill, where the model soon finds the missing labels by itself.",
    ),
    "ll-r": Formula(
        r"\ell = [z=1]\,\ell_+ + [z\neq1]\,\ell_-\cdot[\ell \text{ not among the } \lceil BL\Delta(t-1)\rceil"
        r" \text{ largest of unknown labels}]",
        "Single positives with large batches; Δ must fit the share of missing labels.",
    ),
    "ll-ct": Formula(
        r"\ell = \ell_+ \text{ for the } \lceil BL\Delta(t-1)\rceil \text{ largest } \ell_-"
        r" \text{ of unknown labels, else as an}",
        "As ll-r, where large losses are missing labels more surely.",
    ),
    "ll-cp": Formula(
        r"\ell = \ell_+ \text{ for ever once among the } \lceil BL\Delta\rceil \text{ largest } \ell_-"
        r" \text{ of unknown labels, else as an}",
        "As ll-ct, with a memory of its corrections.",
    ),
    "em": Formula(
        r"\ell = [z=1]\,\ell_+ - \alpha\,[z=?]\,H(f),\qquad H(f) = -f\log f - (1-f)\log(1-f)",
        "Single positives without any number to be known; α by validation.",
    ),
    "em+apl": Formula(
        r"\ell = \ell_{\text{em}},\ \text{ but } \beta\,\big[\hat y\,\ell_+ + (1-\hat y)\,\ell_-\big]"
        r" \text{ where a soft label } \hat y \text{ was given}",
        "As em, in runs of ten epochs or more; every epoch takes one more pass over the images.",
    ),
    "soft": Formula(
        r"x = \tfrac{1500\,(a + b\,W_1 h) + N\,W_2 h}{1500 + N},\quad"
        r" W_1 = \arg\min_W \sum \lVert q - Wh\rVert^2 + \lambda\lVert W\rVert^2,\quad"
        r" W_2 = \arg\min_W \sum \ell(Wh, q) + \tfrac{\lambda'}{2}\lVert W\rVert^2,\quad"
        r" q_{z=?} = \frac{(1-c)\,p}{1-c\,p},\quad p = \sigma(a + b\,s_{-i})",
        "On stored features of up to 100,000 images and 10 million labels: there it is the default. It needs "
        "no epochs and no validation, and a K that is given helps.",
    ),
    "gr": Formula(
        r"\ell_{z=?} = V\Big[k\,\frac{1-f^{q_2}}{q_2} + (1-k)\,\frac{1-(1-f)^{q_3}}{q_3}\Big],\quad"
        r" k = \sigma(wf+b),\ V = e^{-(f-m)^2/2s^2}",
        "Single positives, in short runs; its schedules end with the run. The default (`auto`) on stored "
        "features of more than 100,000 images or 10 million labels.",
    ),
    "pu": Formula(
        r"\ell = -[z=1]\log\sigma\big(x-\kappa\log\tfrac1u\big) - [z=?]\big(w\log(1-f+(1-c)\,r f)"
        r" + \alpha H(f)\big)",
        "Sparse positives: with +scl the default (`auto`) where the network is fine-tuned, and with other "
        "settings on stored features where K is given. It needs K, counted or estimated, as en does.",
    ),
    "csl-i": Formula(
        r"\ell = [z=1](1-f)^{\gamma_+}\ell_+ + [z=0]f^{\gamma_-}\ell_- + \omega\,[z=?]f^{\gamma_u}\ell_-,"
        r"\qquad \omega = 0 \text{ for likely positives}",
        "Labels bought at random, both yes and no, without points.",
    ),
    "patchml": Formula(
        r"\mathcal{L} = \mathcal{L}_{\text{csl-i}} + w_{\text{patch}}\,\frac{1}{n}\sum_{\text{cells}}"
        r" \big([z=1]w_+(1-F)^{\gamma_+}\ell_+ + [z=0]w_-F^{\gamma_-}\ell_-"
        r" + [z=?]w_uF^{\gamma_u}\ell_-\big)",
        "Labels with points or boxes; maps come out well localized.",
    ),
    "csl-p": Formula(
        r"\mathcal{L} = \mathcal{L}_{\text{patchml}},\ \text{ unknown cells of a marked class negative}"
        r"\text{ but for its likeliest quarter}",
        "As patchml, where marked things fill little of an image.",
    ),
    "fixmatch": Formula(
        r"\mathcal{L} = \mathcal{L}_{\text{csl-i, ignore}} + \lambda\,\frac1n\sum_{z=?}"
        r"\big([f_w>\tau_+]\,\ell_+(f_s) + [f_w<\tau_-]\,\ell_-(f_s)\big)",
        "Few labels and many images without any; two views per image, so twice the time.",
    ),
    "+cl": Formula(
        r"+\ \gamma\,\tfrac{1}{BL}\sum d(f, s),\qquad s \leftarrow \mu s + (1-\mu) f",
        "Beside most methods, at no cost; on frozen features too.",
    ),
    "+scl": Formula(
        r"+\ \gamma\,\tfrac{1}{BLG^2}\sum d\big(F, \mathrm{crop}(H)\big),\qquad H \leftarrow \mu H "
        r"+ (1-\mu)\,\mathrm{uncrop}(F)",
        "Beside most methods, where everything is trained on crops. It keeps heat maps of all images.",
    ),
    "+cluster": Formula(
        r"+\ \tfrac{1}{n}\sum_{\text{unlabeled}} \ell(\hat z),\quad \hat z_i = 1 \text{ if }"
        r" \min_{\text{cells}} d_{\cos}(v, p_i) < d^+,\ 0 \text{ if } > d^-",
        "Beside csl-i and patchml, where many images have no label at all.",
    ),
    "+fixmatch": Formula(
        r"+\ \lambda\,\tfrac1n\sum_{z=?}\big([f_w>\tau_+]\,\ell_+(f_s) + [f_w<\tau_-]\,\ell_-(f_s)\big)",
        "Beside csl-i and patchml, where many labels are unknown.",
    ),
    "boostlu": Formula(
        r"x = \tfrac{1}{G^2}\sum_{g} a_g\,\big(1 + (\beta - 1)[a_g > 0]\big)",
        "With methods for which unknown is negative (ll-* in the paper, which finds that false negatives "
        "make the maps of classes fainter rather than wrong).",
    ),
}


def formula_of(name: str) -> Formula:
    """A method's formula; a part that is added to others is named with its plus."""
    if name not in FORMULAS:
        raise ConfigError(
            f"method {name!r} has no formula: write it and when to take the method into FORMULAS "
            "(tools/method_formulas.py), of which its page is made"
        )
    return FORMULAS[name]
