import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparselabel.data.readers.json_stream import JsonBlocks
from sparselabel.errors import DataError

SPACING: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 2}]


def everything(file: Path, block: int, skip: str | None = None) -> dict[str, Any]:
    with JsonBlocks(file, block=block) as blocks:
        return {
            key: [element for part in blocks.elements(skip) for element in part]
            if blocks.is_list
            else blocks.value()
            for key in blocks
        }


texts = st.text(st.sampled_from('ab"\\{}[],: \né\u2028😀'), max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        texts, values | st.lists(st.dictionaries(texts, values, max_size=3), max_size=6), max_size=4
    ),
    st.sampled_from(SPACING),
    st.booleans(),
    st.integers(1, 40),
)
def test_the_same_as_pythons_parser(
    content: dict[str, Any], spacing: dict[str, Any], ascii_only: bool, block: int
) -> None:
    """Braces, quotes and backslashes in texts, lists of objects in objects, and cuts at every place."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "some.json"
        file.write_text(json.dumps(content, ensure_ascii=ascii_only, **spacing), encoding="utf-8")
        assert everything(file, block) == content


@pytest.mark.parametrize("block", range(1, 30))
def test_a_number_may_be_cut_anywhere(tmp_path: Path, block: int) -> None:
    file = tmp_path / "some.json"
    file.write_text('{"": -1.0000000000000002e+16, "b": 12.5E-3}')
    assert everything(file, block) == {"": -1.0000000000000002e16, "b": 0.0125}


outlines = st.lists(st.lists(st.floats(0, 100), max_size=5), max_size=2)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(outlines | st.just({"counts": [1, 2], "size": [3, 4]}), texts), max_size=6),
    st.sampled_from(SPACING),
    st.integers(1, 60),
)
def test_what_is_not_wanted_is_passed_over(
    elements: list[tuple[Any, str]], spacing: dict[str, Any], block: int
) -> None:
    records = [{"a": text, "outline": shape, text: [text]} for shape, text in elements]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "some.json"
        file.write_text(json.dumps({"x": records, "y": [{"outline": [1]}]}, **spacing))
        read = everything(file, block, skip="outline")
        for was, now in zip(records, read["x"], strict=True):
            assert now.keys() == was.keys()
            assert {key: value for key, value in now.items() if key != "outline"} == {
                key: value for key, value in was.items() if key != "outline"
            }
            assert now["outline"] in (was["outline"], 0)
        assert read["y"] in ([{"outline": [1]}], [{"outline": 0}])


def test_values_can_be_passed_over_and_come_back_to(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_text(json.dumps({"a": [{"x": 1}, {"x": 2}], "b": {"c": [3]}, "d": [{"y": 4}]}))
    with JsonBlocks(file, block=8) as blocks:
        places = {}
        for key in blocks:
            places[key] = blocks.position
            if key == "d":
                assert [*blocks.elements()] == [[{"y": 4}]]
        blocks.go_to(places["a"])
        assert [element for part in blocks.elements() for element in part] == [{"x": 1}, {"x": 2}]
        blocks.go_to(places["b"])
        assert blocks.value() == {"c": [3]}


def test_a_list_comes_in_several_blocks(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_text(json.dumps({"a": [{"number": number} for number in range(100)]}))
    with JsonBlocks(file, block=200) as blocks:
        assert [*blocks] == ["a"]  # passed over
    with JsonBlocks(file, block=200) as blocks:
        (lengths,) = ([len(part) for part in blocks.elements()] for _ in blocks)
    assert sum(lengths) == 100
    assert 4 <= len(lengths) <= 9


@pytest.mark.parametrize("block", [4, 1 << 20])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"a": [{"b": 1},\n {"b": 2},\n {"b" 3}]}',
            r"line 3, column 7 is not JSON: Expecting ':' delimiter$",
        ),
        ('{"a": [{"b": 1}\n {"b": 2}]}', r"line 2, column 2 is not JSON: Expecting ',' delimiter$"),
        ('{"a": [{"b": 1}, {"b"', r"line 1, column 22 is not JSON: .* \(the file ends here: was it"),
        ('{"a": [{"b": "1}, {', r"line 1, column 14 is not JSON: Unterminated string"),
        ('{"a": [{"b": 1}', r"line 1, column 16 is not JSON: Expecting ',' .*the file ends here"),
        ('{"a": 1 "b": 2}', r"line 1, column 9 is not JSON: Expecting ',' delimiter"),
        ('{"a": {"b": 2}} x', r"line 1, column 17 is not JSON: Extra data"),
        ('{"a": [1]]', r"line 1, column 10 is not JSON: Expecting ',' delimiter"),
        ("{a: 1}", r"line 1, column 2 is not JSON: Expecting property name"),
        ('{"a" 1}', r"line 1, column 6 is not JSON: Expecting ':'"),
        ('{"a": [{"b": 1}}, {"b": 2}]}', r"line 1, column 16 is not JSON"),
        ('{"a": [1', r"line 1, column 9 is not JSON: Expecting ',' .*the file ends here"),
        ('{"a": [{"b": 1}, ]}', r"line 1, column 18 is not JSON: "),
        ('{"a": tru}', r"line 1, column 7 is not JSON: Expecting value"),
        ("", r"line 1, column 1 is not JSON: Expecting value .*the file ends here"),
        ("[1, 2]", r"must be an object; found a list"),
    ],
)
def test_errors_say_where(tmp_path: Path, text: str, message: str, block: int) -> None:
    file = tmp_path / "some.json"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        everything(file, block)


def test_errors_of_encoding_say_where(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_bytes(b'{"a": [{"b": "x"}, {"b": "\xff"}]}')
    with pytest.raises(DataError, match=r"some.json is not JSON in UTF-8: invalid start byte at byte 26"):
        everything(file, 8)


def test_nesting_without_end_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_text('{"a": [' + "[" * 20_000 + "]" * 20_000 + "]}")
    with pytest.raises(DataError, match=r"inside each other a thousand deep"):
        everything(file, 1 << 20)


def test_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_text('{"a": [{"b": "é"}]}', encoding="utf-8-sig")
    assert everything(file, 5) == {"a": [{"b": "é"}]}
