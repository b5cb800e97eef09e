"""The short road of `generate` finds what transformers' own loops find, and knows what it does not know."""

import pytest
import torch
from family import build
from peft import LoraConfig, PrefixTuningConfig, get_peft_model
from tiny import random_ids
from transformers import (
    AttentionInterface,
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
)
from transformers.generation import BaseStreamer, RepetitionPenaltyLogitsProcessor

from vanilla_transformer.model import search, steps
from vanilla_transformer.model.attention import CrossAttention, MultiHeadAttention, scaled_dot_product_attention

POSITIONS = ["sinusoidal", "learned", "rotary", "relative", "none"]
SETTINGS = [
    dict(num_beams=1),
    dict(num_beams=4),
    dict(num_beams=4, num_return_sequences=3),
    dict(num_beams=3, length_penalty=2.0, early_stopping=False),
    dict(num_beams=3, length_penalty=0.5, early_stopping="never"),
    dict(num_beams=2, length_penalty=0.0, early_stopping=False),
    dict(num_beams=1, min_new_tokens=5),
    dict(num_beams=4, min_new_tokens=5),
    dict(num_beams=4, repetition_penalty=1.5),
    dict(num_beams=3, eos_token_id=[2, 5, 9]),
    dict(num_beams=1, eos_token_id=[2, 5, 9]),
    dict(num_beams=2, decoder_input_ids=torch.tensor([[1, 7, 8]] * 6)),
    dict(num_beams=1, decoder_input_ids=torch.tensor([[1, 7, 8]] * 6)),
    dict(num_beams=4, bad_words_ids=[[7], [8, 9]], forced_eos_token_id=2),
]


def ending(bias: float, **choice):
    """A model whose sentences end sooner the greater the bias of </s> is."""
    model = build("encoder-decoder", output_bias=True, **choice)
    with torch.no_grad():
        model.lm_head.bias[2] = bias
    return model


def sources():
    ids = random_ids(6, 9)
    mask = torch.ones_like(ids)
    mask[1, 4:], mask[3, :3] = 0, 0
    return ids, mask


@pytest.fixture
def used(monkeypatch):
    """How often the short road was taken."""
    taken = []
    init = search.Steps.__init__
    monkeypatch.setattr(search.Steps, "__init__", lambda self, *args: (taken.append(1), init(self, *args))[1])
    return taken


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("bias", [0.0, 2.0, 4.0])
@pytest.mark.parametrize("positions", POSITIONS)
def test_fast_is_plain(settings, bias, positions, used):
    model = ending(bias, positions=positions, residual="pre" if bias == 2 else "post")
    ids, mask = sources()
    options = dict(attention_mask=mask, do_sample=False, max_new_tokens=20, **settings)
    expected = model.generate(ids, fast=False, **options)
    assert not used
    assert torch.equal(model.generate(ids, **options), expected)
    assert len(used) == 1


@pytest.mark.parametrize("bias", [0.0, 4.0])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_long_outputs_outgrow_their_buffers(bias, positions):
    model = ending(bias, max_position_embeddings=16, positions=positions)
    ids, mask = sources()
    for beams in (1, 3):
        options = dict(attention_mask=mask, num_beams=beams, max_new_tokens=70)
        assert torch.equal(model.generate(ids, **options), model.generate(ids, fast=False, **options))


def test_sentences_that_are_done_are_left_out(monkeypatch):
    rows = []
    call = search.Steps.__call__
    monkeypatch.setattr(search.Steps, "__call__", lambda self, ids: (rows.append(len(ids)), call(self, ids))[1])
    model = ending(3.0)
    ids = random_ids(24, 7)
    for beams in (1, 4):
        rows.clear()
        out = model.generate(ids, num_beams=beams, max_new_tokens=30)
        assert rows[0] == 24 * beams and rows[-1] < 24 * beams
        assert torch.equal(out, model.generate(ids, num_beams=beams, max_new_tokens=30, fast=False))


def test_half_precision_takes_the_same_road(used):
    model = ending(2.0).to(torch.bfloat16)
    ids, mask = sources()
    out = model.generate(ids, attention_mask=mask, num_beams=1, max_new_tokens=8)
    assert len(used) == 1 and out.shape[0] == 6


def test_adapters_are_part_of_the_road(used):
    model = ending(2.0)
    lora = get_peft_model(model, LoraConfig("SEQ_2_SEQ_LM", r=4, target_modules=["q_proj", "v_proj"])).eval()
    for name, parameter in lora.named_parameters():
        if "lora" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    ids, mask = sources()
    for beams in (1, 3):
        options = dict(input_ids=ids, attention_mask=mask, num_beams=beams, max_new_tokens=10)
        expected = lora.generate(**options, fast=False)
        assert torch.equal(lora.generate(**options), expected)
        with lora.disable_adapter():
            assert not torch.equal(lora.generate(**options), expected)
    assert used


