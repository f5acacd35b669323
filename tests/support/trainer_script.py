"""A script as a user of transformers would write it, for tests: it trains a tiny GPT and says what came of it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from comeback import Comeback, end_process
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments
from transformers.utils import logging

import peers
from peers.integrations.transformers import GossipTrainer

logging.disable_progress_bar()


class Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences that count up: easy to learn."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not 0 <= index < self._size:
            raise IndexError(index)
        tokens = (torch.arange(8) + index) % 16
        return {"input_ids": tokens, "labels": tokens}


class Stopped(Exception):
    """Training is over before its time."""


class Notes(TrainerCallback):
    """Keeps what happens."""

    def __init__(self, stop_at: int, comeback: Comeback) -> None:
        self.stop_at, self.comeback = stop_at, comeback
        self.rates: list[float] = []
        self.evaluated: list[float] = []
        self.saved = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self.comeback.attached()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002
        self.rates.append(more["lr_scheduler"].get_last_lr()[0])
        if state.global_step == int(os.environ.get("KILL_AT", "0")):
            end_process()
        if state.global_step == self.stop_at:
            raise Stopped
        self.comeback.after_step(state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002
        self.evaluated.append(more["metrics"]["eval_loss"])

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        self.saved += 1


def main(output: str, options: dict[str, Any], settings: dict[str, Any], stop_at: int = -1) -> dict[str, Any]:
    """Train, and return what came of it.

    Args:
        output: where the Trainer writes.
        options: of TrainingArguments; and ``lora``, to train adapters of so many ranks only.
        settings: of the peer.
        stop_at: the step at which training breaks off.
    """
    torch.set_num_threads(1)
    options = dict(options)
    lora, width = options.pop("lora", 0), options.pop("width", 16)
    with peers.join(alone=True, **settings) as peer:
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=16, n_positions=8, n_embd=width, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
        )
        model: Any = GPT2LMHeadModel(config)
        if lora:
            from peft import LoraConfig, get_peft_model

            model = get_peft_model(model, LoraConfig(r=lora, target_modules=["c_attn"], fan_in_fan_out=True))
        sent: list[int] = []
        peer.on_step(lambda figures: sent.append(figures["bytes_sent"]))
        notes = Notes(stop_at, Comeback(output, peer.rank))
        arguments = TrainingArguments(
            output_dir=output,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            **options,
        )
        trainer = GossipTrainer(
            model=model,
            args=arguments,
            train_dataset=Texts(96),
            eval_dataset=Texts(16),
            callbacks=[notes],
            peer=peer,
        )
        before = trainer.evaluate()["eval_loss"]
        notes.evaluated.clear()
        trainer.train()
        after = trainer.evaluate()["eval_loss"]
        trainer.save_model(str(Path(output) / "final"))
        trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
        if lora:
            model = model.merge_and_unload()
        values = torch.cat([one.detach().reshape(-1) for one in model.parameters()])
        return {
            "rank": peer.rank,
            "first": peer.is_first,
            "before": before,
            "after": after,
            "steps": trainer.state.global_step,
            "peer_steps": peer.step,
            "epoch": trainer.state.epoch,
            "samples": peer.samples,
            "rates": notes.rates,
            "evaluated": notes.evaluated,
            "saved": notes.saved,
            "sent": sent,
            "trained": trained,
            "all": values.numel(),
            "values": values[:: max(1, values.numel() // 64)].tolist(),
            "frozen": hashlib.sha256(model.get_input_embeddings().weight.detach().numpy().tobytes()).hexdigest(),
            "norm": float(values.norm()),
            "digest": hashlib.sha256(values.numpy().tobytes()).hexdigest(),
        }


if __name__ == "__main__":
    said = main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
    sys.stdout.write(json.dumps(said) + "\n")
