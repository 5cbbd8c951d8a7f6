from pathlib import Path

import torch
from safetensors.torch import load_file

from sparselabel.training.checkpoint import write_tensors


def test_tensors_have_the_rights_of_other_files(tmp_path: Path) -> None:
    write_tensors({"weight": torch.arange(6.0).reshape(2, 3).T}, tmp_path / "model.safetensors")
    (tmp_path / "other.json").touch()
    modes = [file.stat().st_mode for file in tmp_path.iterdir()]
    assert modes[0] == modes[1]
    assert load_file(tmp_path / "model.safetensors")["weight"].tolist() == [[0, 3], [1, 4], [2, 5]]