def test_adapters_of_some_tokens_are_part_of_the_road(used):
    config = LoraConfig("SEQ_2_SEQ_LM", target_modules=["q_proj"], trainable_token_indices=[5, 6])
    lora, options = get_peft_model(ending(2.0), config).eval(), dict(input_ids=random_ids(3, 5), max_new_tokens=8)
    assert torch.equal(lora.generate(**options), lora.generate(**options, fast=False)) and len(used) == 1


class Streamer(BaseStreamer):
    def __init__(self):
        self.told = []

    def put(self, value):
        self.told.append(value)

    def end(self):
        self.told.append("end")


MODEL = ending(2.0)
PROMPTS = dict(decoder_input_ids=torch.tensor([[0, 1]] * 3 + [[1, 9]] * 3),
               decoder_attention_mask=torch.tensor([[0, 1]] * 3 + [[1, 1]] * 3))  # fmt: skip
CACHE = EncoderDecoderCache(DynamicCache(config=MODEL.config), DynamicCache(config=MODEL.config))


@pytest.mark.parametrize(
    "asked",
    [
        dict(do_sample=True, num_beams=1),
        dict(use_cache=False),
        dict(cache_implementation="static"),
        dict(return_dict_in_generate=True),
        dict(output_scores=True, return_dict_in_generate=True),
        dict(output_attentions=True, return_dict_in_generate=True),
        dict(stopping_criteria=StoppingCriteriaList([MaxLengthCriteria(4)]), num_beams=1),
        dict(generation_config=GenerationConfig(do_sample=True, num_beams=1)),
        dict(past_key_values=CACHE),
        PROMPTS,
        dict(fast=False),
    ],
    ids=lambda asked: "-".join(asked),
)
def test_what_it_does_not_know_goes_to_transformers(asked, used):
    ids, mask = sources()
    MODEL.generate(ids, attention_mask=mask, max_new_tokens=5, **asked)
    assert not used


def test_streamers_are_told_and_criteria_heard():
    ids, streamer = random_ids(1, 5), Streamer()
    MODEL.generate(ids, streamer=streamer, num_beams=1, max_new_tokens=4)
    assert len(streamer.told) > 2 and streamer.told[-1] == "end"
    short = StoppingCriteriaList([MaxLengthCriteria(4)])
    assert MODEL.generate(ids, stopping_criteria=short, num_beams=1, max_new_tokens=9).shape[1] <= 4


@pytest.mark.parametrize(
    "asked",
    [
        dict(synced_gpus=True),
        dict(penalty_alpha=0.6, top_k=4, num_beams=1),
        dict(force_words_ids=[[5]]),
        dict(do_smaple=False),
    ],
)
def test_what_transformers_refuses_is_refused_here_too(asked):
    for fast in (True, False):
        with pytest.raises(ValueError):
            MODEL.generate(random_ids(2, 4), max_new_tokens=4, fast=fast, **asked)


def test_prefix_tuning_takes_the_long_road(used):
    prefix = PrefixTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3, num_layers=2, token_dim=16,
                                num_attention_heads=2)  # fmt: skip
    tuned = get_peft_model(ending(2.0), prefix).eval()
    tuned.generate(input_ids=random_ids(2, 5), num_beams=1, max_new_tokens=5)
    assert not used


def broken_forward(model):
    model.model.decoder.layers[0].forward = model.model.decoder.layers[0].forward


def hooked(model):
    model.model.decoder.layers[1].self_attn.q_proj.register_forward_pre_hook(lambda *args: None)


def observed(model):
    model.model.register_forward_hook(lambda *args: None)


def another_kernel(model):
    AttentionInterface.register("mine", scaled_dot_product_attention)
    model.set_attn_implementation("mine")


def subclassed(model):
    model.__class__ = type("Mine", (type(model),), {})


def another_layer(model):
    subclassed(model.model.decoder.layers[0])


def another_attention(model):
    subclassed(model.model.decoder.layers[1].cross_attn)


def another_scale(model):
    model.model.decoder.layers[0].self_attn.scaling *= 2


TOUCHES = [broken_forward, hooked, observed, another_kernel, subclassed, another_layer, another_attention]


@pytest.mark.parametrize("touch", [*TOUCHES, another_scale, torch.nn.Module.train])
def test_a_model_that_was_changed_takes_the_long_road(touch, used):
    model = ending(2.0)
    touch(model)
    model.generate(random_ids(2, 5), max_new_tokens=4)
    assert not used


