"""Your own training loop: python own_loop.py PHOTOS LABELS.csv (image,label; or a column per class)."""

import sys
from pathlib import Path

import torch
from PIL import Image
from torchvision import models

from sparselabel import SparseLoss
from sparselabel.data.readers.table import read

EPOCHS, BATCH, RATE = 5, 16, 1e-4
if len(sys.argv) != 3:
    sys.exit("usage: python own_loop.py PHOTOS LABELS.csv")
folder, table = map(Path, sys.argv[1:])
data = read(table, images=folder).splits["train"]  # 1, 0, or -1 for unknown
images, classes, labels = data.paths, list(data.labels.classes), torch.tensor(data.labels.values)
weights = models.ResNet18_Weights.DEFAULT
try:
    model, view = models.resnet18(weights=weights), weights.transforms()
except OSError as error:
    sys.exit(f"the pretrained weights cannot be downloaded ({error}): take weights=None, or a network")
model.fc = torch.nn.Linear(model.fc.in_features, len(classes))
criterion = SparseLoss("pu", labels, expected_positives=2.2)  # `sparselabel expect` estimates it
optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
for epoch in range(EPOCHS):
    criterion.set_epoch(epoch)
    for index in torch.randperm(len(images)).split(BATCH):
        views = [view(Image.open(folder / images[row]).convert("RGB")) for row in index]
        loss = criterion(model(torch.stack(views)), index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1}: {loss.item():.4f}")  # loss of the last batch
