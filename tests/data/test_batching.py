import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard

from vanilla_transformer.data.batching import TokenBudgetSampler, token_budget_batches
from vanilla_transformer.data.synthetic import symbol_task


def test_worked_example():
    batches = token_budget_batches(np.array([3, 3, 4, 9]), 12, np.arange(4))
    assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3]]


@pytest.fixture
def lengths():
    return np.random.default_rng(0).integers(1, 60, size=(2000, 2))


def test_budget_holds_on_both_sides_and_every_pair_comes_once(lengths):
    sampler = TokenBudgetSampler(lengths, max_tokens=512, seed=3)
    batches = list(sampler)
    assert sorted(i for batch in batches for i in batch) == list(range(2000))
    assert all(len(batch) * lengths[batch].max() <= 512 for batch in batches)
    assert len(sampler) == len(batches)


def test_little_padding(lengths):
    longer = lengths.max(axis=1)
    padded = sum(len(batch) * longer[batch].max() for batch in TokenBudgetSampler(lengths, 512, seed=0))
    assert padded < 1.03 * longer.sum()


def test_epochs_differ_and_repeat(lengths):
    def epochs(seed):
        sampler = TokenBudgetSampler(lengths, 512, seed=seed)
        for epoch in (0, 1, 0):
            sampler.set_epoch(epoch)
            yield list(sampler)

    first, second, again = epochs(0)
    assert first == again and first != second
    assert {frozenset(b) for b in first} != {frozenset(b) for b in second}  # other neighbours, not only another order
    assert next(iter(epochs(1))) != first


def test_as_many_batches_as_updates_need(lengths):
    plain, sampler = TokenBudgetSampler(lengths, 500, seed=0), TokenBudgetSampler(lengths, 500, seed=0, multiple=7)
    assert len(plain) % 7
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert len(sampler) % 7 == 0
        assert sorted(index for batch in sampler for index in batch) == list(range(len(lengths)))
        assert max(len(batch) * lengths[batch].max() for batch in sampler) <= 500


@pytest.mark.parametrize("pairs, multiple, batches", [(2, 5, 5), (7, 3, 9), (6, 3, 6)])
def test_batches_of_one_pair_make_updates_of_all_processes(pairs, multiple, batches):
    """What cannot be halved is shown again: a process without a batch would wait for ever."""
    sampler = TokenBudgetSampler([300] * pairs, 500, seed=0, multiple=multiple)
    shown = [index for [index] in sampler]
    assert len(sampler) == len(shown) == batches
    assert sorted(shown[:pairs]) == list(range(pairs)) and shown[pairs:] == (shown * 2)[: batches - pairs]


def test_a_pair_that_exceeds_the_budget_is_named():
    with pytest.raises(ValueError, match=r"pair 1 has 600 tokens .*max_tokens=512"):
        TokenBudgetSampler([[3, 4], [5, 600]], 512, seed=0)


@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_symbol_tasks(task):
    splits = symbol_task(task, seed=1, sizes={"train": 300, "validation": 50, "test": 50})
    for split in splits.values():
        for source, target in zip(split["source"], split["target"], strict=True):
            assert target.split() == (source.split() if task == "copy" else source.split()[::-1])
    sources = [source for split in splits.values() for source in split["source"]]
    assert len(set(sources)) == len(sources) == 400
    assert {len(source.split()) for source in sources} == set(range(4, 13))
    assert (
        splits["test"]["source"]
        == symbol_task(task, 1, {"train": 300, "validation": 50, "test": 50})["test"]["source"]
    )


def test_sizes_that_are_not_given_have_a_default():
    splits = symbol_task("copy", 0, {"train": 30})
    assert {split: len(pairs) for split, pairs in splits.items()} == {"train": 30, "validation": 200, "test": 200}


def test_unknown_task():
    with pytest.raises(ValueError, match="unknown task 'sort': expected one of copy, reverse"):
        symbol_task("sort", 0)


def test_more_sequences_than_there_are():
    with pytest.raises(ValueError, match="26 different sequences"):
        symbol_task("copy", 0, {"train": 27}, min_length=1, max_length=1)


def test_processes_share_an_epoch(lengths):
    shards = [
        list(BatchSamplerShard(TokenBudgetSampler(lengths, 512, seed=0), 2, rank, even_batches=False))
        for rank in (0, 1)
    ]
    whole = list(TokenBudgetSampler(lengths, 512, seed=0))
    assert shards[0] == whole[0::2][: len(shards[0])] and shards[1] == whole[1::2]
    assert sum(map(len, shards)) in (len(whole), len(whole) - 1)  # an odd batch is left to the next epoch
