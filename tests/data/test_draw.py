"""Draws by a hash: an item's part depends on its own key, the seed and the share, not on the other items."""

import numpy as np
from hypothesis import given, settings, strategies as st
from support.refusals import refuses

from contml.data.draw import draw, positions

KEYS = [f"images/{number}.jpg" for number in range(400)]
keys_of = st.lists(st.text(max_size=5), min_size=1, max_size=60, unique=True)


def parts(keys, *arguments, **options):
    return dict(zip(keys, draw(keys, *arguments, **options).tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), keys=keys_of, share=st.floats(0.05, 0.5), seed=st.integers(0, 2**32))
def test_other_items_never_change_the_part_of_an_item(data, keys, share, seed):
    # 40 items for each part, so that neither is too small.
    of_position = dict(zip(KEYS, positions(KEYS, seed, "test").tolist(), strict=True))
    inside = [key for key in KEYS if of_position[key] < share][:5]
    outside = [key for key in KEYS if of_position[key] >= share][:5]
    if len(inside) < 5:
        return
    base = [*inside, *outside, *(key for key in keys if key not in KEYS)]
    before = parts(base, share, seed, "test", least=5)
    kept = [key for key in base if key in (*inside, *outside) or data.draw(st.booleans())]
    after = parts(data.draw(st.permutations([*kept, *KEYS[300:310]])), share, seed, "test", least=5)
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}


@settings(max_examples=60, deadline=None)
@given(keys=keys_of, least=st.integers(1, 5), share=st.floats(0.01, 0.99), seed=st.integers(0, 9))
def test_no_part_is_too_small(keys, least, share, seed):
    if len(keys) < 2 * least:
        with refuses("test", got=f"{len(keys)} different", allowed=f"{2 * least}"):
            draw(keys, share, seed, "test", least=least)
        return
    drawn = draw([*keys, *keys], share, seed, "test", least=least)
    assert np.array_equal(drawn[: len(keys)], drawn[len(keys) :])  # equal keys stay together
    assert least <= drawn[: len(keys)].sum() <= len(keys) - least


def test_positions_are_the_same_on_every_machine():
    expected = [0.9292277274430197, 0.45080164199095946, 0.41121628128724136]
    assert positions(["a", "images/ü.jpg", "\udcff"], 0, "test").tolist() == expected
    assert positions(["a"], 0, "validation")[0] != expected[0]
    assert np.flatnonzero(draw([f"{n}.jpg" for n in range(30)], 0.2, 7, "test")).tolist() == [5, 10, 13, 21]


def test_a_wrong_share():
    for share in (0, 1, -0.1, 1.5):
        with refuses("share", got=str(share), allowed="between 0 and 1"):
            draw(KEYS, share, 0, "test")
