"""Your own training loop: python own_loop.py PHOTOS LABELS.csv (a column per class: 1, 0 or nothing)."""

import csv
import sys
from pathlib import Path

import torch
from PIL import Image
from torchvision import models

from sparselabel import UNKNOWN, SparseLoss

EPOCHS, BATCH, RATE = 5, 16, 1e-4
folder, table = map(Path, sys.argv[1:])
images = list(csv.DictReader(table.read_text().splitlines()))
classes = [name for name in images[0] if name not in ("image", "split")]
labels = torch.tensor([[int(row[name] or UNKNOWN) for name in classes] for row in images])
weights = models.ResNet18_Weights.DEFAULT
model, view = models.resnet18(weights=weights), weights.transforms()
model.fc = torch.nn.Linear(model.fc.in_features, len(classes))
criterion = SparseLoss("pu", labels, expected_positives=2.2)  # `sparselabel expect` estimates it
optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
for epoch in range(EPOCHS):
    criterion.set_epoch(epoch)
    for index in torch.randperm(len(images)).split(BATCH):
        views = [view(Image.open(folder / images[row]["image"]).convert("RGB")) for row in index]
        loss = criterion(model(torch.stack(views)), index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: {loss.item():.4f}")  # loss of the last batch
