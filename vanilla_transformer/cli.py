"""The command `vanilla-transformer`: arguments in, calls down, no logic."""

import argparse
import dataclasses
import errno
import json
import os
import shlex
import sys
from difflib import get_close_matches
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code: 0, 1 for a user's mistake (told in a line), 130 after Ctrl-C."""
    arguments = parse(argv)
    try:
        code = arguments.run(arguments) or 0
        sys.stdout.flush()  # here, where a failure is told
        return code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        give_up_stdout()
        return 0
    except user_errors() as error:
        if arguments.traceback:
            raise
        from .model.configuration_vanilla_transformer import innermost

        message = " ".join(str(innermost(error)).split())
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            from .data.whole_files import room_left

            output = getattr(arguments, "output", None) or getattr(arguments, "json_file", None)
            message += f" ({room_left(output if isinstance(output, Path) else Path())})"
        print(f"vanilla-transformer {arguments.command}: error: {message}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            give_up_stdout()
        return 1


def give_up_stdout() -> None:
    """What is left to be printed is lost, without a word when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def user_errors() -> tuple[type[Exception], ...]:
    """What a user can cause: values, files, a package that an option needs. Anything else is a fault of ours and shows
    its traceback."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    return ValueError, OSError, ImportError, StrictDataclassError, SafetensorError


def parse(argv: list[str] | None) -> argparse.Namespace:
    top = parser()
    arguments, rest = top.parse_known_args(argv)
    # Of files behind an option (`translate MODEL --beams 5 FILE`) argparse knows nothing more, once it has seen MODEL.
    if rest and ("files" not in arguments or any(word.startswith("--") for word in rest)):
        arguments.parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.files += [Path(word) for word in rest]
    return arguments


class Parser(argparse.ArgumentParser):
    """Suggests the nearest option for one that there is not."""

    def __init__(self, *args, **kwargs):
        self.options: set[str] = set()
        super().__init__(*args, **kwargs)

    def add_argument(self, *names, **kwargs):
        self.options.update(name for name in names if name.startswith("--"))
        return super().add_argument(*names, **kwargs)

    def error(self, message):
        for word in message.partition("unrecognized arguments:")[2].split():
            near = get_close_matches(word.partition("=")[0], self.options, n=1)
            message += f"; did you mean {near[0]} instead of {word}?" if near else ""
        super().error(message)


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="vanilla-transformer", description="Train, use and score the Transformer of 'Attention Is All You Need'."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run, help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.add_argument("--threads", type=positive, help="CPU threads of torch (default: its own choice)")
        sub.add_argument("--traceback", action="store_true", help="show where an error comes from")
        sub.set_defaults(run=run, parser=sub)
        return sub

    p = command("train", run_train, "train a translator or a language model as a recipe says")
    p.add_argument("recipe", metavar="RECIPE", help="name of a shipped recipe, or a YAML file")
    p.add_argument("-o", "--output", type=Path, help="run folder (default: runs/RECIPE)")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                   help="change the recipe: training.max_steps=100 (repeatable)")  # fmt: skip
    p.add_argument("--from", dest="from_model", metavar="MODEL", help="fine-tune this folder or Hub id; "
                   "--set model=null --set tokenizer=null keep what it has")  # fmt: skip
    p.add_argument("--resume", action="store_true", help="go on from the newest checkpoint of the run folder")
    p.add_argument("--overwrite", action="store_true", help="replace the run folder")

    p = command("translate", run_translate, "translate lines of text")
    model_options(p)
    p.add_argument("files", nargs="*", type=Path, metavar="FILE", help="texts, one a line (default: stdin)")
    p.add_argument("-o", "--output", type=Path, help="where to write (default: stdout)")
    p.add_argument("--overwrite", action="store_true", help="replace the output file")
    decoding_options(p)
    p.add_argument("--n-best", type=int, default=1, metavar="N", help="so many candidates a line, best first")
    p.add_argument("--scores", action="store_true", help="TAB and the score behind each translation")
    p.add_argument("--alignments", action="store_true",
                   help="TAB and the links of its words behind each: source-target, from 0 on")  # fmt: skip
    p.add_argument("--alignment-heads", metavar="HEADS", help="where links are read off, LAYER:HEAD,..., from 1 on "
                   "(default: those that training has chosen)")  # fmt: skip

    p = command("evaluate", run_evaluate, "score translations of SOURCE against REFERENCE")
    model_options(p)
    p.add_argument("source", type=Path, metavar="SOURCE", help="texts, one a line, gzipped or not")
    p.add_argument("reference", type=Path, metavar="REFERENCE", help="their translations")
    p.add_argument("--json", type=Path, dest="json_file", help="write scores and settings there as well")
    p.add_argument("--overwrite", action="store_true", help="replace that file")
    p.add_argument("--moses", metavar="LANG", help="also BLEU of lower-cased text in the tokens of Moses, as papers "
                   "on Multi30k give it, for this target language")  # fmt: skip
    p.add_argument("--show", type=positive, default=0, metavar="N", help="print the first N translations")
    decoding_options(p)

    p = command("attention", run_attention, "show what each head looks at while MODEL translates a sentence")
    model_options(p)
    p.add_argument("text", metavar="TEXT", help="the sentence to translate")
    p.add_argument("-o", "--output", type=Path, default=Path("attention.html"), metavar="FILE",
                   help="page (.html), picture (.png, .svg) or numbers (.json) (default: attention.html)")  # fmt: skip
    p.add_argument("--overwrite", action="store_true", help="replace that file")
    p.add_argument("--target", metavar="TEXT", help="a translation to look at, instead of the model's own")
    p.add_argument("--beams", type=positive, metavar="K", help="beams; 1 is greedy (default: the model's own)")
    p.add_argument(
        "--n-best", type=positive, metavar="N", help="so many translations on the page (default: all beams)"
    )
    p.add_argument("--kind", choices=["encoder", "decoder", "cross", "words"], help="of a picture (default: cross); "
                   "words: which of them belong together, as --alignments of translate finds it")  # fmt: skip
    p.add_argument("--layer", type=positive, metavar="L", help="of a picture: the heads of this layer, the first is 1 "
                   "(default: the mean of each layer)")  # fmt: skip

    p = command("app", run_app, "a page on this machine to try MODEL: translations, candidates, attention")
    model_options(p)
    p.add_argument("--port", type=positive, help="of the page on 127.0.0.1 (default: the first free one from 7860 on)")
    p.add_argument("--open", action="store_true", help="open it in the browser")

    p = command("report", run_report, "what MODEL does well and badly on a test set, as one HTML page and JSON")
    model_options(p)
    p.add_argument("--source", type=Path, required=True, metavar="FILE", help="texts, one a line, gzipped or not")
    p.add_argument("--reference", type=Path, required=True, metavar="FILE", help="their translations")
    p.add_argument(
        "--training", type=Path, metavar="FILE", help="target side of the training set: what is rare there, or longer"
    )
    p.add_argument("-o", "--output", type=Path, action="append", metavar="FILE",
                   help=".html or .json (repeatable; default: report.html)")  # fmt: skip
    p.add_argument("--overwrite", action="store_true", help="replace these files")
    p.add_argument("--truncate", action="store_true", help="cut sources that are too long for the model's positions")

    p = command("doctor", run_doctor, "check that MODEL is sound: leaks, padding, cache, tying, settings, tokenizer")
    model_options(p)
    p.add_argument("--json", type=Path, dest="json_file", help="write the findings there as well")
    p.add_argument("--overwrite", action="store_true", help="replace that file")

    p = command("curves", run_curves, "draw loss, scores, rate, gradient norm and speed of a run")
    p.add_argument("folder", type=Path, metavar="RUN", help="folder of a run, finished or not")
    p.add_argument("-o", "--output", type=Path, help="picture, PNG or SVG (default: RUN/curves.png)")

    p = command("tokenizer", run_tokenizer, "learn a joint vocabulary from text files")
    p.add_argument("files", nargs="+", type=Path, metavar="FILE", help="texts of both languages, one a line")
    p.add_argument("--vocab-size", type=positive, required=True, help="tokens in all")
    p.add_argument("-o", "--output", type=Path, required=True, help="folder to save it in")
    p.add_argument("--overwrite", action="store_true", help="replace the folder")

    p = command("convert", run_convert, "make a Marian checkpoint (OPUS-MT) a model of this package, or the reverse")
    p.add_argument("source", metavar="SOURCE", help="folder or Hub id, such as Helsinki-NLP/opus-mt-en-fr")
    p.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder to save it in")
    p.add_argument("--to", choices=["vanilla", "marian"], default="vanilla", help="kind to make (default: vanilla)")
    p.add_argument("--overwrite", action="store_true", help="replace the folder")

    p = command("demo", run_demo, "the phrasebook from corpus to translations, in minutes")
    p.add_argument("-o", "--output", type=Path, default=Path("runs/demo"), help="run folder (default: runs/demo)")
    p.add_argument("--resume", action="store_true", help="go on where it was stopped")
    p.add_argument("--overwrite", action="store_true", help="replace the run folder")
    return top


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {value}, expected at least 1")
    return value


