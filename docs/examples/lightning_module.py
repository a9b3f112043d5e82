"""A Lightning module that fits a noisy sine; prints one JSON line.

allometry run --command "python docs/examples/lightning_module.py {width} {seed} {lr}"
    --shapes "width=8,16,32" --rates 0.01 --metric json:loss
"""

import json
import logging
import sys
import warnings

import pytorch_lightning as lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
STEPS, BATCH = 100, 16


class Fit(lightning.LightningModule):
    """One hidden layer."""

    def __init__(self, width, rate):
        super().__init__()
        self.rate = rate
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1))

    def training_step(self, batch, index):
        """Mean squared error."""
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        """Log the error."""
        self.log("loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.rate)


width, seed, rate = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
x = torch.linspace(-3, 3, 512)[:, None]
y = torch.sin(2 * x) + 0.1 * torch.randn(512, 1, generator=torch.Generator().manual_seed(0))
torch.manual_seed(seed)
model = Fit(width, rate)
rows = TensorDataset(x, y)
trainer = lightning.Trainer(
    max_steps=STEPS, logger=False, enable_checkpointing=False, accelerator="cpu",
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(model, DataLoader(rows, BATCH, shuffle=True))
(found,) = trainer.validate(model, DataLoader(rows, 512), verbose=False)
size = sum(p.numel() for p in model.parameters())
print(json.dumps({"loss": found["loss"], "N": size, "D": STEPS * BATCH}))
