"""The cross-batch memory: equal to a slow memory, anchor by anchor; a ring buffer; resumable; bad input."""

import copy

import pytest
import torch
from support.losses import made
from support.refusals import refused, refuses

from contml.config import data_arguments
from contml.labels import ClassLabels, MatrixLabels, NumberLabels, VectorLabels
from contml.losses import LOSSES, LogRatioLoss, MarginLoss, TripletMarginLoss
from contml.losses.memory import CrossBatchMemory
from contml.mining import MINERS, VTHM

DIM, ITEMS, SIZE = 5, 30, 12
#: Losses that a memory takes, whose values add up anchor by anchor.
ADDITIVE = [name for name, loss in LOSSES.items() if loss.takes_memory and not loss.needs_whole_batch]
REFUSED = [name for name, loss in LOSSES.items() if not loss.takes_memory]
#: Integer classes without row numbers are what the test is about.
integer_classes = pytest.mark.filterwarnings("ignore:.*integer classes have no row numbers:UserWarning")


def space_of(loss):
    torch.manual_seed(2)
    return (
        VectorLabels(torch.randn(ITEMS, 2))
        if loss.requires in ("any", "graded")
        else ClassLabels(torch.arange(ITEMS) % 4)
    )


def batches(count=6, size=5, items=ITEMS, seed=0):
    """Embeddings and rows of some batches; rows come again, in a batch too, so that anchors meet themselves."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        rows = torch.randperm(items // 3, generator=generator)[:size]
        rows[0] = rows[-1]
        yield torch.randn(size, DIM, generator=generator, dtype=torch.float64), rows


class Slow:
    """A memory as a list of pairs (embedding, row); each anchor is compared with all but itself and its own row."""

    def __init__(self, loss, space, size):
        self.loss, self.space, self.size, self.items = loss, space, size, []

    def __call__(self, embeddings, rows, anchors=None):
        total = torch.zeros((), dtype=torch.float64)
        counts = torch.zeros((), dtype=torch.float64)
        for a in range(len(rows)) if anchors is None else anchors.tolist():
            others = [(x, row) for x, row in self.items if row != int(rows[a])]
            x = torch.cat((embeddings, *(x[None] for x, _ in others)))
            at = torch.cat((rows, torch.tensor([row for _, row in others], dtype=torch.int64)))
            value, count = self.loss.sums(self.loss.compare(x, self.space[at], torch.tensor([a])))
            total, counts = total + value, counts + count
        self.items = [*self.items, *((x, int(row)) for x, row in zip(embeddings.detach(), rows, strict=True))]
        self.items = self.items[-self.size :]
        return (total / torch.where(counts > 0, counts, 1)).sum()


@pytest.mark.parametrize("block_rows", [None, 2])
@pytest.mark.parametrize("name", ADDITIVE)
def test_each_anchor_meets_the_batch_and_what_is_remembered_but_itself(name, block_rows):
    loss = made(name, embedding_dim=DIM).double()
    space = space_of(loss)
    slow, memory = Slow(copy.deepcopy(loss), space, SIZE), CrossBatchMemory(loss, SIZE, 0)
    loss.block_rows = block_rows
    for embeddings, rows in batches(4):
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        a, b = memory(ours, space[rows]), slow(theirs, rows)
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
        gradients = [torch.autograd.grad(value, leaf)[0] for value, leaf in ((a, ours), (b, theirs))]
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-10)
    assert len(memory) == SIZE


# Draws depend on where the items stand.
@pytest.mark.parametrize("miner", [name for name, miner in MINERS.items() if "seed" not in data_arguments(miner)])
@pytest.mark.parametrize("anchors", [None, torch.tensor([3, 0])])
def test_miners_choose_among_the_remembered(miner, anchors):
    loss = made("contrastive", miner=MINERS[miner]()).double()
    space = space_of(loss)
    slow, memory = Slow(copy.deepcopy(loss), space, SIZE), CrossBatchMemory(loss, SIZE, 0)
    for embeddings, rows in batches():
        a, b = memory(embeddings, space[rows], anchors=anchors), slow(embeddings, rows, anchors)
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_drawn_negatives_leave_the_anchor_itself_out():
    loss = MarginLoss(miner=MINERS["distance_weighted"]()).double()
    space = ClassLabels(torch.arange(ITEMS))  # no positives: no draw, whatever is remembered
    memory = CrossBatchMemory(loss, SIZE, 0)
    for embeddings, rows in batches():
        assert memory(embeddings[1:], space[rows[1:]]).item() == 0  # the first item comes twice


@pytest.mark.parametrize("uncertainty", ["topk", "kl", "kl_grouped"])
def test_distributions_over_the_pairs_of_batch_and_memory(uncertainty):
    loss = LOSSES["dro"](uncertainty=uncertainty).double()
    space, memory = ClassLabels(torch.arange(ITEMS) % 4), CrossBatchMemory(loss, SIZE, 0)
    seen, rows = [], torch.arange(ITEMS).split(5)
    for (embeddings, _), at in zip(batches(3), rows, strict=False):  # no item comes twice
        seen.insert(0, (embeddings, at))
        x, every = (torch.cat(parts) for parts in zip(*seen, strict=True))
        expected = loss(x, space[every], anchors=torch.arange(5))
        torch.testing.assert_close(memory(embeddings, space[at]), expected, rtol=1e-10, atol=0)


@integer_classes
def test_with_row_numbers_an_anchors_own_remembered_image_is_left_out():
    # Each item has a class of its own: the only positive of an anchor is its own image from the batch before.
    classes = torch.arange(10, 15)
    space, loss = ClassLabels(classes), LOSSES["contrastive"]().double()
    first, second = (torch.randn(5, DIM, dtype=torch.float64) for _ in range(2))
    by_rows, by_ids = (CrossBatchMemory(loss, SIZE, 0) for _ in range(2))
    by_rows(first, space[range(5)])
    by_ids(first, classes)

    x = torch.cat((second, first))
    similarity = torch.nn.functional.normalize(second, dim=1) @ torch.nn.functional.normalize(x, dim=1).T
    apart = [[similarity[a, b] for b in range(10) if b % 5 != a] for a in range(5)]  # neither itself nor its own image
    pushed = torch.stack([(torch.stack(row) - loss.margin).relu().sum() for row in apart])
    torch.testing.assert_close(by_rows(second, space[range(5)]), pushed.mean(), rtol=1e-12, atol=0)
    pulled = torch.stack([similarity[a, a + 5] for a in range(5)])  # its own image counts as another of its class
    torch.testing.assert_close(by_ids(second, classes), (pushed - pulled).mean(), rtol=1e-12, atol=0)


def test_batches_of_a_subset_are_remembered_by_their_rows_in_the_root():
    space, kept = VectorLabels(torch.randn(2 * ITEMS, 2)), torch.randperm(2 * ITEMS)[:ITEMS]
    subset, anew = space[kept], space[kept].as_root()
    memories = [CrossBatchMemory(LogRatioLoss(), SIZE, 0) for _ in range(3)]
    for embeddings, rows in batches():
        values = [
            memory(embeddings, labels)
            for memory, labels in zip(memories, (space[kept[rows]], subset[rows], anew[rows]), strict=True)
        ]
        assert torch.equal(values[0], values[1])
        assert torch.equal(values[0], values[2])
        assert torch.equal(memories[0].rows, memories[1].rows)
        assert torch.equal(memories[0].rows[: len(memories[0])], kept[memories[2].rows[: len(memories[2])]])


def test_integer_classes_warn_once():
    classes = torch.tensor([0, 0, 1, 1])
    message = "integer classes have no row numbers, so an anchor's own image from an earlier batch counts as another"

    def several_steps(memory, labels):
        for step in range(5):
            memory.train(step != 1)
            memory(torch.randn(4, 3), labels)
        memory.reset()
        memory(torch.randn(4, 3), labels)

    for labels in (classes, classes.int(), classes.numpy()):
        with pytest.warns(UserWarning, match=message) as warnings:
            several_steps(CrossBatchMemory(TripletMarginLoss(), SIZE, 2), labels)
        assert len(warnings) == 1
        assert warnings[0].filename == __file__  # the line that called the memory
        assert "labels[rows] of a ClassLabels" in str(warnings[0].message)


@pytest.mark.parametrize("capacity", [4, 7])
def test_the_memory_is_a_ring(capacity):
    space, memory = ClassLabels(torch.arange(ITEMS)), CrossBatchMemory(TripletMarginLoss(), capacity, 0)
    written = []
    for size, first in ((3, 0), (3, 3), (3, 6), (10, 9), (2, 19)):  # within, to the end, over it, more than it holds
        embeddings, rows = torch.randn(size, DIM), torch.arange(first, first + size)
        memory(embeddings, space[rows])
        written = [*written, *zip(rows.tolist(), embeddings.tolist(), strict=True)][-capacity:]
        held = zip(memory.rows.tolist(), memory.embeddings.tolist(), strict=True)
        assert sorted(list(held)[: len(memory)]) == sorted(written)
    assert (memory.written, len(memory)) == (21, capacity)


def test_it_starts_after_its_steps():
    memory, alone = CrossBatchMemory(LogRatioLoss(), SIZE, 2), LogRatioLoss()
    space = VectorLabels(torch.randn(ITEMS, 2))
    same = []
    for embeddings, rows in batches(5):
        same.append(torch.equal(memory(embeddings, space[rows]), alone(embeddings, space[rows])))
    assert same == [True, True, True, False, False]  # the third call writes for the first time


def test_eval_mode_reads_and_does_not_write():
    space, memory = VectorLabels(torch.randn(ITEMS, 2)), CrossBatchMemory(LogRatioLoss(), SIZE, 0)
    (first, at), (second, rows) = batches(2)
    memory(first, space[at])
    before = copy.deepcopy(memory.state_dict())
    memory.eval()
    value = memory(second, space[rows])
    assert torch.equal(memory(second, space[rows]), value)
    assert not torch.equal(value, LogRatioLoss()(second, space[rows]))
    for key, tensor in memory.state_dict().items():
        assert torch.equal(tensor, before[key])
    memory.train()
    assert torch.equal(memory(second, space[rows]), value)
    assert memory.written == 10


@pytest.mark.parametrize("block_rows", [None, 2])
def test_several_calls_may_wait_for_one_backward(block_rows):
    space, drawn = VectorLabels(torch.randn(ITEMS, 2)), list(batches(5))

    def gradients(at_once):
        memory = CrossBatchMemory(LogRatioLoss(), 7, 0)
        memory.loss.block_rows = block_rows
        leaves = [embeddings.clone().requires_grad_() for embeddings, _ in drawn]
        values = []
        for leaf, (_, rows) in zip(leaves, drawn, strict=True):
            values.append(memory(leaf, space[rows]))
            if not at_once:
                values[-1].backward()
        if at_once:
            sum(values).backward()
        assert not memory.embeddings.requires_grad
        return [leaf.grad for leaf in leaves]

    for a, b in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("embedding_dim", [None, DIM])
def test_the_state_holds_all_of_it(embedding_dim):
    space, drawn = ClassLabels(torch.arange(ITEMS) % 4), list(batches(5))

    def fresh():
        return CrossBatchMemory(MarginLoss(), 7, 1, embedding_dim=embedding_dim)

    whole, half = fresh(), fresh()
    empty = copy.deepcopy(whole.state_dict())
    for embeddings, rows in drawn[:3]:
        whole(embeddings, space[rows])
        half(embeddings, space[rows])
    rest = fresh()
    rest.load_state_dict(half.state_dict())
    for embeddings, rows in drawn[3:]:
        assert torch.equal(rest(embeddings, space[rows]), whole(embeddings, space[rows]))
    rest.load_state_dict(empty)
    assert (len(rest), rest.steps) == (0, 0)
    assert rest.state_dict().keys() == {"embeddings", "rows", "_extra_state", "loss.boundary"}


def test_precision_is_that_of_the_loss():
    space, memory = VectorLabels(torch.randn(ITEMS, 2)), CrossBatchMemory(LogRatioLoss(), SIZE, 0)
    exact = CrossBatchMemory(LogRatioLoss(), SIZE, 0)
    for embeddings, rows in batches(3):
        half = embeddings.bfloat16().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = memory(half, space[rows])
        value.backward()
        assert (value.dtype, half.grad.dtype, memory.embeddings.dtype) == (torch.float32, torch.bfloat16, torch.float32)
        torch.testing.assert_close(
            value.detach().double(), exact(half.detach().double(), space[rows]), rtol=1e-4, atol=1e-5
        )
    assert exact.embeddings.dtype == torch.float64


@pytest.mark.parametrize(
    ("loss", "got"),
    [
        *((made(name, embedding_dim=DIM), "cannot use a memory") for name in REFUSED),
        (TripletMarginLoss(triplets="batch"), "cannot use a memory"),
        (CrossBatchMemory(LogRatioLoss()), "not a pair loss"),
        (torch.nn.MSELoss(), "not a pair loss"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_losses_that_cannot_use_a_memory(loss, got):
    refused(lambda: CrossBatchMemory(loss), type(loss).__name__, got, hint="omit the memory")


def test_labels_without_rows_or_of_another_root_are_refused():
    ages, memory = torch.arange(20.0), CrossBatchMemory(LogRatioLoss(), SIZE, 0)
    space, x = NumberLabels(ages), torch.randn(4, 3)
    for labels in (ages[:4], MatrixLabels(1 - torch.eye(4), torch.arange(4))):
        refused(lambda labels=labels: memory(x, labels), "labels", allowed="row numbers", hint="labels[rows]")
    assert memory.written == 0
    memory(x, space[range(4)])
    memory(x, NumberLabels(ages.clone())[range(4, 8)])  # the same labels once more, as after a restart
    again = CrossBatchMemory(LogRatioLoss(), SIZE, 0)
    again.load_state_dict(memory.state_dict())
    for each in (memory, again):
        for batch in (NumberLabels(ages[8:12]), NumberLabels(ages + 1)[range(4)]):
            with refuses("labels", "rows of NumberLabels(", "one label space", "labels[rows] of one label space"):
                each(x, batch)
    memory.reset()
    memory(x, NumberLabels(ages + 1)[range(4)])


@integer_classes
@pytest.mark.parametrize(
    ("embeddings", "labels", "fields"),
    [
        (torch.randn(4, 3), torch.zeros(4, 4), ("labels", "MatrixLabels(4 items;", "row numbers")),
        (torch.randn(4, 3), torch.ones(4, 4).bool(), ("labels", "torch.bool [4, 4]", "integer classes [4]", "~mask")),
        (torch.randn(4, 3), list("abca"), ("labels", "text (a)", "labels[rows] of a label space")),
        (torch.randn(4, 3), torch.randn(4), ("CrossBatchMemory", "graded", "0 and 1", "threshold")),
        (torch.randn(4, 3), torch.tensor([0, 1, 2]), ("labels", "3 labels for 4 embeddings")),
        (
            torch.randn(4, 3),
            ClassLabels(range(5))[[0, 1, 2, 3]],
            ("labels", "rows of ClassLabels(5 items", "integer classes", "reset()"),
        ),
        (torch.randn(4, 2), torch.tensor([0, 1, 2, 3]), ("embeddings", "2 dimensions", "3")),
    ],
)
def test_bad_input_is_refused(embeddings, labels, fields):
    memory = CrossBatchMemory(TripletMarginLoss(), SIZE, 0)
    memory(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))
    before = copy.deepcopy(memory.state_dict())
    refused(lambda: memory(embeddings, labels), *fields)
    assert all(torch.equal(tensor, before[key]) for key, tensor in memory.state_dict().items())


@integer_classes
def test_bad_anchors():
    memory = CrossBatchMemory(TripletMarginLoss(miner=VTHM()), SIZE, 0)
    classes = torch.tensor([0, 0, 1, 1])
    memory(torch.randn(4, 3), classes)
    with refuses("anchors", allowed="0 to 3"):
        memory(torch.randn(4, 3), classes, anchors=torch.tensor([4]))  # a place in the memory
    nothing = memory(torch.randn(4, 3, requires_grad=True), classes, anchors=torch.tensor([]))
    nothing.backward()
    assert nothing.item() == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none here")
@pytest.mark.parametrize("moved", [True, False])
def test_on_a_cuda_device_it_gives_what_it_gives_on_the_cpu(moved):
    spaces = {"cpu": VectorLabels(torch.randn(ITEMS, 2))}
    spaces["cuda"] = spaces["cpu"].to("cuda")
    memories = {device: CrossBatchMemory(LogRatioLoss(), SIZE, 0, embedding_dim=DIM) for device in spaces}
    for step, (embeddings, rows) in enumerate(batches()):
        if moved and step == 2:
            memories["cpu"].to("cuda"), memories["cpu"].to("cpu")
            memories["cuda"].load_state_dict(memories["cpu"].state_dict())
        a, b = (memories[d](embeddings.to(d), spaces[d][rows]).cpu() for d in spaces)
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    assert memories["cuda"].embeddings.is_cuda
