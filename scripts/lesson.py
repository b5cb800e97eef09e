# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # From softmax to a translator
#
# A reader's way through "Attention Is All You Need" (Vaswani et al. 2017): each equation, the lines that compute it in
# NumPy, the lines of the model in torch, and whether they agree. At the end stands a translator that this notebook has
# trained, and a look at what its heads do. `make lesson` turns this file into a notebook and runs it, in some three
# minutes on two CPU cores; in an editor that knows `# %%` cells it can be run as it is.
#
# Shapes: B batch, S source length, T target length, L either of them, H heads, D d_model, K head size, V vocabulary.

# %%
import inspect
import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from IPython.display import Code, Image, display
from torch import nn
from transformers import get_scheduler
from transformers.utils import logging

import vanilla_transformer as vt
from vanilla_transformer import reference
from vanilla_transformer.inspection import collect_attention, figures
from vanilla_transformer.model import attention, layers, loss, positions, search
from vanilla_transformer.reference import attention as numpy_attention
from vanilla_transformer.reference import layers as numpy_layers
from vanilla_transformer.reference import positions as numpy_positions
from vanilla_transformer.reference import search as numpy_search
from vanilla_transformer.reference import transformer as numpy_transformer

logging.disable_progress_bar()  # of loading and saving weights
rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp(prefix="lesson-"))


def read(*pieces):
    """The source of functions and classes, as they stand in the package."""
    display(Code("\n\n".join(inspect.getsource(piece) for piece in pieces), language="python"))


def agree(numpy_array, tensor):
    """Raises an AssertionError unless both are the same up to rounding."""
    np.testing.assert_allclose(numpy_array, tensor.detach().numpy(), atol=1e-5)
    print(f"the same, up to {np.abs(numpy_array - tensor.detach().numpy()).max():.1e}")


# %% [markdown]
# ## 1. Softmax: numbers into shares
#
# $$\mathrm{softmax}(x)_i = \frac{e^{x_i}}{\sum_j e^{x_j}}$$
#
# The shares are positive and sum to 1. Adding a constant to all $x_i$ changes nothing, which is why the largest one
# may be subtracted first: otherwise $e^{1000}$ overflows.

# %%
read(numpy_attention.softmax)
print(numpy_attention.softmax(np.array([1.0, 2.0, 3.0])))
print(numpy_attention.softmax(np.array([1001.0, 1002.0, 1003.0])))
x = rng.normal(size=(3, 5))
agree(numpy_attention.softmax(x), torch.tensor(x).softmax(-1))

# %% [markdown]
# **Exercise.** Dividing by a temperature first, $\mathrm{softmax}(x / \tau)$, makes the choice sharper or blunter. For
# $x = (1, 2, 3)$, which $\tau$ gives the last one a share of 0.99? (Guess before you run the next cell.)

# %%
for temperature in (4, 2, 1, 0.5, 0.25, 0.21):
    print(temperature, numpy_attention.softmax(np.array([1.0, 2.0, 3.0]) / temperature).round(3))

# %% [markdown]
# ## 2. Attention: a soft look-up  (equation 1)
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# Each query is compared with each key; the shares of softmax say how much of each value it gets.

# %%
read(numpy_attention.scaled_dot_product_attention)
words = ["the", "old", "man"]
keys = np.eye(3)[None] * 4  # (1, 3, 3): three keys that have nothing in common
values = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])  # (1, 3, 2)
query = np.array([[[0.0, 1.0, 1.0]]])  # (1, 1, 3): asks for the second and the third
everything = np.ones((1, 1, 3), bool)
print(numpy_attention.scaled_dot_product_attention(query, keys, values, everything))
shares = numpy_attention.softmax(query[0] @ keys[0].T / math.sqrt(3))
Image(
    figures.plot_attention_matrix(
        shares, title="one query", outpath=folder / "query.png", row_tokens=["?"], col_tokens=words
    ),
    width=350,
)

# %% [markdown]
# The model in torch computes the same. Its function has the signature of the kernels of transformers, so that `sdpa`
# or a flash attention can take its place.

