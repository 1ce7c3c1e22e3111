"""The examples run as their docstrings say, and what they train ranks unseen items better than before."""

import ast
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest
from support.paths import ROOT

FOLDER = ROOT / "examples"
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "dials.py")
COMMAND = re.compile(r"^(pip install|python|cd examples && contml) (.*)$", re.MULTILINE)


def steps(name):
    """The commands of an example's docstring: (command, arguments)."""
    text = ast.get_docstring(ast.parse((FOLDER / name).read_text(encoding="utf-8")))
    found = [(command, shlex.split(arguments)) for command, arguments in COMMAND.findall(text)]
    for package in (package for command, packages in found if command == "pip install" for package in packages):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    return found


def run(arguments, cwd):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    options = {"capture_output": True, "text": True, "cwd": cwd, "env": environment}
    done = subprocess.run([sys.executable, *arguments], **options, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_trains(name, tmp_path):
    assert len((FOLDER / name).read_text(encoding="utf-8").splitlines()) <= 80
    (scripts,) = [arguments for command, arguments in steps(name) if command == "python"]
    assert scripts == [f"examples/{name}"]
    out = run([str(ROOT / scripts[0])], tmp_path)
    shares = dict(re.findall(r"^(untrained|trained), .*: ([\d.]+) % of a random ranking$", out, re.MULTILINE))
    assert float(shares["trained"]) < 0.5 * float(shares["untrained"])
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_own_split_is_a_task_of_the_commands():
    ((_, arguments),) = [step for step in steps("own_split.py") if step[0].startswith("cd")]
    out = run(["-m", "contml", *arguments], FOLDER)
    assert re.search(r"test images +250, 50 of them queries", out), out


@pytest.mark.slow
def test_lightning_and_accelerate_give_a_resumed_training_its_batches(tmp_path):
    """Both call `set_epoch`: a training that goes on in epoch 2 has other batches than epoch 0."""
    pytest.importorskip("lightning", reason="lightning is not installed")
    code = """
import lightning, torch, contml
from torch.utils.data import DataLoader
from contml.sampling import UniformSampler

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []
    def training_step(self, rows, _):
        self.seen.append(rows.tolist())
        return self.layer(torch.ones(1)).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def sampler():
    return UniformSampler(4, labels=contml.NumberLabels(torch.arange(12.0)), seed=5)

def train(epochs, **options):
    module = Module()
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
                                enable_model_summary=False, enable_checkpointing=False)
    trainer.fit(module, DataLoader(range(12), batch_sampler=sampler()), **options)
    trainer.save_checkpoint("state.ckpt")
    return module.seen

expected = [sampler().batch(epoch, step) for epoch in range(3) for step in range(3)]
assert train(3) == expected
train(1)
assert train(3, ckpt_path="state.ckpt") == expected[3:]
from accelerate import Accelerator
loader = Accelerator(cpu=True).prepare(DataLoader(range(12), batch_sampler=sampler()))
loader.set_epoch(2)
assert [rows.tolist() for rows in loader] == expected[6:]
"""
    run(["-c", code], tmp_path)


@pytest.mark.slow
def test_hugging_face_resumes_in_the_middle_of_an_epoch(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    code = """
import torch, contml
from torch.utils.data import DataLoader, StackDataset
from transformers import Trainer, TrainingArguments
from contml.sampling import UniformSampler

def sampler():
    return UniformSampler(4, labels=contml.NumberLabels(torch.arange(12.0)), seed=5)

class Recording(Trainer):
    seen = []
    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(self.train_dataset, batch_sampler=sampler()))
    def compute_loss(self, model, inputs, *_, **__):
        self.seen.append(inputs["rows"].tolist())
        return model(torch.ones(1)).sum()

def train(**options):
    arguments = TrainingArguments("state", num_train_epochs=3, save_steps=4, use_cpu=True, report_to="none",
                                  remove_unused_columns=False, disable_tqdm=True)
    trainer = Recording(torch.nn.Linear(1, 1), arguments, None, StackDataset(rows=torch.arange(12)))
    trainer.seen = []
    trainer.train(**options)
    return trainer.seen

expected = [sampler().batch(epoch, step) for epoch in range(3) for step in range(3)]
assert train() == expected
assert train(resume_from_checkpoint="state/checkpoint-4") == expected[4:]
"""
    run(["-c", code], tmp_path)


# -- scripts of Slurm --------------------------------------------------------------------------------------------------