@pytest.mark.parametrize("attention", [MultiHeadAttention, CrossAttention])
def test_a_method_that_all_have_in_place_of_ours_is_called(attention, used, monkeypatch):
    forward, called = attention.forward, []

    def watched(self, *args, **more):
        called.append(self)
        return forward(self, *args, **more)

    monkeypatch.setattr(attention, "forward", watched)
    ending(2.0).generate(random_ids(2, 5), max_new_tokens=4)
    assert called and not used


class Rounded(torch.Tensor):
    """As torchao's weights are: those of a plain layer by its type, and known to few functions of torch."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in (torch.cat, torch.addmv, torch.Tensor.mv, torch.mm, torch.addmm):
            raise NotImplementedError(f"{function} of rounded numbers")
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result.as_subclass(torch.Tensor) if function is torch.nn.functional.linear else result


@pytest.mark.parametrize("beams", [1, 3])
def test_weights_of_another_type_are_multiplied_by_their_layers(beams, used):
    model, ids = ending(2.0), random_ids(1, 5)
    expected = model.generate(ids, num_beams=beams, max_new_tokens=8)
    for part in model.model.decoder.layers.modules():
        if isinstance(part, torch.nn.Linear):
            part.weight = torch.nn.Parameter(part.weight.detach().as_subclass(Rounded), requires_grad=False)
    assert torch.equal(model.generate(ids, num_beams=beams, max_new_tokens=8), expected) and len(used) == 2


@pytest.mark.parametrize("start", [1, [1, 1], [1, 7]])
def test_a_start_of_each_row_beside_a_prompt(start):
    """As transformers know it: it stands before a prompt that has none."""
    prompt = torch.tensor([[7, 8], [7, 8]])
    output = MODEL.generate(random_ids(2, 5), decoder_input_ids=prompt, decoder_start_token_id=start, max_new_tokens=3)
    assert output.shape[1] <= 6


def test_a_look_inside_leaves_the_short_road_open(used):
    """transformers observes a model from the first call on that asks for its attention, and never stops."""
    model = ending(2.0)
    ids = random_ids(2, 5)
    model(input_ids=ids, decoder_input_ids=ids, output_attentions=True, output_hidden_states=True)
    model.generate(ids, max_new_tokens=4)
    assert len(used) == 1


def test_two_sources_are_refused(used):
    """As transformers refuses them."""
    ids = random_ids(2, 5)
    for fast in (True, False):
        with pytest.raises(ValueError, match="passed alongside input_ids"):
            ending(2.0).generate(ids, input_ids=ids, max_new_tokens=4, fast=fast)


def test_several_processes_search_fast_unless_they_share_the_weights(used, monkeypatch):
    model = ending(2.0)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model.generate(random_ids(2, 5), max_new_tokens=4)
        assert len(used) == 1
        with monkeypatch.context() as patch:
            patch.setattr(search, "is_deepspeed_zero3_enabled", lambda: True)
            model.generate(random_ids(2, 5), max_new_tokens=4)
        assert len(used) == 1
        model.model.encoder.layers[0]._is_fsdp_managed_module = True
        model.generate(random_ids(2, 5), max_new_tokens=4)
        assert len(used) == 1
    finally:
        torch.distributed.destroy_process_group()


def test_a_source_of_padding_alone_is_read_as_elsewhere():
    ids, mask = sources()
    mask[2] = 0
    for beams in (1, 3):
        options = dict(attention_mask=mask, num_beams=beams, max_new_tokens=6)
        assert torch.equal(MODEL.generate(ids, **options), MODEL.generate(ids, fast=False, **options))


@pytest.mark.parametrize("beams", [1, 3])
def test_odd_but_allowed(beams, used):
    """No ends and no padding, a bias that is missing, the encoder's output as a tuple, a limit beyond all memory."""
    model, ids = ending(2.0), random_ids(1, 7)
    options = dict(num_beams=beams, max_new_tokens=5)
    model.model.decoder.layers[0].self_attn.k_proj.bias = None
    assert torch.equal(model.generate(ids, **options), model.generate(ids, fast=False, **options))
    if beams == 1:
        encoded = (model.get_encoder()(ids).last_hidden_state,)
        assert torch.equal(model.generate(encoder_outputs=encoded, **options), model.generate(ids, **options))
        assert torch.equal(model.generate(ids, num_beams=1, max_length=10**12), model.generate(ids, num_beams=1))
    for config in (model.config, model.generation_config):
        config.pad_token_id = config.eos_token_id = None
    assert torch.equal(model.generate(ids, **options), model.generate(ids, fast=False, **options))
    assert used


def test_processors_of_the_caller_are_heard(used):
    model = ending(0.0)
    ids, mask = sources()
    options = dict(attention_mask=mask, num_beams=3, max_new_tokens=12)
    options["logits_processor"] = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(3.0)])
    assert torch.equal(model.generate(ids, **options), model.generate(ids, fast=False, **options))
    assert len(used) == 1


