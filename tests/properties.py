"""What must hold of every model, as functions that raise `AssertionError`: `test_mutations.py` breaks the code on
purpose and sees that the same function notices."""

import torch
from family import batch, ids_of, padded, with_labels
from tiny import random_ids

from vanilla_transformer.data.batching import TokenBudgetSampler

CLOSE = dict(atol=5e-6, rtol=1e-5)


def architecture_of(model) -> str:
    if model.config.is_encoder_decoder:
        return "encoder-decoder"
    return "decoder-only" if model.can_generate() else "encoder-only"


def changed(ids: torch.Tensor, column: int) -> torch.Tensor:
    """Another token in one column of (B, L)."""
    other = ids.clone()
    other[:, column] = 3 + (other[:, column] - 2) % 40
    return other


def eager_is_sdpa(model):
    """Two kernels, one formula."""
    inputs = batch(architecture_of(model))
    outputs = {}
    for attn in ("sdpa", "eager"):
        model.set_attn_implementation(attn)
        outputs[attn] = model(**inputs).logits
    model.set_attn_implementation("sdpa")
    torch.testing.assert_close(outputs["sdpa"], outputs["eager"], **CLOSE)


def nothing_leaks_from_the_future(model):
    """Token t changes what is said from t on, and nothing before it."""
    inputs = batch(architecture_of(model))
    before, key = model(**inputs).logits, ids_of(model)
    after = model(**{**inputs, key: changed(inputs[key], 3)}).logits
    torch.testing.assert_close(after[:, :3], before[:, :3], **CLOSE)
    assert (after[:, 3:] - before[:, 3:]).abs().amax(-1).min() > 1e-5


def labels_are_shifted_once(model):
    """Teacher forcing: label t is not seen where it is predicted, and is seen at the next step."""
    source, labels = random_ids(2, 6), random_ids(2, 5)
    before = model(input_ids=source, labels=labels).logits
    after = model(input_ids=source, labels=changed(labels, 2)).logits
    torch.testing.assert_close(after[:, :3], before[:, :3], **CLOSE)
    assert (after[:, 3] - before[:, 3]).abs().max() > 1e-5


def an_encoder_sees_both_ways(model):
    source = random_ids(2, 6)
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model.model
    before = encoder(source).last_hidden_state
    moved = (encoder(changed(source, 4)).last_hidden_state - before).abs().amax(-1)
    assert moved.min() > 1e-5


def padding_changes_nothing(model):
    """On the left or on the right of a source and of a decoder's input, mixed in one batch."""
    inputs = batch(architecture_of(model))
    expected = model(**inputs).logits
    around = dict(left=[2, 0, 1], right=[0, 3, 1])
    given = {}
    for name, mask in (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask")):
        if name in inputs:
            given[name], given[mask] = padded(inputs[name], **around)
    kept = given["decoder_attention_mask" if "decoder_attention_mask" in given else "attention_mask"].bool()
    torch.testing.assert_close(model(**given).logits[kept], expected.flatten(0, 1), **CLOSE)


def batch_is_singles(model):
    """A sentence's logits do not depend on its neighbours."""
    inputs = batch(architecture_of(model))
    together = model(**inputs).logits
    for row in range(3):
        single = model(**{name: ids[row : row + 1] for name, ids in inputs.items()}).logits
        torch.testing.assert_close(together[row : row + 1], single, **CLOSE)


def an_empty_row_is_finite(model):
    """A row of padding alone, as the last batch of a sharded epoch may have it, gives numbers and gradients."""
    architecture = architecture_of(model)
    for attn in ("sdpa", "eager"):
        model.set_attn_implementation(attn)
        inputs = batch(architecture)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][1] = 0
        logits = model(**inputs).logits
        assert logits.isfinite().all()
        model.zero_grad()
        logits.sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())


def attention_rows_sum_to_one(model):
    """Also in training mode, with dropout on the weights: what is returned is the softmax itself."""
    model.train()
    outputs = model(**batch(architecture_of(model)), output_attentions=True)
    kinds = [name for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
             if getattr(outputs, name, None)]  # fmt: skip
    assert len(kinds) == (3 if model.config.is_encoder_decoder else 1)
    for name in kinds:
        assert len(getattr(outputs, name)) == 2
        for weights in getattr(outputs, name):
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), **CLOSE)
    model.eval()


def cache_changes_nothing(model):
    """The logits of every step, greedily and by beam search, from prompts of unequal length."""
    prompt = torch.tensor([[1, 9, 8, 7, 6], [0, 0, 1, 5, 4]])
    if model.config.is_encoder_decoder:
        given = dict(inputs=random_ids(2, 6), decoder_input_ids=prompt, decoder_attention_mask=prompt.ne(0).long())
    else:
        given = dict(inputs=prompt, attention_mask=prompt.ne(0).long())
    for beams in (1, 3):
        options = dict(num_beams=beams, max_new_tokens=6, min_new_tokens=4, do_sample=False)
        options |= dict(output_logits=True, return_dict_in_generate=True)
        outputs = [model.generate(**given, use_cache=cached, **options) for cached in (True, False)]
        assert torch.equal(outputs[0].sequences, outputs[1].sequences)
        for cached, uncached in zip(outputs[0].logits, outputs[1].logits, strict=True):
            torch.testing.assert_close(cached, uncached, **CLOSE)


