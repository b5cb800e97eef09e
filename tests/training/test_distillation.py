import pytest
import torch
from torch import nn

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForSeq2SeqLM
from vanilla_transformer.model import loss as chunks
from vanilla_transformer.model.loss import cross_entropy
from vanilla_transformer.training.distillation import Teachers, distillation_loss


@pytest.fixture
def folders(tmp_path):
    """Teachers of different sizes, one of them with a bias in its head."""
    folders = []
    for number, fields in enumerate(({"d_model": 16, "lm_head_bias": True}, {"d_model": 8, "encoder_layers": 1})):
        torch.manual_seed(number)
        model = VanillaTransformerForSeq2SeqLM(VanillaTransformerConfig.preset("tiny", vocab_size=30, **fields))
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
        model.save_pretrained(tmp_path / str(number))
        folders.append(tmp_path / str(number))
    return folders


@pytest.fixture
def batch():
    torch.manual_seed(2)
    mask = torch.ones(4, 7, dtype=torch.long)
    mask[1, 4:] = 0
    inputs = {"input_ids": torch.randint(4, 30, (4, 7)), "attention_mask": mask}
    return {**inputs, "decoder_input_ids": torch.randint(4, 30, (4, 50))}


def teachers(folders, share=0.7, dtype=torch.float32):
    return Teachers(folders, share, torch.device("cpu"), dtype=dtype, attn_implementation="eager")


def written_out(head, x, labels, label_smoothing, share, logits):
    """The formula over logits that are all held."""
    log_p, q = head(x).log_softmax(-1), torch.stack(logits).mean(0).softmax(-1)
    right = nn.functional.cross_entropy(head(x), labels, label_smoothing=label_smoothing, reduction="sum")
    return (1 - share) * right - share * (q * log_p).sum()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("label_smoothing", "share"), [(0.0, 0.0), (0.1, 0.0), (0.1, 0.7), (0.0, 0.7), (0.1, 1.0)])
def test_loss_and_gradients(bias, label_smoothing, share, monkeypatch):
    """Of several chunks, the last one shorter."""
    monkeypatch.setattr(chunks, "FEWEST_ROWS", 64)
    monkeypatch.setattr(chunks, "CHUNKS", {"cpu": 1})
    torch.manual_seed(0)
    head = nn.Linear(6, 30, bias=bias, dtype=torch.float64)
    labels = torch.randint(30, (150,))
    logits = [torch.randn(150, 30, dtype=torch.float64) for _ in range(2)]

    def chunked(head, x, labels, label_smoothing, share, logits):
        return distillation_loss(
            head, x, labels, label_smoothing, share, lambda rows: sum(part[rows] for part in logits).div(2).softmax(-1)
        )

    found = []
    for loss in (chunked, written_out):
        x = torch.randn(150, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        head.zero_grad()
        total = loss(head, x, labels, label_smoothing, share, logits)
        (3 * total).backward()
        found.append([total, x.grad, *(parameter.grad for parameter in head.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-6, atol=1e-6)


def test_teachers_together(folders, batch):
    """What they hold of a token is the softmax of their mean logits, as their own `forward` gives them."""
    kept = torch.rand(4, 50) < 0.5
    chances = teachers(folders).read(batch, kept)
    models = [VanillaTransformerForSeq2SeqLM.from_pretrained(folder).eval() for folder in folders]
    with torch.no_grad():
        logits = torch.stack([model(**batch).logits for model in models]).mean(0)[kept]
    torch.testing.assert_close(chances(slice(3, 70)), logits.softmax(-1)[3:70])


def test_a_student_that_knows_all_has_nothing_to_learn(folders, batch):
    """Of a single teacher, itself, without the next token: the gradient vanishes."""
    student = VanillaTransformerForSeq2SeqLM.from_pretrained(folders[0]).eval()
    kept = torch.ones(4, 50, dtype=torch.bool)
    x = student.model(**batch).last_hidden_state[kept].detach().requires_grad_()
    labels = torch.zeros(200, dtype=torch.long)
    for share in (1.0, 0.5):
        loss = distillation_loss(
            student.lm_head, x, labels, 0.1, share, teachers(folders[:1], share).read(batch, kept)
        )
        (grad,) = torch.autograd.grad(loss, x)
        assert (grad.norm() < 1e-4) == (share == 1.0)


def test_in_bfloat16(folders, batch):
    """Logits and probabilities are rounded to 8 bits; what they add up to is not."""
    student = VanillaTransformerForSeq2SeqLM.from_pretrained(folders[1]).eval()
    kept = torch.ones(4, 50, dtype=torch.bool)
    x = student.model(**batch).last_hidden_state[kept].detach().requires_grad_()
    labels = batch["decoder_input_ids"][kept]
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        chances = teachers(folders, dtype=dtype).read(batch, kept)
        with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
            loss = distillation_loss(student.lm_head, x, labels, 0.1, 0.7, chances)
        assert loss.dtype == torch.float32
        found.append((loss.detach(), *torch.autograd.grad(loss, x)))
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).norm() < 0.05 * theirs.norm()


def test_no_teacher_no_difference():
    head, x, labels = nn.Linear(6, 30), torch.randn(5, 6), torch.arange(5)
    expected = cross_entropy(head(x)[None], labels[None], 0.1, 1)
    torch.testing.assert_close(distillation_loss(head, x, labels, 0.1, 0.0, lambda rows: torch.zeros(5, 30)), expected)