# %%
read(attention.scaled_dot_product_attention)
q, k, v = (rng.normal(size=(1, 5, 8)) for _ in range(3))
ours, weights = attention.scaled_dot_product_attention(
    nn.Module(), *(torch.tensor(part)[:, None] for part in (q, k, v)), None, scaling=8**-0.5
)
agree(numpy_attention.scaled_dot_product_attention(q, k, v, np.ones((1, 5, 5), bool)), ours[:, :, 0])

# %% [markdown]
# ### Why divide by $\sqrt{d_k}$?
#
# The scalar product of two vectors of $d_k$ independent numbers, of mean 0 and variance 1, has a variance of $d_k$
# (section 3.2.1, footnote 4).
# Without the division, the largest score takes all, and the gradient of softmax is nearly zero.

# %%
print(" d_k  variance   plain: largest share, gradient   divided: largest share, gradient")
for d_k in (4, 64, 1024):
    q, k = torch.randn(2, 500, 16, d_k, generator=torch.Generator().manual_seed(0))
    scores = (q[:, :1] * k).sum(-1)  # (500, 16)
    row = f"{d_k:>4}  {scores.var():>8.1f}"
    for divided in (1.0, math.sqrt(d_k)):
        shares = (scores / divided).softmax(-1)
        row += f"{shares.amax(-1).mean():>23.3f}, {(shares * (1 - shares)).mean():.4f}"
    print(row)

# %% [markdown]
# ## 3. Who may look at whom  (section 3.2.3)
#
# An encoder sees the whole sentence. A decoder must not see the word that it is about to predict, nor any later one:
# such scores become $-\infty$, and their shares 0.

# %%
read(numpy_attention.sees_all, numpy_attention.sees_the_past)
print(numpy_attention.sees_the_past(np.ones((1, 4)))[0].astype(int))
q, k, v = (rng.normal(size=(1, 4, 8)) for _ in range(3))
past = numpy_attention.sees_the_past(np.ones((1, 4)))  # (1, 4, 4)
masked, _ = attention.scaled_dot_product_attention(
    nn.Module(), *(torch.tensor(part)[:, None] for part in (q, k, v)), torch.tensor(past)[:, None], scaling=8**-0.5
)
agree(numpy_attention.scaled_dot_product_attention(q, k, v, past), masked[:, :, 0])
Image(figures.plot_causal_mask(["<s>", "le", "vieil", "homme"], folder / "mask.png"), width=900)

# %% [markdown]
# **Exercise.** What does a query see in a row that is nothing but padding? Find the number that stands for $-\infty$
# in the function above, and say what would come out if it were `-np.inf`.

# %%
nothing = np.zeros((1, 1, 3), bool)
print(
    numpy_attention.scaled_dot_product_attention(query, keys, values, nothing), "the mean of the values, and not NaN"
)

# %% [markdown]
# ## 4. Several heads  (section 3.2.2)
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h) W^O, \qquad
# \mathrm{head}_i = \mathrm{Attention}(Q W_i^Q, K W_i^K, V W_i^V)$$
#
# Each head looks for something else, in a space of its own of $d_{model} / h$ dimensions.

# %%
read(numpy_attention.multi_head_attention, attention.MultiHeadAttention)


# %%
def weights_of(module):
    """A module's parameters as the tree of arrays that the functions in NumPy read."""
    tree = {}
    for name, parameter in module.double().named_parameters():
        *path, last = name.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = parameter.detach().numpy()
    return tree


torch.manual_seed(0)
config = vt.VanillaTransformerConfig.preset("tiny", vocab_size=100, dropout=0.0)
heads = attention.MultiHeadAttention(config, num_heads=4, layer_idx=0, is_causal=False)
x = rng.normal(size=(2, 5, config.d_model))
w = weights_of(heads)
ours, _ = heads(torch.tensor(x), None, attention_interface=attention.scaled_dot_product_attention)
agree(numpy_attention.multi_head_attention(w, 4, x, x, numpy_attention.sees_all(np.ones((2, 5)))), ours)

# %% [markdown]
# ## 5. Where a word stands  (section 3.5)
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}}), \qquad PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$
#
# Attention by itself cannot tell "man bites dog" from "dog bites man": exchange two tokens, and the outputs are
# exchanged, no more.