def test_settings_in_a_configuration(used):
    model = ending(2.0)
    ids, _ = sources()
    out = model.generate(ids, GenerationConfig(num_beams=3, max_new_tokens=6))
    assert torch.equal(out, model.generate(ids, num_beams=3, max_new_tokens=6, fast=False)) and len(used) == 1


def test_what_a_trainer_passes_on_is_no_hindrance(used):
    model = ending(2.0)
    ids, mask = sources()
    out = model.generate(input_ids=ids, attention_mask=mask, labels=ids, max_new_tokens=6)
    assert torch.equal(out, model.generate(ids, attention_mask=mask, max_new_tokens=6, fast=False))
    assert len(used) == 1


def test_what_a_trainer_leaves_in_the_settings_is_no_hindrance(used):
    """After an evaluation with `predict_with_generate`, whatever was not set has transformers' own value."""
    model = ending(2.0)
    ids, mask = sources()
    wanted = model.generate(ids, attention_mask=mask, num_beams=3, max_new_tokens=6)
    model.generation_config.update(**GenerationConfig._get_default_generation_params(), defaults_only=True)
    assert torch.equal(model.generate(ids, attention_mask=mask, num_beams=3, max_new_tokens=6), wanted)
    assert len(used) == 2
    model.generation_config.encoder_no_repeat_ngram_size = 2  # that is another search
    model.generate(ids, attention_mask=mask, num_beams=3, max_new_tokens=6)
    assert len(used) == 2


def test_hooks_are_not_passed_by(used):
    model = ending(2.0)
    seen = []
    model.model.decoder.layers[0].self_attn.register_forward_hook(lambda *args: seen.append(1))
    model.generate(random_ids(2, 4), max_new_tokens=3)
    assert seen and not used


def test_memory_is_one_copy_a_sentence(monkeypatch):
    made = []
    init = search.Steps.__init__
    monkeypatch.setattr(search.Steps, "__init__", lambda self, *args: (init(self, *args), made.append(self))[0])
    ending(0.0).generate(random_ids(2, 9), num_beams=4, max_new_tokens=3)
    layer = made[0].layers[0]
    assert layer.keys.shape == (2, 2, 9, 8)  # (B, H, S, K), not (B k, H, S, K)
    assert layer.past.shape == (2, 4 * steps.ROOM, 32)


def test_what_no_beam_descends_from_is_forgotten(monkeypatch):
    """Beams that have a common ancestor ten tokens ago share all that was before."""
    made = []
    init = search.Steps.__init__
    monkeypatch.setattr(search.Steps, "__init__", lambda self, *args: (init(self, *args), made.append(self))[0])
    model, ids = ending(0.0), random_ids(2, 9)
    options = dict(num_beams=4, max_new_tokens=120)
    assert torch.equal(model.generate(ids, **options), model.generate(ids, fast=False, **options))
    assert made[0].length == 120 and made[0].room <= 120 * 2  # of 4 * 120 entries


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("vocabulary", [5 * search.BLOCK, 40 * search.BLOCK, 40 * search.BLOCK + 7])
@pytest.mark.parametrize("few", [0, search.FEW])
def test_best_is_topk(count, vocabulary, few, monkeypatch):
    monkeypatch.setattr(search, "FEW", few)
    scores = torch.randn(20, vocabulary)
    scores[:10, -2] = 9.0  # in the last, incomplete block
    values, tokens = search.best(scores, count)
    expected = scores.topk(count)
    assert torch.equal(values, expected[0]) and torch.equal(tokens, expected[1])
    equal = torch.zeros(3, vocabulary)
    equal[1, [200, 300]] = 1.0
    assert search.best(equal, 1)[1].tolist() == equal.argmax(-1, keepdim=True).tolist()


@pytest.mark.parametrize("settings", SETTINGS[:6], ids=str)
def test_large_vocabularies(settings, used, monkeypatch):
    monkeypatch.setattr(search, "FEW", 0)
    model = ending(2.0, vocab_size=40 * search.BLOCK + 7)
    ids, mask = sources()
    options = dict(attention_mask=mask, do_sample=False, max_new_tokens=12, **settings)
    assert torch.equal(model.generate(ids, **options), model.generate(ids, fast=False, **options))
    assert len(used) == 1


@pytest.mark.parametrize("rows", [1, 4])
def test_autocast_takes_the_library_s_road(rows, used):
    model, ids = ending(2.0), random_ids(rows, 5)
    with torch.autocast("cpu", torch.bfloat16):
        for beams in (1, 3):
            out = model.generate(ids, num_beams=beams, max_new_tokens=6)
            assert torch.equal(out, model.generate(ids, num_beams=beams, max_new_tokens=6, fast=False))
    assert not used
