"""The demo goes on where it was stopped, with its training or with what comes after that."""

import json

import pytest

from vanilla_transformer.cli import main
from vanilla_transformer.training import demo
from vanilla_transformer.training import train as training
from vanilla_transformer.training.trainer import StopOnInterrupt

SMALL_PHRASEBOOK = [
    "corpus.sizes={train: 60, validation: 5, test: 5}",
    "model.d_model=16",
    "model.encoder_ffn_dim=16",
    "model.decoder_ffn_dim=16",
    "training.max_steps=4",
    "training.eval_steps=2",
    "training.eval_pairs=2",
    "training.warmup_steps=2",
    "training.average_checkpoints=1",
]


class Interrupted(StopOnInterrupt):
    """Ctrl-C, in the middle of the second step."""

    def on_step_begin(self, args, state, control, **kwargs):
        self.asked = state.global_step == 1


def test_it_goes_on_where_it_was_stopped(tmp_path, monkeypatch, capsys):
    small = demo.load_recipe("phrasebook", SMALL_PHRASEBOOK)
    monkeypatch.setattr(demo, "load_recipe", lambda name: small)
    run = tmp_path / "a demo"
    with monkeypatch.context() as patch:
        patch.setattr(training, "StopOnInterrupt", Interrupted)
        assert main(["demo", "-o", str(run)]) == 130
    assert f"vanilla-transformer demo -o '{run}' --resume" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(demo, "load_translator", None)  # it ends when all is trained, and nothing scored
        with pytest.raises(TypeError):
            demo.demo(run, resume=True)
    assert (run / "model").exists() and not (run / "test.en").exists()
    monkeypatch.setattr(demo, "train", None)  # for which there is nothing left to do
    assert main(["demo", "-o", str(run), "--resume"]) == 0
    assert "s from where it stopped to scores" in capsys.readouterr().out
    assert {"beam", "greedy", "families"} <= json.loads((run / "demo.json").read_text()).keys()
    assert [len((run / f"test.{side}").read_text("utf-8").splitlines()) for side in ("en", "fr")] == [5, 5]
