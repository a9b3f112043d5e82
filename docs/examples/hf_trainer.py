"""Hugging Face's Trainer on a small GPT-2; the loss is read from the log that it writes.

allometry run --command "python docs/examples/hf_trainer.py {width} {seed} {lr} {out}"
    --shapes "width=16,32,64; N=24*width^2; D=50*4*32" --rates 0.003
    --metric "file:{out}/trainer_state.json"
"""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

width, seed, rate, out = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
steps = int(sys.argv[5]) if len(sys.argv) > 5 else 50
text = torch.tensor(list(b"the quick brown fox jumps over the lazy dog. " * 100))
rows = [{"input_ids": t, "labels": t} for t in text[: 32 * 128].view(-1, 32)]
shape = GPT2Config(vocab_size=128, n_positions=32, n_embd=width, n_layer=2, n_head=2)
torch.manual_seed(seed)
settings = TrainingArguments(
    output_dir=out, seed=seed, learning_rate=rate, max_steps=steps, report_to=[], use_cpu=True,
    per_device_train_batch_size=4, eval_strategy="steps", eval_steps=max(1, steps // 5),
    logging_strategy="no", save_strategy="no", disable_tqdm=True,
)  # fmt: skip
trainer = Trainer(
    model=GPT2LMHeadModel(shape), args=settings, train_dataset=rows[:100], eval_dataset=rows[100:]
)
trainer.train()
trainer.evaluate()
trainer.save_state()
