"""What the commands print: an evaluation says which split and weights it is of."""

import json
from dataclasses import replace

from support.fake_runs import poses

from contml.app.cli.printing import print_evaluation
from contml.evaluation import Evaluated, Selection

CHOSEN = Selection("label_distance@10", queries=300, best=0.41, last=0.42, difference=-0.01, interval=0.02)
BEST = Evaluated(poses(0.4), "test", "best", epoch=1, epochs=2, selection=CHOSEN)


def test_an_evaluation_names_split_and_weights(capsys):
    print_evaluation(BEST)
    first, *_, sentence, note = capsys.readouterr().out.splitlines()
    assert first == BEST.description == "test split, best weights (epoch 1 of 2, chosen on validation)"
    assert sentence.startswith("Mean label distance@10 is 0.40 times")
    assert note == f"note: {BEST.doubt}"
    print_evaluation(replace(BEST, checkpoint="last", epoch=2))
    first, *_, sentence = capsys.readouterr().out.splitlines()
    assert first == "test split, last weights (epoch 2)"
    assert sentence.startswith("Mean label distance@10 is 0.40 times")
    print_evaluation(replace(BEST, evaluation=replace(BEST.evaluation, skipped=1)))
    assert "images that could not be read and were excluded: 1" in capsys.readouterr().out


def test_an_evaluation_as_json_is_what_its_file_holds(capsys):
    print_evaluation(BEST, as_json=True)
    assert Evaluated.from_dict(json.loads(capsys.readouterr().out)) == BEST
