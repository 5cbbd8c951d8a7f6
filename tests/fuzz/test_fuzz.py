"""A few thousand mutated inputs of every format; ``make fuzz`` reads a million."""

from random import Random

import pytest

from tests.fuzz.formats import FORMATS
from tests.fuzz.mutate import STRUCTURES, mutate
from tests.fuzz.session import Result, fuzz

SEED = 1  # not that of `make fuzz`: both together see more


def test_every_mutated_input_is_read_or_refused_by_name() -> None:
    result = fuzz([*FORMATS], 2_000, seed=SEED)
    assert result.faults == {}
    assert set(result.read) == set(FORMATS)
    assert result.read.total() >= 2_000


def test_a_seed_makes_the_same_damage() -> None:
    content = b'{"a": [1, 2, {"b": "c"}]}'
    damaged = [mutate(Random(number), "a.json", content) for number in range(50)]
    assert damaged == [mutate(Random(number), "a.json", content) for number in range(50)]
    assert len({*damaged}) > 40
    assert content not in damaged or len({*damaged} - {content}) > 40


def test_what_goes_wrong_is_counted() -> None:
    result = Result()
    result.add("coco", 3, "")
    result.add("coco", 4, "KeyError at coco.py:1: 'id'")
    result.add("coco", 5, "KeyError at coco.py:1: 'name'")
    assert (result.read["coco"], result.wrong["coco"]) == (3, 2)
    assert result.faults == {"coco: KeyError at coco.py:1": ("KeyError at coco.py:1: 'id'", 4)}


@pytest.mark.parametrize("suffix", STRUCTURES)
def test_damage_of_what_is_damaged(suffix: str) -> None:
    """A file without its structure is mutated by its bytes."""
    assert isinstance(mutate(Random(0), f"a{suffix}", b""), bytes)
