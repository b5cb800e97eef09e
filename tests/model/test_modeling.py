import inspect
import re

import pytest
import torch
import torch.nn.utils.prune
from family import batch as batch_of
from family import build
from safetensors.torch import load_file
from tiny import random_ids, tiny_config, tiny_model
from torch._dynamo.testing import CompileCounter
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq
from transformers.models.auto import modeling_auto

from vanilla_transformer import VanillaTransformerForSeq2SeqLM, VanillaTransformerModel
from vanilla_transformer.model import attention, layers, loss, positions
from vanilla_transformer.model.layers import Dropout
from vanilla_transformer.model.linear import linear
from vanilla_transformer.model.loss import cross_entropy, shift_right

TYING = [  # tie_word_embeddings, share_encoder_decoder_embeddings, decoder_vocab_size, embedding matrices in the file
    (True, True, 50, {"model.encoder.embed_tokens.weight"}),
    (True, False, 40, {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}),
    (False, True, 50, {"model.encoder.embed_tokens.weight", "lm_head.weight"}),
    (False, False, 40, {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"}),
]
VOCABULARY = re.compile(r"embed_tokens|lm_head")


def batch(vocab_size=50):
    return dict(
        input_ids=random_ids(3, 6),
        attention_mask=torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 6]),
        labels=torch.cat([random_ids(3, 4, vocab_size=vocab_size), torch.tensor([[2], [-100], [2]])], 1),
    )


@pytest.mark.parametrize("registry", [layers.RESIDUALS, layers.NORMS, layers.FEED_FORWARDS, positions.POSITIONS])
def test_every_choice_quotes_its_equation_and_source(registry):
    for module in registry.values():
        assert re.search(r"=|\(x", module.__doc__) and re.search(r"section|equation|paper", module.__doc__)


@pytest.mark.parametrize("thing", [attention.scaled_dot_product_attention, attention.MultiHeadAttention,
                                   attention.CrossAttention, layers.EncoderLayer, layers.DecoderLayer, cross_entropy,
                                   VanillaTransformerModel, VanillaTransformerForSeq2SeqLM])  # fmt: skip
def test_every_part_names_its_place_in_the_paper(thing):
    assert re.search(r"section \d|equation \d|Figure 1", inspect.getdoc(thing))


@pytest.mark.parametrize("tie, share, target_vocab, matrices", TYING)
def test_tying_round_trips(tie, share, target_vocab, matrices, tmp_path):
    choice = dict(tie_word_embeddings=tie, share_encoder_decoder_embeddings=share, decoder_vocab_size=target_vocab)
    model = tiny_model(**choice)
    inputs = batch(target_vocab)
    expected = model(**inputs).logits
    model.save_pretrained(tmp_path)
    assert {name for name in load_file(tmp_path / "model.safetensors") if VOCABULARY.search(name)} == matrices
    reloaded, report = VanillaTransformerForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert torch.equal(reloaded(**inputs).logits, expected)

    encoder, decoder, head = reloaded.model.encoder.embed_tokens, reloaded.model.decoder.embed_tokens, reloaded.lm_head
    with torch.no_grad():
        encoder.weight[5] = 100.0
        assert (decoder.weight[5, 0] == 100) == share
        decoder.weight[6] = 200.0
        assert (head.weight[6, 0] == 200) == tie


@pytest.mark.parametrize("tie, share, target_vocab, matrices", TYING)
def test_vocabularies_resize(tie, share, target_vocab, matrices, tmp_path):
    choice = dict(tie_word_embeddings=tie, share_encoder_decoder_embeddings=share, decoder_vocab_size=target_vocab)
    model = tiny_model(**choice)
    inputs = batch(target_vocab)
    before = model(**inputs).logits
    model.resize_token_embeddings(57)
    wanted = 57 if share else target_vocab
    assert (model.config.vocab_size, model.config.decoder_vocab_size) == (57, wanted)
    assert model(**inputs).loss.isfinite()
    torch.testing.assert_close(model(**inputs).logits[..., :target_vocab], before)
    if not share:
        model.resize_decoder_token_embeddings(45)
        assert (model.config.vocab_size, model.config.decoder_vocab_size) == (57, 45)
        assert model(**inputs).logits.shape[-1] == 45
        torch.testing.assert_close(model(**inputs).logits[..., :target_vocab], before)
    model.save_pretrained(tmp_path)
    assert torch.equal(AutoModelForSeq2SeqLM.from_pretrained(tmp_path)(**inputs).logits, model(**inputs).logits)


