"""The paper in pure NumPy functions, each under its equation: to be read, and to test the model in torch against.

Read in this order, some twenty minutes in all:

1. `attention.py`: softmax, equation 1, several heads, and who may attend to whom  (section 3.2)
2. `positions.py`: five ways to tell a token where it stands  (section 3.5)
3. `layers.py`: norms, feed-forward networks, residual connections  (sections 3.1 and 3.3)
4. `transformer.py`: the stacks, the three models made of them, logits and loss  (Figure 1; sections 3.4 and 5.4)
5. `search.py`: greedy search and beam search  (section 6.1)
6. `model.py`: a checkpoint put together with all of it, as `NumpyTransformer`

What remains is about files: `names.py` lists the weights of a checkpoint with their letters in the papers, and
`load.py`, the only file that imports more than NumPy, reads them.

    python -m vanilla_transformer.reference DIR "The old man reads a book."

It follows the formulas of the papers, not the code of the model in torch, with which it shares the names of weights
and no more: it imports nothing of this package, and a copy of this folder runs by itself. There is no cache, and no
dropout, for it only infers. Every number is a float64 or, on request, a float32.

Shapes: B batch, S source length, T target length, L either of them, H heads, D d_model, K head size, F d_ff,
V vocabulary, k beams. Weights are stored as (out, in), so that a matrix W of the paper is the transpose of `weight`.
"""

from .model import NumpyTransformer

__all__ = ["NumpyTransformer"]
