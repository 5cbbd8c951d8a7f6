from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from sparselabel.errors import ConfigError
from sparselabel.schema import Count, Finite, Share, checked


@dataclass(frozen=True)
class Row:
    name: str
    share: Share
    kind: Literal["a", "b"] = "a"


class Inner(TypedDict):
    value: float


class File(TypedDict):
    count: Count
    rows: list[Row]
    pair: tuple[Finite, Finite]
    inner: Inner | None
    note: NotRequired[str | None]


WHOLE: dict[str, Any] = {
    "count": 3, "rows": [{"name": "x", "share": 1}], "pair": [1, 2.5], "inner": {"value": 1}, "other": [],
}  # fmt: skip


def test_values_of_the_types_asked_for() -> None:
    found = checked(File, WHOLE, "", "a.json")
    assert found == {
        "count": 3, "rows": [Row("x", 1.0)], "pair": (1.0, 2.5), "inner": {"value": 1.0}, "other": [],
    }  # fmt: skip
    assert type(found["rows"][0].share) is float
    assert checked(File, WHOLE | {"inner": None, "note": None}, "", "a.json")["inner"] is None
    assert checked(Any, WHOLE, "", "a.json") is WHOLE


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("count", -1, "count"),
        ("count", True, "count"),
        ("count", 1.0, "count"),
        ("count", 2**63, "count"),
        ("count", 10**400, "count"),
        ("count", None, "count"),
        ("rows", {}, "rows"),
        ("rows", [1], "rows 1"),
        ("rows", [{"name": "x"}], "share"),
        ("rows", [{"name": "x", "share": 2}], "share"),
        ("rows", [{"name": "x", "share": float("nan")}], "share"),
        ("rows", [{"name": "x", "share": 1, "kind": "c"}], "kind"),
        ("rows", [{"name": "x", "share": 1, "kind": []}], "kind"),
        ("rows", [{"name": "x", "share": 1, "more": 1}], "more"),
        ("pair", [1], "pair"),
        ("pair", [1, float("inf")], "pair"),
        ("pair", [1, 10**400], "pair"),
        ("inner", {}, "value"),
        ("inner", "text", "inner"),
        ("inner", {"value": []}, "value"),
        ("note", 5, "note"),
    ],
)
def test_other_values_are_refused_with_their_place(key: str, value: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=r"^a\.json") as refused:
        checked(File, WHOLE | {key: value}, "", "a.json")
    assert refused.value.what == what


def test_a_missing_key() -> None:
    with pytest.raises(ConfigError, match=r"a\.json has no 'pair'") as refused:
        checked(File, {key: value for key, value in WHOLE.items() if key != "pair"}, "", "a.json")
    assert (refused.value.what, refused.value.where) == ("pair", "a.json")
