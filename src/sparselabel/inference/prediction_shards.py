"""Predictions in many files, one for each part of the images: Parquet, JSON lines or CSV.

A file has its name once all of it is written. Tables have the columns image, labels, scores and error;
``all_scores`` are one column of lists, in the order of the classes that the table's metadata names.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sparselabel.config import ShardFormat
from sparselabel.errors import ConfigError, param
from sparselabel.files import named
from sparselabel.inference.prediction_csv import csv_header, csv_line, json_line, refuse_separators, text_of
from sparselabel.inference.predictor import Prediction

PARTIAL = ".writing-"
"""How files that are being written are called; what is left of them was a killed worker's."""
ROWS = 1024  # of a table that are in memory at a time


@dataclass(frozen=True)
class PredictionShards:
    """Where and how parts are written: ``folder``/part-00000.parquet and so on."""

    folder: Path
    kind: ShardFormat
    classes: tuple[str, ...]
    all_scores: bool = False

    def __post_init__(self) -> None:
        if self.kind == "csv":
            refuse_separators(self.classes)
        if self.kind == "parquet":
            require_pyarrow()

    def file(self, number: int) -> Path:
        """The file of a part."""
        return self.folder / f"part-{number:05}.{self.kind}"

    def write(self, number: int, predictions: Iterable[Prediction]) -> None:
        """Write a part, whole or not at all."""
        with _own_partial(self.file(number)) as partial:
            if self.kind == "parquet":
                self._write_table(partial, predictions)
                return
            with partial.open("w", encoding="utf-8", newline="") as file:
                if self.kind == "csv":
                    file.write(csv_header(self.classes, self.all_scores))
                line = csv_line if self.kind == "csv" else json_line
                for prediction in predictions:
                    file.write(line(prediction, self.classes, self.all_scores))

    def _write_table(self, file: Path, predictions: Iterable[Prediction]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        schema = self._schema()
        with parquet.ParquetWriter(file, schema) as writer:
            left = iter(predictions)
            while rows := tuple(islice(left, ROWS)):
                columns: dict[str, Any] = {
                    "image": [text_of(row.image) for row in rows],
                    "labels": [[name for name, _ in row.labels] for row in rows],
                    "scores": [[np.float32(score) for _, score in row.labels] for row in rows],
                    "error": [None if row.error is None else text_of(row.error) for row in rows],
                }
                if self.all_scores:
                    columns["all_scores"] = [
                        None if row.error is not None else row.scores.astype(np.float32) for row in rows
                    ]
                writer.write_table(pa.Table.from_pydict(columns, schema))

    def _schema(self) -> Any:
        import pyarrow as pa

        fields = [
            ("image", pa.string()),
            ("labels", pa.list_(pa.string())),
            ("scores", pa.list_(pa.float32())),
            ("error", pa.string()),
        ]
        if self.all_scores:
            fields.append(("all_scores", pa.list_(pa.float32(), len(self.classes))))
        return pa.schema(fields, {"classes": json.dumps(self.classes)})


def require_pyarrow() -> None:
    """Raise unless Parquet can be written."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        problem = f"{param('out_format', 'parquet')} needs pyarrow"
        raise ConfigError(
            problem, "pip install 'sparselabel[parquet]'", f"take {param('out_format', 'jsonl')}"
        ) from error


@contextmanager
def _own_partial(file: Path) -> Iterator[Path]:
    """As ``files.atomic_write``, where two processes may write the same: one taken for dead may live."""
    partial = file.with_name(f"{PARTIAL}{file.name}.{os.uname().nodename}-{os.getpid()}")
    try:
        with named(file):
            yield partial
        partial.replace(file)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
