"""Adding a term to a method."""

from sparselabel.losses.base import LossPart, Reduction, SparseLoss, batch_sum, counted_mean


def with_term(
    method: SparseLoss, name: str, term: LossPart, target_rule: LossPart | None = None
) -> SparseLoss:
    """The method with one more term and, if given, another reading around its own."""
    terms = {key: part for key, part in method.terms.items() if isinstance(part, LossPart)}
    return SparseLoss(
        target_rule or method.target_rule,
        method.entry_loss,
        terms | {name: term},
        beside_others(method.reduction),
    )


def beside_others(reduction: Reduction) -> Reduction:
    """A sum becomes a mean over the entries that count, so that the weights of terms mean the same."""
    return counted_mean if reduction is batch_sum else reduction
