"""Your own training loop: python own_loop.py PHOTOS LABELS.csv (a column per class: 1, 0 or nothing)."""

import csv
import sys
from pathlib import Path

import torch
from PIL import Image
from torchvision import models

from sparselabel import UNKNOWN, Output, Progress, Step, ViewGeometry, build_method

EPOCHS, BATCH, RATE = 5, 16, 1e-4
folder, table = map(Path, sys.argv[1:])
images = list(csv.DictReader(table.read_text().splitlines()))
classes = [name for name in images[0] if name not in ("image", "split")]
observed = torch.tensor([[int(row[name] or UNKNOWN) for name in classes] for row in images])
weights = models.ResNet18_Weights.DEFAULT
model, view = models.resnet18(weights=weights), weights.transforms()
model.fc = torch.nn.Linear(model.fc.in_features, len(classes))
method = build_method("pu", observed, expected_positives=2.2)  # `sparselabel expect` estimates it
optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
for epoch in range(EPOCHS):
    progress = Progress(epoch, EPOCHS, warm_up=0, lr=RATE)
    method.begin_epoch(progress)
    for rows in torch.randperm(len(images)).split(BATCH):
        views = [view(Image.open(folder / images[row]["image"]).convert("RGB")) for row in rows]
        output = Output(logits=model(torch.stack(views)))
        step = Step(rows, observed[rows], (output,), (ViewGeometry.whole(len(rows)),), progress)
        losses = method(step)
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        method.update(step)
    print(f"epoch {epoch + 1}: {sum(losses.values()).item():.4f}")  # loss of the last batch
