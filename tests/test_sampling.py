"""The samplers: what is in a batch, how often an item comes, and going on from a state."""

import itertools
import time
from collections import Counter
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support import reference
from support.miniature import TINY
from support.refusals import refuses
from support.strategies import label_vectors

from contml import sampling
from contml._support.errors import InputError
from contml.app.experiment import load
from contml.labels import ClassLabels, NearestLabels, NumberLabels, TripletLabels, VectorLabels
from contml.losses.triplet import batch_triplets
from contml.sampling import ClassSampler, DenseSampler, JudgedSampler, TripletSampler, UniformSampler, fitting_options


def line(items):
    return NumberLabels(torch.arange(float(items)))


def epoch_of(sampler, epoch=0):
    return [sampler.batch(epoch, step) for step in range(len(sampler))]


@st.composite
def dense_samplers(draw):
    """(sampler, label distances): any sizes that fit, on labels with ties and copies."""
    space = VectorLabels(draw(label_vectors(size=draw(st.integers(2, 24)))))
    batch_size = draw(st.integers(2, len(space)))
    anchors = draw(st.integers(1, batch_size // 2))
    neighbours = draw(st.integers(1, batch_size // anchors - 1))
    options = {"all_anchors": draw(st.booleans()), "batches": draw(st.sampled_from([None, 1, 5]))}
    seed = draw(st.integers(0, 99))
    return DenseSampler(batch_size, anchors, neighbours, **options, labels=space, seed=seed), space.pairwise()


@settings(max_examples=60, deadline=None)
@given(made=dense_samplers())
def test_dense_batches_are_anchors_their_neighbours_and_a_rest(made):
    sampler, distances = made
    items, a = len(distances), sampler.anchors_per_batch
    nearest = reference.nearest(distances, sampler.neighbours.shape[1]).tolist()
    assert sampler.neighbours.tolist() == nearest
    assert sampler.anchors in (None, a)
    for epoch in (0, 1):
        anchors = []
        for rows in epoch_of(sampler, epoch):
            assert len(rows) == len(set(rows)) == sampler.batch_size
            anchors += rows[:a]
            group = list(dict.fromkeys([*rows[:a], *(n for row in rows[:a] for n in nearest[row])]))
            assert rows[: len(group)] == group
        if sampler.batches is None:  # the last batch is filled from the start
            assert (len(sampler), sorted(anchors[:items])) == (-(-items // a), list(range(items)))
            assert anchors[items:] == anchors[: len(anchors) - items]
        else:
            assert len(sampler) == sampler.batches


def chi_square(counts, expected):
    """Standard deviations by which a chi-square statistic is above or below what chance gives."""
    freedom = len(counts) - 1
    return (sum((count - expected) ** 2 / expected for count in counts) - freedom) / (2 * freedom) ** 0.5


def test_the_rest_of_a_dense_batch_is_uniform():
    # One anchor and its neighbour: batches of a given anchor have the other 18 items equally often.
    sampler = DenseSampler(8, 1, 1, batches=8000, labels=line(20))
    batches = epoch_of(sampler)
    assert sampler.neighbours[7].tolist() == [6]
    rest = Counter(row for rows in batches if rows[0] == 7 for row in rows[2:])
    assert (set(rest), rest.total()) == (set(range(20)) - {6, 7}, 400 * 6)
    assert abs(chi_square(list(rest.values()), 400 * 6 / 18)) < 4
    # By position as well: nothing sorts the rest.
    last = Counter(rows[-1] for rows in batches if rows[0] == 7)
    assert abs(chi_square([last[row] for row in set(range(20)) - {6, 7}], 400 / 18)) < 4
    assert len(Counter(tuple(sorted(rows[2:4])) for rows in batches if rows[0] == 7)) > 100  # of 153


@settings(max_examples=40, deadline=None)
@given(items=st.integers(2, 40), data=st.data())
def test_uniform_gives_each_item_once(items, data):
    batch_size = data.draw(st.integers(2, items))
    sampler = UniformSampler(batch_size, labels=line(items), seed=data.draw(st.integers(0, 9)))
    for epoch in (0, 1):
        rows = [row for batch in epoch_of(sampler, epoch) for row in batch]
        assert len(rows) == len(set(rows)) == items // batch_size * batch_size
        assert set(rows) <= set(range(items))
    # A second turn goes through the items again.
    sampler.batches = 2 * (items // batch_size)
    rows = [row for batch in epoch_of(sampler) for row in batch]
    assert max(Counter(rows).values()) <= 2
    assert [len(batch) for batch in epoch_of(sampler)] == [batch_size] * sampler.batches


def test_uniform_is_uniform():
    batches = epoch_of(UniformSampler(3, batches=4000, labels=line(10)))
    counts = Counter(row for rows in batches for row in rows)
    assert abs(chi_square([counts[row] for row in range(10)], 1200)) < 4
    first = Counter(rows[0] for rows in batches)
    assert abs(chi_square([first[row] for row in range(10)], 400)) < 4


@st.composite
def class_samplers(draw):
    """(sampler, class of each row): unequal classes, ids with gaps, fewer items than instances."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    ids = draw(st.permutations([3 * c + 1 for c, size in enumerate(sizes) for _ in range(size)]))
    classes = draw(st.integers(1, len(sizes)))
    most = len(ids) // classes
    least = 2 if classes == 1 else 1
    instances = draw(st.integers(least, max(most, least)))
    if not 2 <= classes * instances <= len(ids):
        ids, classes, instances = [*ids, 99, 99], 1, 2
    space = ClassLabels(ids)
    if draw(st.booleans()):
        space = ClassLabels([*ids, 0])[: len(ids)]  # class ids of the subset have a gap at 0
    return ClassSampler(classes, instances, labels=space, seed=draw(st.integers(0, 9))), ids


@settings(max_examples=60, deadline=None)
@given(made=class_samplers())
def test_class_batches_are_exactly_classes_times_instances(made):
    sampler, ids = made
    sizes = Counter(ids)
    assert sampler.anchors is None
    for epoch in (0, 1):
        for rows in epoch_of(sampler, epoch):
            assert len(rows) == sampler.classes * sampler.instances
            groups = [rows[start : start + sampler.instances] for start in range(0, len(rows), sampler.instances)]
            assert all(len({ids[row] for row in group}) == 1 for group in groups)
            assert len({ids[group[0]] for group in groups}) == sampler.classes
            for group in groups:  # an item comes twice only where the class is too small
                enough = sizes[ids[group[0]]] >= sampler.instances
                assert not enough or len(set(group)) == len(group)


def test_every_class_comes_once_a_turn():
    space = ClassLabels([i % 12 for i in range(48)])
    sampler = ClassSampler(4, 2, labels=space)
    assert len(sampler) == 6
    seen = [int(space.class_ids[row]) for rows in epoch_of(sampler) for row in rows[::2]]
    assert sorted(seen[:12]) == sorted(seen[12:]) == list(range(12))
    assert seen[:12] != seen[12:]
    assert all(len(set(rows)) == 8 for rows in epoch_of(ClassSampler(2, 4, labels=space))), "all items of a class"


@st.composite
def triplet_samplers(draw):
    """(sampler, class of each row): unequal classes with gaps, classes of one, more triplets than classes."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=2, max_size=6).filter(lambda sizes: max(sizes) > 1))
    ids = draw(st.permutations([3 * c + 1 for c, size in enumerate(sizes) for _ in range(size)]))
    triplets = draw(st.integers(1, len(ids) // 3))
    return TripletSampler(triplets, labels=ClassLabels(ids), seed=draw(st.integers(0, 9))), ids


@settings(max_examples=100, deadline=None)
@given(made=triplet_samplers())
def test_triplet_batches_are_anchors_positives_negatives(made):
    sampler, ids = made
    count, sizes = sampler.triplets, Counter(ids)
    paired = [c for c, size in sizes.items() if size > 1]
    assert (sampler.anchors, len(sampler)) == (count, len(ids) // (3 * count))
    for epoch in (0, 1):
        for rows in epoch_of(sampler, epoch):
            triplets = batch_triplets(len(rows)).T.tolist()
            assert len(triplets) == count
            for a, p, n in triplets:
                assert ids[rows[a]] == ids[rows[p]] != ids[rows[n]]
                assert rows[a] != rows[p]
            of_anchors = Counter(ids[row] for row in rows[:count])
            assert max(of_anchors.values()) - min(of_anchors.get(c, 0) for c in paired) <= 1
            # No item appears twice while there are others.
            pairs = rows[: 2 * count]
            for c, number in of_anchors.items():
                assert len({row for row in pairs if ids[row] == c}) == min(2 * number, sizes[c])
            for i, row in enumerate(rows[2 * count :]):
                before = {*pairs, *rows[2 * count : 2 * count + i]}
                unused = [r for r in range(len(ids)) if r not in before and ids[r] != ids[rows[i]]]
                assert row in unused or not unused
                # Nor does a pair of classes.
                seen = {(ids[rows[j]], ids[rows[2 * count + j]]) for j in range(i)}
                possible = [r for r in unused if (ids[rows[i]], ids[r]) not in seen]
                assert row in possible or not possible


def test_the_classes_of_triplets_are_each_used_once_a_pass():
    labels = ClassLabels([i % 13 for i in range(12 * 13)] + [13, 14])  # two classes of one: only negatives
    sampler = TripletSampler(4, batches=9, labels=labels)
    anchors = [int(labels.class_ids[row]) for rows in epoch_of(sampler) for row in rows[:4]]
    passes = [anchors[start : start + 12] for start in (0, 12, 24)]
    assert all(len(set(classes)) == 12 and max(classes) < 13 for classes in passes)
    assert passes[0] != passes[1] != passes[2]


def test_the_items_of_triplets_are_uniform():
    # A class of 12 and one of 4: every other item is a positive, or a negative, equally often.
    batches = epoch_of(TripletSampler(1, batches=8000, labels=ClassLabels([0] * 12 + [1] * 4 + [2] * 2)))
    pairs = Counter((a, p) for a, p, _ in batches if a < 12)
    assert len(pairs) == 12 * 11
    assert abs(chi_square(list(pairs.values()), pairs.total() / len(pairs))) < 4
    negatives = Counter(n for a, _, n in batches if 12 <= a < 16)
    assert set(negatives) == {*range(12), 16, 17}
    assert abs(chi_square(list(negatives.values()), negatives.total() / 14)) < 4


FIVE = ClassLabels([i % 5 for i in range(20)])
MADE = {
    "triplets": partial(TripletSampler, 2, labels=FIVE),
    "dense": partial(DenseSampler, 8, 3, 1, labels=line(20)),
    "uniform": partial(UniformSampler, 3, labels=line(20)),
    "classes": partial(ClassSampler, 2, 2, labels=FIVE),
}


@pytest.mark.parametrize("name", MADE)
def test_set_epoch_goes_to_the_first_batch_of_an_epoch(name):
    sampler = MADE[name]()
    next(iter(sampler))
    for epoch in (2, 0):
        sampler.set_epoch(epoch)
        assert list(sampler) == epoch_of(MADE[name](), epoch)
    assert sampler.sampler is sampler  # Lightning looks for `set_epoch` there


@pytest.mark.parametrize("name", MADE)
def test_the_next_epoch_follows_if_nobody_asks_for_a_batch_after_the_last(name):
    sampler, steps = MADE[name](), len(MADE[name]())
    for epoch in range(3):
        assert [rows for _, rows in zip(range(steps), sampler, strict=False)] == epoch_of(MADE[name](), epoch)
        assert sampler.state_dict() == {"seed": 0, "epoch": epoch + 1, "step": 0}
    resumed = MADE[name](seed=99)
    resumed.load_state_dict({"seed": 0, "epoch": 1, "step": steps})
    assert (resumed.state_dict(), list(resumed)) == ({"seed": 0, "epoch": 2, "step": 0}, epoch_of(MADE[name](), 2))


@pytest.mark.parametrize("name", MADE)
def test_seeds_and_epochs_differ_and_global_state_does_not_count(name):
    sampler = MADE[name]()
    torch.manual_seed(0)
    first = epoch_of(sampler)
    torch.manual_seed(1)
    assert epoch_of(MADE[name]()) == first
    assert epoch_of(sampler, 1) != first
    assert epoch_of(MADE[name](seed=1)) != first
    assert (len(MADE[name](batches=2)), epoch_of(MADE[name](batches=2))) == (2, first[:2])


@pytest.mark.parametrize("name", MADE)
def test_an_order_is_drawn_once_for_all_batches_of_a_pass(name, monkeypatch):
    drawn, sampler = [], MADE[name](batches=2)
    monkeypatch.setattr(sampler, "_random", lambda *key, draw=sampler._random: drawn.append(key[0]) or draw(*key))
    for _ in range(2):
        list(sampler)
    assert drawn.count(sampling._ORDER) == 2


CLASSES = ClassLabels([0, 0, 1, 1, 2, 2])
FEW, TWO = "at least 8, for 2 anchors with 3 neighbours", "one of them with two items"


def triplets_of(classes):
    return TripletSampler(1, labels=ClassLabels(classes))


@pytest.mark.parametrize(("make", "fields"), [
    (lambda: UniformSampler(10, labels=line(9)), ("batch_size", "10", "at most 9")),
    (lambda: DenseSampler(6, 2, 3, labels=line(9)), ("batch_size", "6", FEW)),
    (lambda: ClassSampler(2, 2, labels=line(9)), ("ClassSampler", "graded", "classes", "ClassLabels")),
    (lambda: ClassSampler(4, 1, labels=CLASSES), ("classes", "4", "at most 3")),
    (lambda: ClassSampler(2, 0, labels=CLASSES), ("instances", "0", "at least 1")),
    (lambda: TripletSampler(3, labels=CLASSES), ("3 x triplets", "9", "at most 6")),
    (lambda: JudgedSampler(2, labels=judged_triplets(50, 300)), ("batch_size", "2", "3")),
    (lambda: triplets_of([0, 0, 0]), ("TripletSampler", "classes: 1, with two items: 1", "two classes")),
    (lambda: triplets_of([0, 1, 2]), ("TripletSampler", "classes: 3, with two items: 0", TWO)),
])  # fmt: skip
def test_bad_options_are_refused(make, fields):
    with refuses(*fields):
        make()


@settings(max_examples=80, deadline=None)
@given(classes=st.lists(st.integers(0, 4), min_size=4, max_size=20), sizes=st.tuples(*[st.integers(1, 30)] * 3))
def test_fitting_options_are_the_largest_batches_that_items_fill(classes, sizes):
    first, second, third = sizes
    labels = ClassLabels([0, 1, *classes])
    neighbours = min(third, first)
    anchors = min(second, (first + 1) // (1 + neighbours))
    wanted = {
        UniformSampler: {"batch_size": first + 1},
        DenseSampler: {"batch_size": first + 1, "anchors_per_batch": anchors, "neighbours": neighbours},
        ClassSampler: {"classes": first + 1, "instances": second},
        TripletSampler: {"triplets": first},
    }
    for sampler, options in wanted.items():
        fitting = fitting_options({**options, "batches": 2}, labels)
        assert len(sampler(**fitting, labels=labels).batch(0, 0)) <= len(labels)
        assert all(1 <= fitting[name] <= options[name] for name in options)
        with suppress(InputError):
            sampler(**options, labels=labels)
            assert fitting == {**options, "batches": 2}  # what fits is not changed


@pytest.fixture
def slow(monkeypatch):
    """Half a minute passes whenever somebody looks at the clock."""
    now = itertools.count(0.0, 30.0)
    monkeypatch.setattr("contml._support.progress.time.monotonic", lambda: next(now))


@pytest.mark.parametrize("make", [DenseSampler, NearestLabels])
def test_a_long_search_for_neighbours_shows_how_far_it_is(make, slow, capsys, tmp_path):
    space = NumberLabels(torch.arange(2100.0))
    given = {"labels": space} if make is DenseSampler else {"space": space}

    def shown(**options):
        make(**given, **options)
        out, err = capsys.readouterr()
        assert out == ""
        return err

    assert shown() == ""
    assert "nearest neighbours: 1,024 of 2,100, " in shown(quiet=False, cache=tmp_path)
    assert list(tmp_path.iterdir())
    # What the cache has is there at once: one call, and no progress to report.
    assert shown(quiet=False, cache=tmp_path) == ""


def test_a_training_shows_how_far_the_neighbours_are_once(slow, capsys, monkeypatch):
    experiment = load("captions/synthetic", [*TINY, "sampler.all_anchors=false", "model.backbone=small_cnn"])
    task = experiment.build_task()
    for quiet, rank, lines in ((False, "0", 1), (True, "0", 0), (False, "1", 0)):
        monkeypatch.setenv("RANK", rank)
        capsys.readouterr()
        experiment.build_trainer(task, quiet=quiet)
        assert capsys.readouterr().err.count("nearest neighbours: all 40") == lines


# -- triplets ----------------------------------------------------------------------------------------------------------


def judged_triplets(items, count, seed=0):
    random = np.random.default_rng(seed)
    rows = np.stack([random.choice(items, 3, replace=False) for _ in range(count)])
    return TripletLabels(rows, random.integers(0, 2, count), items)


def test_every_triplet_is_whole_in_a_batch_of_each_epoch_and_about_equally_often():
    labels = judged_triplets(200, 1500)
    sampler = JudgedSampler(30, labels=labels, seed=1)
    drawn = Counter()
    for epoch in range(4):
        of_epoch = Counter()
        for step in range(len(sampler)):
            rows = sampler.batch(epoch, step)
            assert len(rows) == len(set(rows)) == 30
            of_epoch.update(tuple(np.array(rows)[t]) for t in labels[rows].within().positions.numpy())
        assert of_epoch.keys() == {tuple(triplet) for triplet in labels.triplets}
        drawn += of_epoch
    counts = np.array(list(drawn.values()))
    assert counts.std() < 0.4 * counts.mean()


@pytest.mark.parametrize(("items", "triplets"), [(1000, 2000), (2000, 8000)])
def test_triplets_that_share_an_item_are_drawn_together_but_not_of_one_item_alone(items, triplets):
    labels = judged_triplets(items, triplets)
    sampler = JudgedSampler(96, labels=labels)
    whole = [labels[sampler.batch(0, step)].within().positions.numpy() for step in range(20)]
    assert min(map(len, whole)) > 1.2 * 96 // 3  # of items drawn alone there are 35 to 37
    for positions in whole:
        assert np.bincount(positions.ravel()).max() < 0.8 * len(positions)  # no item is in most of them


@pytest.mark.slow
def test_a_hundred_thousand_triplets_are_planned_in_seconds():
    random = np.random.default_rng(0)
    rows = random.integers(0, 20000, (100_000, 3)) * 3 + np.arange(3)  # different items
    labels = TripletLabels(rows, random.integers(0, 2, 100_000), 60_000)
    start = time.process_time()
    sampler = JudgedSampler(96, labels=labels)
    for step in range(50):
        assert len(labels[sampler.batch(0, step)].within()) >= 32
    assert time.process_time() - start < 20


def test_the_first_batch_of_an_epoch_does_not_plan_the_others(monkeypatch):
    groups, fitting = [], JudgedSampler._fitting
    monkeypatch.setattr(JudgedSampler, "_fitting", lambda *arguments: groups.append(1) or fitting(*arguments))
    JudgedSampler(30, labels=judged_triplets(200, 3000)).batch(0, 0)
    assert 10 <= len(groups) <= 200