def a_big_batch_is_its_parts(model, label_smoothing: float = 0.1):
    """Loss and gradients of one batch equal those of its parts, accumulated: of 4 x 8 sentences, and of batches by a
    budget of tokens, where each part has its own number of sentences and of labels."""
    lengths = torch.randint(2, 9, (32,))
    beyond = torch.arange(8) >= lengths[:, None]
    ids = random_ids(32, 8).masked_fill(beyond, 0)
    inputs = {"input_ids": ids, "attention_mask": (~beyond).long(), "labels": ids.masked_fill(beyond, -100)}
    by_size = [list(range(start, start + 8)) for start in range(0, 32, 8)]
    by_budget = TokenBudgetSampler(lengths.numpy(), max_tokens=40, seed=0).batches
    assert len(set(map(len, by_budget))) > 1
    for rows in (by_size, by_budget):
        cut = [(part, int(lengths[part].max())) for part in rows]
        equal_in_parts(
            model,
            inputs,
            [{n: v[part, :longest] for n, v in inputs.items()} for part, longest in cut],
            label_smoothing,
        )


def equal_in_parts(model, inputs: dict, parts: list[dict], label_smoothing: float):
    model.train()
    total = sum((part["labels"] != -100).sum() for part in parts)
    model.zero_grad()
    whole = model(**inputs, label_smoothing=label_smoothing, num_items_in_batch=total).loss
    whole.backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    losses = []
    for part in parts:
        loss = model(**part, label_smoothing=label_smoothing, num_items_in_batch=total).loss
        loss.backward()
        losses.append(loss.detach())
    torch.testing.assert_close(sum(losses), whole.detach(), **CLOSE)
    torch.testing.assert_close([p.grad for p in model.parameters()], expected, **CLOSE)


def tied_weights_move_together(model):
    """Writing into the embedding changes the projection: one matrix, not two that are equal."""
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    with torch.no_grad():
        embedding[7] += 1
    assert torch.equal(head[7], embedding[7])


def every_weight_moves(model):
    """One step of training leaves no parameter where it was."""
    inputs = with_labels(architecture_of(model))
    model.train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    model(**inputs).loss.backward()
    optimizer.step()
    still = [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    assert not [name for name in still if not name.endswith("k_proj.bias")]  # which moves all scores of a query alike


def reload_is_bit_equal(model, folder, **load):
    """Saved and loaded again, the same bits come out; tables that are not saved are made anew."""
    inputs = batch(architecture_of(model))
    expected = model(**inputs).logits
    model.save_pretrained(folder)
    reloaded = type(model).from_pretrained(folder, **load).eval()
    assert torch.equal(reloaded(**inputs).logits.to(expected.device), expected)


def positions_go_on(model):
    """Beyond the length that a table was made with, as if it had been made for that length."""
    length = 3 * model.config.max_position_embeddings
    longer = type(model)(type(model.config)(**{**model.config.to_dict(), "max_position_embeddings": length})).eval()
    longer.load_state_dict(model.state_dict())
    inputs = batch(architecture_of(model), source=length, target=length)
    assert torch.equal(model(**inputs).logits, longer(**inputs).logits)


def tokens_and_positions_are_of_one_size(model):
    """After the scaling by sqrt(d_model), neither drowns the other."""
    stack = model.get_encoder() if model.config.is_encoder_decoder else model.model
    zeros = torch.zeros(1, 50, model.config.d_model)
    positions = stack.positions.embed(zeros, torch.arange(50)[None], 50).std().item()
    tokens = (stack.embed_tokens(random_ids(1, 50)) * stack.embed_scale).std().item()
    assert 0.5 < positions / tokens < 2


def only_distances_count(model):
    """Rotary and relative positions: everything 7 places later is the same text."""
    ids = random_ids(2, 6)
    positions = torch.arange(6)[None]
    outputs = [model(ids, position_ids=positions + shift).logits for shift in (0, 7)]
    torch.testing.assert_close(outputs[1], outputs[0], **CLOSE)
    assert (model(ids.flip(1)).logits - outputs[0].flip(1)).abs().max() > 1e-4  # and order does count


def a_window_slides(model):
    """A token sees itself and the W - 1 before it, in each layer."""
    ids, window = random_ids(2, 8), model.config.sliding_window
    moved = (model(changed(ids, 1)).logits - model(ids).logits).abs().amax(-1) > 1e-6
    reach = 1 + model.config.num_hidden_layers * (window - 1)
    assert moved.any(0).tolist() == [1 <= position <= reach for position in range(8)]


def a_trained_model_reads_its_source(model, sources: torch.Tensor, labels: torch.Tensor):
    """The sources of other sentences make its targets a surprise: in nats, more than twice the loss."""
    right = model(input_ids=sources, labels=labels).loss
    wrong = model(input_ids=sources.roll(1, 0), labels=labels).loss
    assert wrong > 2 * right
