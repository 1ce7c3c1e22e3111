"""The JSON Schema of configs accepts what `validate` accepts, and refuses mistakes where an editor can mark them."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml
from support.refusals import refuses

from contml.app.cli.commands import schema_
from contml.app.experiment import config_names, config_text, load, schema
from contml.config import read, resolved, validate
from contml.config.json_schema import json_schema


@pytest.fixture(scope="module")
def validator():
    found = json_schema(schema())
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(json.loads(json.dumps(found)))


def test_the_command_writes_it(validator, tmp_path, capsys):
    schema_(tmp_path / "contml.schema.json")
    assert json.loads((tmp_path / "contml.schema.json").read_text()) == validator.schema
    assert "$schema=" in capsys.readouterr().out
    with refuses("contml.schema.txt"):
        schema_(tmp_path / "contml.schema.txt")


@pytest.mark.parametrize("name", config_names())
def test_every_config_is_valid_also_with_all_defaults(name, validator):
    validator.validate(yaml.safe_load(config_text(name)))
    if name not in ("table/default", "table/classes"):  # these need a table before they are resolved
        validator.validate(resolved(load(name).config))


VALID = [
    "loss: null",
    "loss: my_module:MyLoss",
    "loss: {name: my_module:MyLoss, anything: 3}",
    "transform: {scale_jitter: 3}",
    "transform: torchvision:RandAugment",
    "optimizer: {lr: 1}",
    "task: {name: table/file, data: a.csv, labels: {price: number:log, room: {kind: map, classes: 11}}}",
    "training: {val_fold: null}",
]


@pytest.mark.parametrize("text", VALID)
def test_accepted(text, validator):
    validator.validate(yaml.safe_load(text))


#: A mistake, and the path of the entry that is marked.
WRONG = [
    ("losss: log_ratio", "losss"),
    ("loss: log_ration", "loss"),
    ("loss: {name: log_ratio, margin: 1}", "margin"),
    ("loss: {name: log_ratio, squared: 1}", "squared"),
    ("training: {epochs: -1}", "epochs"),
    ("training: {epochs: 1.5}", "epochs"),
    ("training: {epoch: 1}", "epoch"),
    ("optimizer: {lr: fast}", "lr"),
    ("optimizer: {lr: -1}", "lr"),
    ("seed: -1", "seed"),
    ("seed: 4294967296", "seed"),
    ("task: null", "task"),
    ("task: {name: table/file, data: a.csv, labels: {room: {kind: map, scale: log}}}", "scale"),
]


@pytest.mark.parametrize(("text", "marked"), WRONG)
def test_refused(text, marked, validator):
    errors = list(validator.iter_errors(yaml.safe_load(text)))
    assert errors

    def deepest(error):
        return [error, *(below for child in error.context or () for below in deepest(child))]

    places = [f"{'.'.join(map(str, each.absolute_path))} {each.message}" for e in errors for each in deepest(e)]
    assert any(marked in place for place in places), places


@pytest.mark.parametrize(("text", "marked"), WRONG)
def test_what_it_refuses_a_config_refuses(text, marked, tmp_path):
    from contml import InputError

    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=marked.partition(".")[0]):
        validate(read(path), {key: entry for key, entry in schema().items() if key in text or key == "loss"})