# %%
exchanged = x[:, [1, 0, 2, 3, 4]]
seen = numpy_attention.sees_all(np.ones((2, 5)))
one, other = (numpy_attention.multi_head_attention(w, 4, given, given, seen) for given in (x, exchanged))
np.testing.assert_allclose(one[:, [1, 0, 2, 3, 4]], other, atol=1e-12)
read(numpy_positions.sinusoidal, numpy_positions.angles)
read(positions.Sinusoids, positions.SinusoidalPositions)
model = vt.VanillaTransformerForSeq2SeqLM(config)
table = numpy_positions.sinusoidal({}, np.arange(40)[None], config.d_model)[0]  # (40, D)
agree(table, model.get_encoder().positions.table[:40])
Image(figures.plot_positional_encoding(model, folder / "positions.png"), width=900)

# %% [markdown]
# Why these? "For any fixed offset $k$, $PE_{pos+k}$ can be represented as a linear function of $PE_{pos}$": each pair
# of a sine and a cosine is turned by the same angle wherever it stands, and a matrix $W^Q$ can learn such turns. So a
# head can look for "the word before".

# %%
k = 3
frequencies = 10000.0 ** (-np.arange(0, config.d_model, 2) / config.d_model)
turn = np.zeros((config.d_model, config.d_model))  # R_k, a block of 2 x 2 for each frequency
for i, angle in enumerate(k * frequencies):
    cos, sin = math.cos(angle), math.sin(angle)
    turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, sin], [-sin, cos]]
np.testing.assert_allclose(table[:-k] @ turn.T, table[k:], atol=1e-5)
print("PE(pos + 3) = R PE(pos), for every pos by the same R")

# %% [markdown]
# ## 6. The rest of a layer  (sections 3.1 and 3.3)
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2, \qquad
# \mathrm{LayerNorm}(x) = \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \epsilon}} \gamma + \beta$$
#
# and around each sub-layer a residual connection, $\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$.

# %%
read(numpy_layers.layer_norm, numpy_layers.two_linear, numpy_layers.post_norm)
read(layers.ReLUFeedForward, layers.PostNorm)
feed_forward, residual = layers.ReLUFeedForward(config, 256), layers.PostNorm(config)
w, gains = weights_of(feed_forward), weights_of(residual)["norm"]
expected = numpy_layers.post_norm(
    x,
    lambda x: numpy_layers.FEED_FORWARDS["relu"](x, w),
    lambda x: numpy_layers.layer_norm(x, gains, config.norm_eps),
)
agree(expected, residual(torch.tensor(x), feed_forward))

# %% [markdown]
# ## 7. The whole of Figure 1
#
# Embeddings times $\sqrt{d_{model}}$ plus positions, $N$ layers on either side, and logits by the embedding's own
# matrix (section 3.4). Both models read the same file of weights; the one in NumPy has no line in common with the
# other.

# %%
read(numpy_transformer.embed, numpy_transformer.layer, numpy_transformer.logits)
read(layers.EncoderLayer, layers.DecoderLayer)
model.double().eval().save_pretrained(folder / "untrained")
twin = reference.NumpyTransformer.from_pretrained(folder / "untrained")
source, target = rng.integers(3, 100, size=(2, 7)), rng.integers(3, 100, size=(2, 5))
with torch.no_grad():
    logits = model(input_ids=torch.tensor(source), decoder_input_ids=torch.tensor(target)).logits
agree(twin(source, decoder_input_ids=target), logits)

# %% [markdown]
# **Exercise.** Count the parameters of this model by hand: V = 100, D = 128, d_ff = 256, 4 + 4 layers, one matrix of
# embeddings for source, target and output, all projections with a bias except the last. The cell below does it.

# %%
D, F, N, V = 128, 256, 4, 100
assert (config.d_model, config.encoder_ffn_dim, config.encoder_layers, config.vocab_size) == (D, F, N, V)
one_attention, one_ffn, one_norm = 4 * (D * D + D), D * F + F + F * D + D, 2 * D
encoder_layer = one_attention + one_ffn + 2 * one_norm
decoder_layer = 2 * one_attention + one_ffn + 3 * one_norm
print(V * D + N * (encoder_layer + decoder_layer), model.num_parameters())
assert V * D + N * (encoder_layer + decoder_layer) == model.num_parameters()