def model_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("model", metavar="MODEL", help="folder or Hub id of an encoder-decoder, ours or of transformers")
    p.add_argument("--src-lang", metavar="LANG", help="language of the source, for a model that knows many")
    p.add_argument("--tgt-lang", metavar="LANG", help="language to translate into, for such a model")


def decoding_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--beams", type=positive, metavar="K", help="beams; 1 is greedy (default: the model's own)")
    p.add_argument("--length-penalty", type=float, help="a beam's score is divided by length ** this "
                   "(default: the model's own)")  # fmt: skip
    p.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32",
                   help="of the weights (default: float32)")  # fmt: skip
    p.add_argument("--packed", choices=["float32", "bfloat16", "int8"],
                   help="for speed on a CPU: matrices in another order, or rounded, with AVX-512 VNNI")  # fmt: skip
    p.add_argument("--max-tokens", type=positive, help="padded source tokens times beams in a batch")
    p.add_argument("--truncate", action="store_true", help="cut sources that are too long for the model's positions")


def prepare(arguments) -> None:
    """Settings of the process, before its work."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()  # of loading and saving weights: noise beside the bars of training and translating
    if arguments.threads:
        torch.set_num_threads(arguments.threads)


def languages(arguments) -> dict:
    return {"src_lang": arguments.src_lang, "tgt_lang": arguments.tgt_lang}


def decoding_settings(arguments) -> dict:
    from .translation.translate import MAX_TOKENS

    return {
        "num_beams": arguments.beams,
        "length_penalty": arguments.length_penalty,
        "max_tokens": arguments.max_tokens or MAX_TOKENS,
        "truncation": arguments.truncate,
        "dtype": arguments.dtype,
        "packed": arguments.packed,
        "progress": sys.stderr.isatty() or arguments.command == "evaluate",
    }


def run_train(arguments) -> int:
    prepare(arguments)
    from accelerate import PartialState

    from .training.diversification import train_recipe
    from .training.recipe import load_recipe
    from .training.run_folder import result_of
    from .training.tasks import TASKS
    from .translation.shares import command_line

    recipe = load_recipe(arguments.recipe, arguments.settings)
    run = arguments.output or Path("runs") / Path(arguments.recipe).stem
    result = train_recipe(
        recipe,
        run,
        resume=arguments.resume,
        overwrite=arguments.overwrite,
        from_model=arguments.from_model,
    )
    processes = PartialState()
    main = processes.is_main_process
    if result.model is None:
        again = ["train", arguments.recipe, "-o", str(run), "--resume"]
        again += [part for setting in arguments.settings for part in ("--set", setting)]
        again += ["--threads", str(arguments.threads)] if arguments.threads else []
        if main:
            command = command_line(again, processes.num_processes)
            print(f"stopped after step {result.step}, which is saved. Go on with: {command}", file=sys.stderr)
        return 130
    if not main:
        return 0
    print(json.dumps(result_of(run), indent=2))
    model = str(result.model)
    usage = TASKS[recipe.task].usage.format(shell=shlex.quote(model), python=json.dumps(model))
    print(f"the model is in {model}; try: {usage}")
    return 0


def run_translate(arguments) -> None:
    prepare(arguments)
    from .translation.alignments import AlignmentHeads
    from .translation.files import translate_files

    heads = arguments.alignment_heads
    translate_files(
        arguments.model,
        arguments.files,
        arguments.output,
        overwrite=arguments.overwrite,
        n_best=arguments.n_best,
        scores=arguments.scores,
        alignments=AlignmentHeads.parse(heads) if heads else arguments.alignments,
        **languages(arguments),
        **decoding_settings(arguments),
    )


def run_evaluate(arguments) -> None:
    prepare(arguments)
    from accelerate import PartialState

    from .data.whole_files import check_output, write_whole
    from .evaluation.evaluate_files import evaluate_files

    check_output(arguments.json_file, arguments.overwrite)
    evaluation = evaluate_files(
        arguments.model,
        arguments.source,
        arguments.reference,
        moses=arguments.moses,
        **languages(arguments),
        **decoding_settings(arguments),
    )
    if not PartialState().is_main_process:
        return
    if arguments.json_file:  # before anything is printed, which may fail
        write_whole(arguments.json_file, evaluation.to_json())
    for example in evaluation.examples[: arguments.show]:
        print("\n".join(f"{label:>11}: {text}" for label, text in dataclasses.asdict(example).items()) + "\n")
    print(evaluation.table())


def run_attention(arguments) -> None:
    prepare(arguments)
    from .data.whole_files import check_output
    from .inspection.show import show_attention
    from .translation import load_translator

    check_output(arguments.output, arguments.overwrite)
    translator = load_translator(arguments.model, **languages(arguments))
    written = show_attention(
        translator.model,
        translator.tokenizer,
        arguments.text,
        arguments.output,
        target=arguments.target,
        kind=arguments.kind,
        layer=arguments.layer,
        n_best=arguments.n_best,
        num_beams=arguments.beams,
    )
    print(written)


def run_app(arguments) -> None:
    prepare(arguments)
    from .inspection.app import serve
    from .translation import load_translator

    serve(load_translator(arguments.model, **languages(arguments)), port=arguments.port, open_browser=arguments.open)


def run_report(arguments) -> None:
    prepare(arguments)
    from .data.whole_files import check_output, write_whole
    from .inspection.report import make_report, writer

    outputs = arguments.output or [Path("report.html")]
    writers = [writer(output) for output in outputs]
    for output in outputs:
        check_output(output, arguments.overwrite)
    report = make_report(
        arguments.model,
        arguments.source,
        arguments.reference,
        training=arguments.training,
        truncation=arguments.truncate,
        progress=True,
        **languages(arguments),
    )
    for output, write in zip(outputs, writers, strict=True):
        write_whole(output, write(report))
        print(output)


def run_doctor(arguments) -> int:
    prepare(arguments)
    from .data.whole_files import check_output, write_whole
    from .inspection.doctor import examine
    from .translation import load_translator

    check_output(arguments.json_file, arguments.overwrite)
    translator = load_translator(arguments.model, **languages(arguments))
    findings = examine(translator.model, translator.tokenizer)
    if arguments.json_file:  # before anything is printed, which may fail
        write_whole(arguments.json_file, json.dumps([dataclasses.asdict(f) for f in findings], indent=2))
    print(*findings, sep="\n")
    failed = sum(finding.verdict == "FAIL" for finding in findings)
    print(f"{len(findings)} checks, {failed} failed")
    return 1 if failed else 0


def run_curves(arguments) -> None:
    from .inspection.curves import draw_curves

    print(draw_curves(arguments.folder, arguments.output or arguments.folder / "curves.png"))


def run_tokenizer(arguments) -> None:
    from .data.corpora import read_lines
    from .data.vocabulary import check_new_folder, learn_tokenizer

    check_new_folder(arguments.output, overwrite=arguments.overwrite)
    texts = (line for file in arguments.files for line in read_lines(file))
    tokenizer = learn_tokenizer(texts, arguments.vocab_size)
    tokenizer.save_pretrained(arguments.output)
    print(f"{len(tokenizer)} tokens in {arguments.output}")


def run_convert(arguments) -> None:
    prepare(arguments)
    from .interop import convert

    model = convert(arguments.source, arguments.output, to=arguments.to, overwrite=arguments.overwrite)
    print(
        f"{type(model).__name__} of {model.num_parameters():,} parameters in {arguments.output}; "
        f"try: echo 'Some text.' | vanilla-transformer translate {shlex.quote(str(arguments.output))}"
    )


def run_demo(arguments) -> int:
    prepare(arguments)
    from .training.demo import demo

    return demo(arguments.output, resume=arguments.resume, overwrite=arguments.overwrite)
