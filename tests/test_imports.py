"""Imports are lazy: a loss imports no heavy package; help and mistyped names do not import torch."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import grimp
import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from support.miniature import TINY

import contml

HEAVY = ("accelerate", "faiss", "gensim", "llvmlite", "matplotlib", "numba", "rapidfuzz", "scipy.sparse", "sklearn")
HEAVY += ("torchvision",)


def loaded_after(code, names, *, cwd=None):
    """Returns which of these modules a new process has imported after the code, and its stderr."""
    ending = f"\nimport json, sys\nprint(json.dumps([name for name in {list(names)!r} if name in sys.modules]))"
    found = subprocess.run([sys.executable, "-c", code + ending], capture_output=True, text=True, cwd=cwd, check=False)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1]), found.stderr


def test_modules_are_imported_on_first_use_and_none_imports_a_heavy_package():
    code = """
import contml, sys
contml.InputError, contml.__version__
assert not {"torch", "numpy"} & sys.modules.keys()
import contml.losses.triplet  # one file, before the others
import torch
from contml.losses import LOSSES
x = torch.randn(8, 4, requires_grad=True)
contml.LogRatioLoss()(x, torch.rand(8)).backward()
contml.RAWLoss()(x, contml.ClassLabels([0, 0, 1, 1, 2, 2, 3, 3])[[0, 1, 2, 3, 4, 5, 6, 7]]).backward()
assert contml.testing.check_label_space and contml.data.Split and contml.labels.LabelSpace and contml.sampling
assert contml.testing is sys.modules["contml.testing"]
"""
    assert loaded_after(code, HEAVY)[0] == []


def listed(part):
    """The commands of a part of light_commands.txt, each with a text of its answer."""
    lines = (Path(__file__).with_name("light_commands.txt").read_text("utf-8").split("\n\n"))[part].splitlines()
    pairs = (line.replace("FILE", __file__).split(" || ") for line in lines)
    return [(command.split(), answer) for command, answer in pairs]


CASES = [(listed(0), ("torch", "numpy")), (listed(1), ("torch",))]


@pytest.mark.parametrize(("commands", "names"), CASES, ids=["mistyped names", "data of one's own"])
def test_help_and_mistakes_do_not_import_torch(tmp_path, commands, names):
    """One after the other in one process: what a command imports stays imported."""
    (tmp_path / "ages.csv").write_text("image,age\na.png,1\nb.png,2\n")
    code = f"""
import sys
from contml.app.cli import main
from contml.app.cli.options import complete_config
assert "pose/synthetic" in complete_config("pose/")
for arguments in {[arguments for arguments, _ in commands]!r}:
    sys.argv = ["contml", *arguments]
    try:
        main()
    except SystemExit:
        pass
    print("----", [name for name in {names!r} if name in sys.modules], file=sys.stderr, flush=True)
"""
    loaded, stderr = loaded_after(code, (*names, *HEAVY), cwd=tmp_path)
    answers = stderr.split("---- []\n")
    assert len(answers) == len(commands) + 1, f"torch is imported by the command after these: {answers}"
    for (arguments, message), answer in zip(commands, answers, strict=False):
        assert message in answer, arguments
    assert loaded == []


def test_every_exported_name_exists_and_is_known_to_type_checkers():
    tree = ast.parse(Path(contml.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    # A stub exports `from a import b as b`, and not `from a import b`.
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname for node in imports if node.module != "contml" for alias in node.names}
    modules = {alias.asname for node in imports if node.module == "contml" for alias in node.names}
    assert {"testing", "data", "labels", "losses"} <= modules <= set(dir(contml))
    assert {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)} == {"__version__"}
    assert len(typed) > 40
    assert typed == set(contml.__all__) - {"__version__"}
    assert typed <= set(dir(contml))
    for name in contml.__all__:
        assert getattr(contml, name) is not None
    with pytest.raises(AttributeError, match="module 'contml' has no attribute 'LogRatio'"):
        contml.LogRatio  # noqa: B018


def test_a_config_is_validated_without_heavy_packages_and_trained_without_the_compiler_of_torch():
    code = f"""
import sys
from contml.app.experiment import load
load("captions/flickr8k")  # what `contml check` does before it reads data
assert not {set(HEAVY) - {"llvmlite"}} & sys.modules.keys()
experiment = load("pose/synthetic", {TINY!r})
trainer = experiment.build_trainer(experiment.build_task())
trainer.fit()
assert trainer.steps_done
"""
    assert loaded_after(code, ("torch._dynamo", "torch.distributed.tensor"))[0] == []


def test_no_circle_of_imports_has_more_than_two_modules():
    """Imports of types and in functions count."""
    graph = grimp.build_graph("contml", cache_dir=None)
    names = sorted(graph.modules)
    index = {name: number for number, name in enumerate(names)}
    pairs = [(index[a], index[b]) for a in names for b in graph.find_modules_directly_imported_by(a)]
    edges = coo_array((np.ones(len(pairs)), np.transpose(pairs)), shape=(len(names), len(names)))
    circles = connected_components(edges, connection="strong")[1]
    assert [set(np.array(names)[circles == n].tolist()) for n in np.flatnonzero(np.bincount(circles) > 2)] == []


def test_a_task_of_another_package_is_code_of_that_package(tmp_path):
    (tmp_path / "people.py").write_text("print('people runs')\nTASKS = {'drawn': lambda: None}\n")
    (tmp_path / "people-1.dist-info").mkdir()
    (tmp_path / "people-1.dist-info" / "METADATA").write_text("Name: people\nVersion: 1\n")
    (tmp_path / "people-1.dist-info" / "entry_points.txt").write_text("[contml.tasks]\npeople = people:TASKS\n")
    code = "import contml\nfrom contml.app.experiment import task_table\nprint('people/drawn' in task_table())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert found.stdout.split("\n") == ["people runs", "True", ""]