# %% [markdown]
# ## 8. What it is trained for  (section 5.4)
#
# At each place the decoder reads the right words so far, and pays for the chance that it gave to the next one:
#
# $$(1 - \epsilon) (-\log p(y)) + \frac{\epsilon}{V} \sum_v (-\log p(v))$$
#
# With label smoothing, $\epsilon = 0.1$, it must not be too sure of itself. A uniform guess pays $\log V$; random
# weights, which are sure of something wrong, pay a little more.

# %%
read(numpy_transformer.shift_right, numpy_transformer.label_smoothed_loss, loss.cross_entropy)
labels = np.array([[7, 8, 9, 2], [5, 2, -100, -100]])
with torch.no_grad():
    ours = model(input_ids=torch.tensor(source), labels=torch.tensor(labels), label_smoothing=0.1).loss
agree(np.array(twin.loss(source, labels, label_smoothing=0.1)), ours)
print(f"untrained: {float(ours):.2f} nats a token; log V = {math.log(V):.2f}")

# %% [markdown]
# ## 9. A small language, and its pieces
#
# The embedded phrasebook has English and French sentences that a grammar makes, with the links of their words. Of
# both languages together one vocabulary of byte pairs is learned (section 5.1): frequent words are whole, rare ones
# fall into pieces, and no text is without an encoding.

# %%
from vanilla_transformer.training.recipe import load_recipe  # noqa: E402
from vanilla_transformer.training.train import train  # noqa: E402

recipe = load_recipe("phrasebook", ["training.max_steps=800", "training.eval_steps=400"])
print(recipe.model, recipe.training, sep="\n")

# %% [markdown]
# ## 10. Training
#
# The paper's optimizer is Adam, with a learning rate that grows for some steps and then falls (equation 3):
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5}, step \cdot warmup^{-1.5})$$
#
# The scheduler of transformers that is called `inverse_sqrt` draws this line when its peak is
# $d_{model}^{-0.5} \cdot warmup^{-0.5}$, which is what our recipes take where they name no learning rate.

# %%
warmup, steps = 400, np.arange(1, 2001)
rates = 128**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
adam = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=128**-0.5 * warmup**-0.5)
schedule = get_scheduler("inverse_sqrt", adam, num_warmup_steps=warmup)
scheduled = []
for _ in steps:
    adam.step()
    schedule.step()
    scheduled.append(schedule.get_last_lr()[0])
agree(rates, torch.tensor(scheduled))
print(f"the peak, {max(rates):.4f}, is at step {steps[rates.argmax()]}")

# %% [markdown]
# This recipe trains for two minutes on a language without exceptions, and so departs from the paper in five points,
# most of which the comments of `vanilla_transformer/recipes/phrasebook.yaml` measure: the optimizer of the layers'
# matrices is Muon (Jordan et al. 2024), whose steps are orthogonal matrices; the rate falls along a line, down to 0;
# the norms stand before the sub-layers, $x + \mathrm{Sublayer}(\mathrm{LayerNorm}(x))$; and there is neither label
# smoothing nor dropout (section 5.4: some numbers, drawn anew at each step, are set to zero, so that no weight relies
# on another one), which keep a model from learning its examples by heart.

# %%
read(numpy_layers.pre_norm, layers.PreNorm)

# %% [markdown]
# One call; every 400 steps it translates some sentences of the validation set. This is most of this notebook's time.

# %%
result = train(recipe, folder / "run", overwrite=True)

# %%
from vanilla_transformer.inspection.curves import draw_curves  # noqa: E402

Image(draw_curves(folder / "run", folder / "curves.png"), width=900)

# %%
from vanilla_transformer.translation import load_translator  # noqa: E402

translator = load_translator(result.model, device="cpu")
sentence = "The old man is reading a new book."
for text in (sentence, "The old grandmaster is rereading a newish bookazine."):  # words that it has never seen
    print(translator.tokenizer.readable_tokens(translator.tokenizer(text)["input_ids"]))
print(translator([sentence])[0].text)

# %% [markdown]
# ## 11. Searching for a translation  (section 6.1)
#
# The model gives chances of the next token; greedy search takes the best one each time, beam search keeps the $k$ best
# beginnings:
#
# $$\hat y = \arg\max_y \frac{1}{|y|^{\alpha}} \sum_t \log p(y_t \mid y_{<t}, x)$$

