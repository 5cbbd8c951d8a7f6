"""The best rows of every class, chosen exactly over all processes without bringing the scores together.

A row's rank in a class is one whole number: the bits of its score (a float that is not negative is ordered as
its bits are), then its row, the lower the better. Thresholds are found digit by digit from the top: every
process counts, for each class, the values of the next 8-bit digit among the rows that agree with the digits
found so far; the counts are added up over processes, and the digit that the wanted rank falls into is the
next one of the threshold. Ties are broken by row, so the result does not depend on the number of processes.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from sparselabel.distributed import total

DIGIT = 8
SCORE_BITS = 32
HELD_ENTRIES = 2**20  # once so few entries agree with the digits found, they are kept at hand


class Threshold(NamedTuple):
    """Per class (L,) the last score that is chosen, and the last row that is chosen with that very score."""

    score: Tensor
    row: Tensor

    def chooses(self, scores: Tensor, rows: Tensor) -> Tensor:
        """(B, L) Whether rows (B,) with these scores (B, L) are among the chosen."""
        return (scores > self.score) | ((scores == self.score) & (rows[:, None] <= self.row))


class Piece(NamedTuple):
    """Some rows (c,) with their scores (c, L) in 0..1 and whether they may be chosen (c, L)."""

    rows: Tensor
    scores: Tensor
    candidate: Tensor


def nobody(classes: int) -> Threshold:
    """The threshold that chooses no row of any class."""
    return Threshold(torch.full((classes,), torch.inf), torch.full((classes,), -1, dtype=torch.int64))


def best_rows(pieces: Callable[[], Iterable[Piece]], wanted: Tensor, rows: int) -> Threshold:
    """The threshold that chooses the ``wanted`` (L,) best candidates of every class.

    ``pieces`` walks through the rows of this process, a bounded number at a time; ``rows`` is the number of
    rows in all processes. No class may want more candidates than it has.
    """
    row_bits = -(-max(rows - 1, 1).bit_length() // DIGIT) * DIGIT
    classes = len(wanted)
    left = wanted.clone()
    found = torch.zeros(classes, dtype=torch.int64)
    # One block for all that is kept: many small ones would keep the memory of large ones from use.
    room = torch.empty(2, HELD_ENTRIES, dtype=torch.int64)
    held: Tensor | None = None

    def entries(shift: int) -> Iterable[tuple[Tensor, Tensor]]:
        """(class, rank) of the candidates that agree with the digits found so far."""
        if held is not None:
            agreeing = (held[1] >> (shift + DIGIT)) == found[held[0]]
            yield held[0][agreeing], held[1][agreeing]
            return
        for piece in pieces():
            ranks = _ranks(piece, row_bits)
            agreeing = piece.candidate & (wanted > 0) & ((ranks >> (shift + DIGIT)) == found)
            yield agreeing.nonzero()[:, 1], ranks[agreeing]

    for shift in range(SCORE_BITS + row_bits - DIGIT, -1, -DIGIT):
        counts = torch.zeros(classes, 1 << DIGIT, dtype=torch.int64)
        size = 0
        for of_class, ranks in entries(shift):
            digits = (ranks >> shift) & ((1 << DIGIT) - 1)
            counts += torch.bincount(of_class << DIGIT | digits, minlength=classes << DIGIT).view(classes, -1)
            first, size = size, size + len(ranks)
            if size <= HELD_ENTRIES:
                room[0, first:size], room[1, first:size] = of_class, ranks
        if size <= HELD_ENTRIES:
            held = room[:, :size]
        from_top = total(counts).flip(1).cumsum(1)
        place = torch.searchsorted(from_top, left[:, None]).clamp(max=(1 << DIGIT) - 1)
        above = torch.where(place > 0, from_top.gather(1, (place - 1).clamp(min=0)), 0)
        left = left - above[:, 0]
        found = found << DIGIT | ((1 << DIGIT) - 1 - place[:, 0])
    row = (1 << row_bits) - 1 - (found & ((1 << row_bits) - 1))
    score = (found >> row_bits).to(torch.int32).view(torch.float32)
    none = nobody(classes)
    return Threshold(torch.where(wanted > 0, score, none.score), torch.where(wanted > 0, row, none.row))


def _ranks(piece: Piece, row_bits: int) -> Tensor:
    """(c, L) The score's bits, then the row, counted backwards."""
    bits = (
        (piece.scores.float() + 0.0).contiguous().view(torch.int32).to(torch.int64)
    )  # + 0: no negative zero
    return bits << row_bits | ((1 << row_bits) - 1 - piece.rows[:, None])
