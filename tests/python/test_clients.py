"""Programs that train with an optimizer they are given: transformers' Trainer, accelerate, Lightning and its command line, where
they are installed. Each trains the same model as a plain loop does, and resumes from its own checkpoint.

SPDX-License-Identifier: MIT
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import find_package  # noqa: F401
import libadamod.torch as lt
import torch

LIMIT = 300  # seconds of a process


def has(*names):
    return all(importlib.util.find_spec(name) for name in names)


def make_data(n=32):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, 8, generator=generator)
    return x, (x @ torch.randn(8, 1, generator=generator)).tanh()


def make_model():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def plain(steps=8, batch=8):
    """The weights that a plain loop gives."""
    x, y = make_data()
    model = make_model()
    optimizer = lt.AdaMod(model.parameters(), lr=1e-2, beta3=0.9)
    for t in range(steps):
        i = t * batch % len(x)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[i : i + batch]), y[i : i + batch]).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


class Clients(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def same(self, model, expected=None):
        for p, q in zip(model.parameters(), expected or plain()):
            self.assertLess(float((p.detach().cpu() - q).abs().max()), 1e-6)

    @unittest.skipUnless(has("transformers", "accelerate"), "there is no transformers, or no accelerate")
    def test_trainer(self):
        from transformers import Trainer, TrainingArguments

        class Wrapped(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = make_model()

            def forward(self, x, labels=None):
                out = self.inner(x)
                return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}

        class InOrder(Trainer):
            def _get_train_sampler(self, *_):
                return None

        x, y = make_data()
        data = [{"x": a, "labels": b} for a, b in zip(x, y)]

        def train(steps, resume=None):
            arguments = TrainingArguments(
                output_dir=self.folder,
                per_device_train_batch_size=8,
                max_steps=steps,
                save_steps=4,
                lr_scheduler_type="constant",
                learning_rate=1e-2,
                max_grad_norm=0,
                weight_decay=0,
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                logging_strategy="no",
            )
            choice = (lt.AdaMod, {"lr": 1e-2, "beta3": 0.9})
            trainer = InOrder(Wrapped(), arguments, train_dataset=data, optimizer_cls_and_kwargs=choice)
            trainer.train(resume_from_checkpoint=resume)
            self.assertIsInstance(getattr(trainer.optimizer, "optimizer", trainer.optimizer), lt.AdaMod)
            return trainer.model

        self.same(train(8))
        self.same(train(8, resume=f"{self.folder}/checkpoint-4"))

    @unittest.skipUnless(has("accelerate"), "there is no accelerate")
    def test_accelerate(self):
        """As accelerate's examples have it, with gradients of two batches in one update and a state saved half-way."""
        from accelerate import Accelerator
        from torch.utils.data import DataLoader, TensorDataset

        def train(half_way=None):
            accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
            model = make_model()
            optimizer = lt.AdaMod(model.parameters(), lr=1e-2, beta3=0.9)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
            loader = DataLoader(TensorDataset(*make_data()), batch_size=4)
            model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
            if half_way:
                accelerator.load_state(half_way)
            for _ in range(1 if half_way else 2):
                for x, y in loader:
                    with accelerator.accumulate(model):
                        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
                        optimizer.step()
                        schedule.step()
                        optimizer.zero_grad()
                if not half_way and not os.path.exists(f"{self.folder}/state"):
                    accelerator.save_state(f"{self.folder}/state")
            return accelerator.unwrap_model(model)

        self.same(train())
        self.same(train(f"{self.folder}/state"))

    @unittest.skipUnless(
        has("lightning", "jsonargparse", "docstring_parser", "typeshed_client"),
        "there is no lightning, or no jsonargparse[signatures]",
    )
    def test_lightning_command_line(self):
        """--optimizer names a class by its path, or by its name once it was imported; its options are flags."""
        program = f"{self.folder}/program.py"
        with open(program, "w") as file:
            file.write(
                "import sys\n"
                f"sys.path[:0] = {[p for p in sys.path if p]!r}\n"
                "import libadamod.torch, torch\n"
                "from lightning.pytorch import LightningModule\n"
                "from lightning.pytorch.cli import LightningCLI\n"
                "from test_clients import make_data, make_model\n"
                "from torch.utils.data import DataLoader, TensorDataset\n"
                "class Module(LightningModule):\n"
                "    def __init__(self):\n"
                "        super().__init__()\n"
                "        self.inner = make_model()\n"
                "    def training_step(self, batch, _):\n"
                "        return torch.nn.functional.mse_loss(self.inner(batch[0]), batch[1])\n"
                "    def train_dataloader(self):\n"
                "        return DataLoader(TensorDataset(*make_data()), batch_size=8)\n"
                "cli = LightningCLI(Module, save_config_callback=None)\n"
                "assert type(cli.trainer.optimizers[0]) is libadamod.torch.AdaMod\n"
                "torch.save(list(cli.model.inner.parameters()), 'weights.pt')\n"
            )
        flags = ["--trainer.max_epochs=2", "--trainer.accelerator=cpu", "--trainer.logger=false", "--trainer.devices=1"]
        flags += ["--trainer.enable_checkpointing=false", "--trainer.enable_progress_bar=false"]
        for name in ("libadamod.torch.AdaMod", "AdaMod"):
            optimizer = [f"--optimizer={name}", "--optimizer.lr=1e-2", "--optimizer.beta3=0.9"]
            done = subprocess.run(
                [sys.executable, program, "fit", *flags, *optimizer],
                cwd=self.folder,
                timeout=LIMIT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            self.assertEqual(done.returncode, 0, done.stdout)
            saved = torch.load(f"{self.folder}/weights.pt", weights_only=False)
            for p, q in zip(saved, plain()):
                self.assertLess(float((p.detach() - q).abs().max()), 1e-6)


if __name__ == "__main__":
    unittest.main()