# %%
read(numpy_search.greedy_search, search.greedy, numpy_search.beam_search, search.beam_search)

# %% [markdown]
# The twin in NumPy reads what torch has trained, and finds the same translation, one token at a time and without a
# cache.

# %%
twin = reference.NumpyTransformer.from_pretrained(result.model)
print(twin.translate(sentence))
assert twin.translate(sentence) == translator([sentence])[0].text
for candidate in translator.candidates([sentence], n_best=4, scores=True)[0]:
    print(f"{candidate.score:7.3f}  {candidate.text}")

# %% [markdown]
# How good is it? On sentences that it has not seen, each with at least one combination of words that it has not seen:

# %%
from vanilla_transformer.evaluation import exact_match, translation_scores  # noqa: E402

test = result.splits["test"].select(range(300))
sources, references = list(test["source"]), list(test["target"])
for beams in (1, 4):
    texts = [found.text for found in translator(sources, num_beams=beams)]
    bleu = translation_scores(texts, references, ["BLEU"])[0]
    print(f"{beams} beams: BLEU {bleu.score:.1f}, {exact_match(texts, references):.0f} % right to the letter")

# %% [markdown]
# **Exercise.** Find out what each side knows. The cell gives the decoder the beginning of one translation and the
# encoder's output of another sentence: what follows from which?

# %%
tokenizer, model = translator.tokenizer, translator.model
begun = tokenizer(text_target=["Le vieil homme"], add_special_tokens=False, return_tensors="pt")["input_ids"]
begun = nn.functional.pad(begun, (1, 0), value=model.config.decoder_start_token_id)  # (1, 1 + T)
with torch.no_grad():
    other = model.get_encoder()(**tokenizer(["We love the small garden."], return_tensors="pt"))
    greedily = {"num_beams": 1, "length_penalty": None, "early_stopping": None, "max_length": 30}
    mixed = model.generate(encoder_outputs=other, decoder_input_ids=begun, **greedily)
print(tokenizer.decode(mixed[0], skip_special_tokens=True))

# %% [markdown]
# ## 12. What the heads look at
#
# Rows are what the decoder has just read, columns the source; dark is a large share. English puts adjectives before
# the noun, French most of them behind it: somewhere the diagonal must cross.

# %%
maps = collect_attention(translator.model, translator.tokenizer, "She is eating the red apple in the modern kitchen.")
print(maps.target)
Image(figures.plot_layers(maps, "cross", folder / "layers.png"), width=900)

# %%
Image(figures.plot_heads(maps, "cross", 2, folder / "heads.png"), width=900)

# %% [markdown]
# The same as links between words, read off the heads that training has found to agree best, and scored against those
# that the grammar knows:
#
# $$\mathrm{AER} = 1 - \frac{2 |A \cap S|}{|A| + |S|}$$

# %%
from vanilla_transformer.evaluation.alignments import score_alignments  # noqa: E402

print(score_alignments(translator, sources, references, test["links"]))

# %% [markdown]
# ## 13. A map of words
#
# The embedding is learned from nothing but translation; words that are used alike end up near each other.

# %%
known = (
    "red blue green white black cat dog bird horse man woman boy girl teacher apple bread soup cake reads eats sees"
)
for method in ("pca", "tsne"):  # the plane in which most of the distances lie; one that keeps neighbours together
    picture = folder / f"words-{method}.png"
    figures.plot_embeddings(translator.model, translator.tokenizer, known.split(), picture, method)
    display(Image(picture, width=700))

# %% [markdown]
# ## What next
#
# - Leave something out and train again, with one more word in the list of section 9: `"model.positions=none"`,
#   `"training.label_smoothing=0.3"`, or `"model.encoder_attention_heads=1"`. What breaks, and what does not?
# - The trained model is in the folder that the last cell names. `vanilla-transformer attention FOLDER "..."` writes
#   the maps of this lesson as a page to play with, `vanilla-transformer report` says where a translator fails, and
#   `vanilla-transformer doctor` whether it is sound.
# - Read the model from the top: `vanilla_transformer/model/modeling_vanilla_transformer.py`; and its twin:
#   `vanilla_transformer/reference/`.

# %%
print(result.model)