def test_decoder_resize_is_refused_with_one_vocabulary():
    with pytest.raises(ValueError, match="resize_token_embeddings"):
        tiny_model().resize_decoder_token_embeddings(60)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"device_map": "cpu"}])
def test_reload_is_bit_equal(dtype, options, tmp_path):
    model = tiny_model().to(dtype)
    model.save_pretrained(tmp_path)
    reloaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=dtype, **options)
    inputs = batch()
    assert torch.equal(reloaded(**inputs).logits, model(**inputs).logits)
    assert not any("positions" in name for name in load_file(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative"])
def test_weights_that_wait_on_the_disk(positions, tmp_path):
    model, inputs = tiny_model(positions=positions), batch()
    model.save_pretrained(tmp_path / "model")
    options = dict(device_map="auto", max_memory={"cpu": "2KB"}, offload_folder=tmp_path / "waiting")
    offloaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model", **options)
    assert offloaded.device.type == "meta"
    torch.testing.assert_close(offloaded(**inputs).logits, model(**inputs).logits)
    del inputs["labels"]
    assert torch.equal(offloaded.generate(**inputs), model.generate(**inputs))


def test_an_encoder_or_decoder_is_saved_alone(tmp_path):
    model, inputs = tiny_model(), batch()
    encoder = model.get_encoder()
    for part, name in ((encoder, "encoder"), (model.get_decoder(), "decoder")):
        part.save_pretrained(tmp_path / name)
    again = type(encoder).from_pretrained(tmp_path / "encoder", config=model.config)
    given = dict(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
    assert torch.equal(again(**given)[0], encoder(**given)[0])
    assert (tmp_path / "decoder" / "model.safetensors").exists()


def test_auto_classes_know_the_package(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "vanilla_transformer"
    assert isinstance(AutoModel.from_pretrained(tmp_path), VanillaTransformerModel)
    assert isinstance(AutoModelForSeq2SeqLM.from_config(tiny_config()), VanillaTransformerForSeq2SeqLM)
    names = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    assert names["vanilla_transformer"] == "VanillaTransformerForSeq2SeqLM"


def test_shift_right():
    assert shift_right(torch.tensor([[7, 8, 2], [9, 2, -100]]), 1, 0).tolist() == [[1, 7, 8], [1, 9, 2]]


def test_an_evaluation_multiplies_nothing_for_gradients(monkeypatch):
    model, ids = tiny_model(), random_ids(2, 7)
    made = []
    monkeypatch.setattr(loss, "add_product", lambda total, *_: made.append(total))
    with torch.no_grad():
        model(input_ids=ids, labels=ids, skip_logits=True)
    assert not made
    model(input_ids=ids, labels=ids, skip_logits=True)
    assert made


def test_loss_is_torchs_and_transformers_label_smoothing():
    from transformers.trainer_pt_utils import LabelSmoother

    model, inputs = tiny_model(), batch()
    logits = model(**inputs).logits
    plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())
    torch.testing.assert_close(model(**inputs).loss, plain)
    smoothed = model(**inputs, label_smoothing=0.1)
    expected = LabelSmoother(epsilon=0.1)({"logits": logits}, inputs["labels"].clone())
    torch.testing.assert_close(smoothed.loss, expected)
    alone = model(**inputs, label_smoothing=0.1, skip_logits=True)
    torch.testing.assert_close(alone.loss, expected)
    assert alone.logits is None


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("choice", [{}, {"tie_word_embeddings": False, "output_bias": True}])
@pytest.mark.parametrize("chunk", [1, 1200, 2**22])
def test_a_loss_without_logits_has_the_same_gradients(smoothing, choice, chunk, monkeypatch):
    """In chunks of one row, of three, and of all."""
    monkeypatch.setattr(loss, "CHUNKS", {"cpu": chunk})
    monkeypatch.setattr(loss, "ROWS", 1)
    model = tiny_model(dropout=0.0, **choice).double().train()
    inputs = batch()
    inputs["labels"][0, 2:] = -100
    found = []
    for skip in (False, True):
        model.zero_grad()
        out = model(**inputs, label_smoothing=smoothing, skip_logits=skip, num_items_in_batch=torch.tensor(7))
        (3 * out.loss).backward()
        found.append((out.loss.detach(), [p.grad.clone() for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs, skip_logits=True).loss, model(**inputs).loss)


def test_a_loss_without_logits_is_not_compiled_anew_for_each_number_of_tokens():
    torch._dynamo.reset()
    graphs, model = CompileCounter(), tiny_model(encoder_layers=1, decoder_layers=1).eval()
    compiled = torch.compile(model, backend=graphs, dynamic=True)
    found = []
    for padding in (1, 2, 3):
        inputs = batch()
        inputs["labels"][0, -padding:] = -100
        torch.testing.assert_close(compiled(**inputs, skip_logits=True).loss, model(**inputs).loss)
        found.append(graphs.frame_count)
    assert found[0] == found[-1] > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_number_is_added_where_the_label_is(dtype):
    grad, labels = torch.rand(2, 3, 5).to(dtype), torch.tensor([[4, 0, 2], [1, 1, 3]])[..., None]
    expected = grad.scatter_add(-1, labels, grad.new_full((1, 1, 1), -0.9).expand_as(labels))
    loss.add_at_labels(grad, labels, -0.9)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_label_whose_chance_is_too_small_for_a_number_has_its_loss(dtype):
    """exp(-200) is 0, and its logarithm no number."""
    head, x = torch.nn.Linear(1, 3, bias=False), torch.ones(1, 2, 1)
    head.weight.data = torch.tensor([[100.0], [0.0], [-100.0]])
    labels = torch.tensor([[2, 0]])
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found = loss.linear_cross_entropy(head, x, labels, 0.1, 1)
    expected = loss.cross_entropy(head(x), labels, 0.1, 1)
    torch.testing.assert_close(found, expected, check_dtype=False)


def test_losses_meet_few_numbers_of_rows(monkeypatch):
    """Each further one costs a CPU more than its sums: see `predicted`. Those without a label count for nothing."""
    met, head, x = set(), torch.nn.Linear(6, 40), torch.randn(8, 60, 6, requires_grad=True)
    monkeypatch.setattr(loss, "linear", lambda x, *others: met.add(len(x)) or linear(x, *others))
    monkeypatch.setattr(loss, "rows_of_a_chunk", lambda *_: 2 * loss.ROWS)
    for count in (1, 127, 128, 200, 300, 384):
        labels = torch.full((480,), -100)
        labels[torch.randperm(480)[:count]] = torch.randint(0, 40, (count,))
        labels = labels.view(8, 60)
        expected = loss.cross_entropy(head(x), labels, 0.1)
        found = loss.linear_cross_entropy(head, x, labels, 0.1)
        torch.testing.assert_close(found, expected)
        leaves = (x, *head.parameters())
        for ours, theirs in zip(*(torch.autograd.grad(total, leaves) for total in (found, expected)), strict=True):
            torch.testing.assert_close(ours, theirs)
    assert met == {loss.ROWS, 2 * loss.ROWS}


@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 256), (torch.bfloat16, 512)])
def test_chunks_of_logits_are_as_large_as_a_cache(dtype, rows):
    weight = torch.empty(8000, 2)
    assert loss.rows_of_a_chunk(torch.empty(1, 2, dtype=dtype), weight) == rows
    assert loss.rows_of_a_chunk(torch.empty(1, 2, dtype=dtype), torch.empty(100_000, 2)) == loss.ROWS


def test_a_loss_without_logits_in_half_precision():
    inputs, grads = batch(), []
    model = tiny_model(dropout=0.0).to(torch.bfloat16).train()
    for skip in (False, True):
        model.zero_grad()
        model(**inputs, skip_logits=skip).loss.backward()
        grads.append(model.lm_head.weight.grad.float().clone())
    assert (grads[0] - grads[1]).norm() < 0.02 * grads[0].norm()
    model = tiny_model(dropout=0.0).train()
    with torch.autocast("cpu", torch.bfloat16):
        losses = [model(**inputs, skip_logits=skip).loss for skip in (False, True)]
    losses[1].backward()
    torch.testing.assert_close(losses[0], losses[1], atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("name", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_loss_without_logits_leaves_no_hook_out(name):
    model, seen = tiny_model(), []
    getattr(model.lm_head, name)(lambda *args: seen.append(1))
    model(**batch(), skip_logits=True)
    assert seen


def test_a_pruned_head_learns_without_logits():
    """Pruning makes the matrix anew in each call, by a hook."""
    model = tiny_model(tie_word_embeddings=False).train()
    torch.nn.utils.prune.l1_unstructured(model.lm_head, "weight", 0.3)
    for _ in range(2):
        model(**batch(), skip_logits=True).loss.backward()
    assert model.lm_head.weight_orig.grad is not None


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_attentions_asked_for_in_a_call_are_there(attn):
    model, inputs = tiny_model(attn_implementation=attn), batch()
    plain = model(**inputs)
    out = model(**inputs, output_attentions=True, output_hidden_states=True)
    assert [w.shape for w in out.encoder_attentions] == [(3, 2, 6, 6)] * 2
    assert [w.shape for w in out.decoder_attentions] == [(3, 2, 5, 5)] * 2
    assert [w.shape for w in out.cross_attentions] == [(3, 2, 5, 6)] * 2
    assert len(out.encoder_hidden_states) == len(out.decoder_hidden_states) == 3
    assert (out.decoder_attentions[0].triu(1) == 0).all()
    assert (out.cross_attentions[0][1, :, :, 4:] == 0).all()
    torch.testing.assert_close(out.logits, plain.logits, atol=5e-6, rtol=1e-5)
    assert model.config._attn_implementation == attn and plain.cross_attentions is None


def test_clear_errors():
    model = tiny_model()
    with pytest.raises(ValueError, match="neither of decoder_input_ids"):
        model(input_ids=random_ids(1, 3))
    with pytest.raises(ValueError, match="both of input_ids and inputs_embeds"):
        model(input_ids=random_ids(1, 3), inputs_embeds=torch.zeros(1, 3, 16), labels=random_ids(1, 2))
    with pytest.raises(ValueError, match="skip_logits=True without labels"):
        model(input_ids=random_ids(1, 3), decoder_input_ids=random_ids(1, 2), skip_logits=True)
    from transformers import DynamicCache

    with pytest.raises(TypeError, match="DynamicCache, expected an EncoderDecoderCache"):
        model(input_ids=random_ids(1, 3), decoder_input_ids=random_ids(1, 2), past_key_values=DynamicCache())


def test_inputs_embeds_and_encoder_outputs_are_the_same_road():
    model, inputs = tiny_model(), batch()
    expected = model(**inputs).logits
    embeds = model.get_input_embeddings()(inputs["input_ids"])
    rest = {key: inputs[key] for key in ("attention_mask", "labels")}
    torch.testing.assert_close(model(inputs_embeds=embeds, **rest).logits, expected)
    encoded = model.get_encoder()(inputs["input_ids"], inputs["attention_mask"])
    torch.testing.assert_close(model(encoder_outputs=encoded, **rest).logits, expected)
    torch.testing.assert_close(model(encoder_outputs=(encoded[0],), **rest).logits, expected)


def test_tuples_instead_of_dictionaries():
    model, inputs = tiny_model(), batch()
    out = model(**inputs, return_dict=False)
    assert isinstance(out, tuple)
    torch.testing.assert_close(out[1], model(**inputs).logits)


def test_collator_makes_decoder_inputs(tokenizer):
    model = tiny_model(vocab_size=len(tokenizer))
    features = [tokenizer("The cat", text_target="Le chat noir"), tokenizer("A dog sleeps", text_target="Un chien")]
    made = DataCollatorForSeq2Seq(tokenizer, model=model)(features)
    assert made["decoder_input_ids"][0, 0] == 1
    torch.testing.assert_close(made["decoder_input_ids"], shift_right(made["labels"], 1, 0))


def test_sinusoid_table_is_filled_after_loading_on_meta(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    table = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).model.decoder.positions.table
    assert torch.equal(table, model.model.decoder.positions.table)


def test_attentions_asked_for_in_the_configuration_are_there():
    out = tiny_model(output_attentions=True)(**batch())
    assert len(out.encoder_attentions) == len(out.decoder_attentions) == len(out.cross_attentions) == 2


def test_labels_need_all_logits_and_the_ids_to_shift_by():
    with pytest.raises(ValueError, match="labels and logits_to_keep"):
        tiny_model()(**batch(), logits_to_keep=1)
    model = tiny_model()
    model.config.pad_token_id = None
    with pytest.raises(ValueError, match="pad_token_id=None"):
        model(input_ids=random_ids(1, 3), labels=random_ids(1, 3))


def test_unknown_keywords_are_not_passed_over(warnings_of):
    model, ids = tiny_model(), random_ids(1, 3)
    with pytest.raises(ValueError, match="unknown key 'atention_mask': did you mean 'attention_mask'"):
        model(input_ids=ids, labels=ids, atention_mask=ids)
    with pytest.raises(ValueError, match="unknown key 'label_smoothng': did you mean 'label_smoothing'"):
        model(input_ids=ids, labels=ids, label_smoothng=0.1)
    model(input_ids=ids, labels=ids, head_mask=None)
    assert warnings_of() == ["forward does not know head_mask: ignored"]


def test_nor_are_those_of_a_part(warnings_of):
    """An encoder, a decoder; and positions, where nothing reads them."""
    model, ids = tiny_model(), random_ids(1, 3)
    memory = model.get_encoder()(ids).last_hidden_state
    with pytest.raises(ValueError, match="unknown key 'atention_mask': did you mean 'attention_mask'"):
        model.get_encoder()(ids, atention_mask=ids)
    with pytest.raises(ValueError, match="unknown key 'encoder_atention_mask': did you mean 'encoder_attention_mask'"):
        model.get_decoder()(ids, encoder_hidden_states=memory, encoder_atention_mask=ids)
    assert not warnings_of()
    for architecture in ("encoder-only", "encoder-decoder"):
        inputs = batch_of(architecture)
        positions = torch.zeros_like(inputs["input_ids"])
        member = build(architecture)
        assert torch.equal(member(**inputs, position_ids=positions).logits, member(**inputs).logits)
    assert warnings_of() == ["forward does not know position_ids: ignored"]


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_is_torchs(p, dtype):
    """The same shares and sums as torch's, gradients where a number was kept, and the seed decides."""
    x = torch.ones(300, 1001, dtype=dtype, requires_grad=True)
    dropout = Dropout(p)
    torch.manual_seed(0)
    y = dropout(x)
    y.sum().backward()
    torch.manual_seed(0)
    assert torch.equal(dropout(x), y)
    assert torch.equal(x.grad, y) and y.dtype == dtype
    assert abs((y == 0).float().mean() - p) < 0.003
    for lane in range(4):  # one random word serves four numbers
        assert abs((y.detach().flatten()[lane::4] == 0).float().mean() - p) < 0.005
    if p < 1:
        torch.testing.assert_close(y.detach().max(), torch.tensor(1 / (1 - p), dtype=dtype), rtol=1e-4, atol=0)
    assert torch.equal(dropout.eval()(x), x)
