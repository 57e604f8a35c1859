"""Train a target from its config."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from transformers import Qwen3ForCausalLM

from planners.language import Language
from planners.nets.qwen3 import load_target, round_to_bf16, save_target
from planners.tokens import Tokenizer
from planners.training.evaluation import ade, greedy_paths
from planners.training.examples import Examples, examples_of
from planners.training.target import seeded_target, train_target, warm_started
from planners.training.teacher import train_teacher
from planners.training.tokenizer import write_fast_ddrive, write_tiny
from runtime.errors import SlipstreamError
from runtime.files import write_atomic
from slipstream import shipped_bundle
from slipstream.training.config import Special, TargetConfig
from slipstream.training.device import prepared
from slipstream.training.folder import OUT, RunFolder
from slipstream.training.request import Request
from slipstream.training.screen import Show
from slipstream.training.windows import training_windows, validation_windows

WORDS = ("tokenizer.json", "language.json")
TINY = shipped_bundle("tiny").parent  # the checkpoints beside it are in a source checkout
MADE = {"tiny": write_tiny, "fast-ddrive": write_fast_ddrive}  # tokenizers, by their names


def run_target(config: TargetConfig, request: Request, console: Console) -> bool:
    """Train; the checkpoint is written when the last step is done. Returns whether it is.

    Raises:
        SlipstreamError: a drive, a checkpoint, the device or the output folder can't be used.
    """
    place = prepared(request.device, request.threads)
    training = training_windows(config.data)
    look = validation_windows(config.data, config.evaluation.windows)
    target, examples, words = _beginning(config)
    run = RunFolder(config.out, config)
    with run.opened(request.resume, request.command):
        for name, data in words.items():
            write_atomic(config.out / name, data, option=OUT)
        settings = config.training
        with console.status("training the teacher"):
            teacher = train_teacher(training, settings.augmentation, config.teacher)
        target.to(place)

        def evaluate() -> dict[str, float]:
            return {"ade": ade(greedy_paths(target, look, examples)[0], look)}

        with Show("target", ("ade",), run.path, console) as show:
            train_target(
                target,
                training,
                examples,
                teacher,
                settings,
                run.path,
                evaluate=evaluate,
                every=config.evaluation.every,
                save_every=config.save_every,
                until=request.until,
                watch=show,
            )
        if not request.ends(settings.schedule.steps):
            return False
        round_to_bf16(target)
        save_target(target.cpu(), config.out)
        return True


def load_examples(folder: Path, vocab: int, special: Special) -> Examples:
    """The words of a checkpoint: its tokenizer and its output language.

    Raises:
        SlipstreamError: a file is missing or damaged.
    """
    for name in WORDS:
        if not (folder / name).is_file():
            raise SlipstreamError(
                f"{folder} lacks {name}",
                expected=f"{' and '.join(WORDS)} beside the checkpoint",
                found="none",
                fix=f"copy {name} there",
            )
    tokenizer = Tokenizer.load(folder / "tokenizer.json", special.names(), vocab=vocab)
    return examples_of(tokenizer, Language.load(folder / "language.json"))


def _beginning(config: TargetConfig) -> tuple[Qwen3ForCausalLM, Examples, dict[str, bytes]]:
    """The target as training finds it, and its words: files to put beside the checkpoint."""
    source = config.start if config.tokenizer is None else config.tokenizer
    with TemporaryDirectory() as made:
        if isinstance(source, str):
            MADE[source](made)
            source = Path(made)
        assert isinstance(source, Path)
        if config.start is not None:
            target = load_target(config.start)
            examples = load_examples(source, target.config.vocab_size, config.special)
        else:
            assert config.sizes is not None
            _check_vocabulary(source, config.sizes.vocab_size, config.special)
            examples = load_examples(source, config.sizes.vocab_size, config.special)
            words = examples.tokenizer, examples.language
            target = seeded_target(config.training.seed, *words, **config.sizes.model_dump())
            if config.warm_start is not None:
                _warm_start(target, examples.tokenizer, config)
        return target, examples, {name: (source / name).read_bytes() for name in WORDS}


def _warm_start(target: Qwen3ForCausalLM, tokenizer: Tokenizer, config: TargetConfig) -> None:
    """Begin with the blocks of another checkpoint, and with its rows of the same tokens."""
    folder = TINY / "target" if config.warm_start == "tiny" else config.warm_start
    assert folder is not None
    source = load_target(folder)
    known = load_examples(folder, source.config.vocab_size, config.special).tokenizer
    warm_started(target, tokenizer, source, known, config.training.seed)


def _check_vocabulary(folder: Path, vocab: int, special: Special) -> None:
    """Insist on a row for every token; a missing tokenizer is `load_examples`'s to tell."""
    path = folder / "tokenizer.json"
    if path.is_file() and (least := Tokenizer.load(path, special.names()).vocab) > vocab:
        raise SlipstreamError(
            "the config's sizes.vocab_size is too small",
            expected=f"at least {least}, the ids of the tokenizer",
            found=str(vocab),
            fix="change sizes.vocab_size",
        )
