"""Names of classes whose labels are codes, as Open Images has them: ``/m/0bt9lr,Dog`` a line."""

import csv
from collections import Counter
from pathlib import Path

from sparselabel.errors import DataError, listing


def read_names(file: Path, codes: tuple[str, ...]) -> tuple[str, ...]:
    """The names of some classes; where several have one name, the code is put behind it."""
    name_of: dict[str, str] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            for row in reader:
                if not any(row):
                    continue
                if len(row) != 2 or not row[0].strip() or not row[1].strip():
                    raise DataError(
                        f"{file}, line {reader.line_num:,}: must be a code and a name, not {listing(row)!r}"
                    )
                code, name = row[0].strip(), row[1].strip()
                if name_of.setdefault(code, name) != name:
                    place = f"{file}, line {reader.line_num:,}"
                    raise DataError(f"{place}: {code!r} is {name!r} here and {name_of[code]!r} before")
    except (FileNotFoundError, IsADirectoryError):
        raise DataError(
            f"{file} is not there: give a CSV file of codes and names, or leave --names out"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} is not a CSV file in UTF-8: {error}") from error
    unknown = [code for code in codes if code not in name_of]
    if unknown:
        raise DataError(
            f"{file} has no name for {len(unknown):,} of {len(codes):,} labels: {listing(unknown)}; "
            "give the file that belongs to the labels"
        )
    often = Counter(name_of[code] for code in codes)
    return tuple(
        name_of[code] if often[name_of[code]] == 1 else f"{name_of[code]} ({code})" for code in codes
    )
