"""A causal language model with the Trainer of transformers: a stock script and the diff of docs/guide/transformers.md.

    python examples/hf_trainer.py                                          # alone
    gossip launch -n 4 examples/hf_trainer.py --num_train_epochs 2         # four peers
    torchrun --nproc-per-node 4 examples/hf_trainer.py

All options of TrainingArguments can be given. Needs gossip-runtime[transformers]. The model is a small GPT-2 on the
characters of Python's own standard library, and nothing is downloaded.
"""

import sysconfig
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, TrainingArguments, set_seed

import peers
from peers.integrations.transformers import GossipTrainer

BLOCK = 64
FOREIGN = bytes(set(range(256)) - {10, *range(32, 127)})  # all but printable ASCII is left out


def blocks(size: int) -> list[dict[str, torch.Tensor]]:
    """Return blocks of text as a Trainer takes them."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes().translate(None, FOREIGN)
    rows = torch.tensor(text[: size * BLOCK]).long().view(-1, BLOCK)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    return [{"input_ids": row, "labels": row} for row in rows]


def main(peer: peers.Peer) -> None:
    """Train, evaluate and save."""
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(
        output_dir="runs/hf_trainer",
        learning_rate=5e-3,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        num_train_epochs=1,
        eval_strategy="epoch",
        report_to="none",
        disable_tqdm=True,
    )
    (args,) = parser.parse_args_into_dataclasses()
    set_seed(args.seed)
    data = blocks(2400)
    config = GPT2Config(
        vocab_size=128, n_positions=BLOCK, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    trainer = GossipTrainer(
        model=GPT2LMHeadModel(config),
        args=args,
        train_dataset=data[200:],
        eval_dataset=data[:200],
        peer=peer,
    )
    trainer.train()
    trainer.save_model()
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    with peers.join(alone=True) as peer:
        main(peer)
