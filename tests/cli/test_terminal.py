import io

from rich.console import Console

from sparselabel.cli.terminal import fitting_tables

COLUMNS = ["method", "validation mAP", "test mAP", "over an", "published test mAP", "time"]
LINES = [
    ["en+scl", "71.2", "70.1 ± 0.4", "+3.1 (+2.0 to +4.2)", "88.8", "3 h 20 min"],
    ["an", "", "", "", "", ""],
]


def printed(width: int) -> list[list[str]]:
    """The lines of each table."""
    tables = []
    for table in fitting_tables(COLUMNS, LINES, width):
        file = io.StringIO()
        Console(file=file, width=width, soft_wrap=True).print(table)
        tables.append(file.getvalue().splitlines())
    return tables


def test_a_wide_terminal_has_one_table() -> None:
    (table,) = printed(200)
    assert [cell.strip() for cell in table[1].split("┃")[1:-1]] == COLUMNS


def test_a_narrow_one_has_several_with_whole_cells() -> None:
    tables = printed(50)
    assert len(tables) == 3
    text = "\n".join(line for table in tables for line in table)
    assert all(cell in text for cell in LINES[0])
    assert text.count("en+scl") == 3
    assert max(len(line) for table in tables for line in table) <= 50
