"""The gate: a model that cannot learn to copy has a leak, a wrong mask, a wrong shift or a wrong initialisation."""

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForSeq2SeqLM

EPOCHS, BATCH, WARMUP, PEAK = 6, 16, 60, 2e-3


def test_copy_task_is_learned_in_six_epochs():
    """1,000 sequences of 10 ids, 128d, 4 heads, 2+2 layers: at least 99 % of the ids of 200 held-out sequences are
    copied by greedy search (the published ancestor of this task, which leaks its targets, reaches 1.6 %)."""
    torch.manual_seed(0)
    config = VanillaTransformerConfig(
        vocab_size=63, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=512, decoder_ffn_dim=512, dropout=0.0,
    )  # fmt: skip
    model = VanillaTransformerForSeq2SeqLM(config)
    sequences = torch.cat([torch.randint(3, 63, (1200, 10)), torch.full((1200, 1), config.eos_token_id)], 1)
    train, held_out = sequences[:1000], sequences[1000:]
    optimizer = torch.optim.Adam(model.parameters(), lr=PEAK, betas=(0.9, 0.98), eps=1e-9)
    steps = EPOCHS * -(-len(train) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, (steps - step) / (steps - WARMUP))
    )
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(train)).split(BATCH):
            loss = model(input_ids=train[rows], labels=train[rows]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    copies = model.generate(held_out, num_beams=1, max_new_tokens=11)
    assert copies.shape == (200, 12)
    correct = (copies[:, 1:11] == held_out[:, :10]).float().mean().item()
    assert correct >= 0.99, f"{correct:.1%} of the held-out ids are copied"

    # A source matters: with the sources of other sequences the loss of every target rises.
    with torch.no_grad():
        right = model(input_ids=held_out, labels=held_out).loss
        wrong = model(input_ids=held_out.roll(1, 0), labels=held_out).loss
    assert wrong > right + 1
