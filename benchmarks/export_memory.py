"""How much memory an export takes: `python -m benchmarks.export_memory`.

A random fp16 checkpoint in the layout and the sizes of Qwen2.5-1.5B is written shard by shard, and
exported in a process of its own whose peak resident memory is read afterwards. The graphs then pass
the ONNX checker, and each is opened by ONNX Runtime, again in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import tokenizers
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

from runtime.bundle import Bundle

SIZES = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}
EXPORT = "slipstream", "export", "{target}", "--out", "{bundle}", "--no-parity"


def main() -> None:
    """Write, export, check, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=SIZES["num_hidden_layers"])
    parser.add_argument("--folder", type=Path, help="where to work; a temporary one by default")
    parser.add_argument("--open", action="store_true", help="also open each graph (fp32 weights)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        _measure(Path(name), options.layers, options.open)


def _measure(folder: Path, layers: int, opened: bool) -> None:
    target, bundle = folder / "target", folder / "bundle"
    parameters, size = write_checkpoint(target, layers)
    print(f"checkpoint: {parameters / 1e9:.2f} billion parameters, {size / 1e9:.2f} GB in fp16")
    arguments = [part.format(target=target, bundle=bundle) for part in EXPORT]
    peak, seconds = in_a_process("-m", *arguments)
    print(f"export: {seconds:.0f} s, peak {peak / 1e9:.2f} GB = {peak / size:.2f} x the weights")
    for name, graph in Bundle.open(bundle).manifest.graphs.items():
        path = bundle / graph.file
        onnx.checker.check_model(str(path), full_check=True)
        beside = sum((bundle / each).stat().st_size for each in graph.external)
        print(f"{name}: {path.stat().st_size / 1e6:.1f} MB, beside it {beside / 1e6:.1f} MB, valid")
        if opened:
            code = (
                f"import onnxruntime as o; o.InferenceSession({str(path)!r}, providers=[{_CPU!r}])"
            )
            peak, seconds = in_a_process("-c", code)
            print(f"  opened by ONNX Runtime in {seconds:.0f} s, peak {peak / 1e9:.2f} GB")


_CPU = "CPUExecutionProvider"


def in_a_process(*arguments: str) -> tuple[int, float]:
    """Peak resident bytes and seconds of a Python process, which must succeed."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, *sys.argv[1:]], check=True, stdout=sys.stderr)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    scale = 1 if sys.platform == "darwin" else 1024
    return int(done.stdout) * scale, time.perf_counter() - began


def write_checkpoint(folder: Path, layers: int) -> tuple[int, int]:
    """A random checkpoint, a shard a layer; returns its parameters and bytes."""
    folder.mkdir(parents=True)
    shards = list(_shards(layers))
    weight_map: dict[str, str] = {}
    parameters = 0
    rng = np.random.default_rng(0)
    for number, shapes in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {name: _random(rng, shape) for name, shape in shapes.items()}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shapes, file)
        parameters += sum(each.size for each in tensors.values())
        del tensors
    index = {"metadata": {"total_size": 2 * parameters}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = SIZES | {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "num_hidden_layers": layers,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "use_sliding_window": False,
        "sliding_window": 32768,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    _write_tokenizer(folder)
    return parameters, sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _shards(layers: int) -> Iterator[dict[str, tuple[int, ...]]]:
    width, inner, vocab = SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["vocab_size"]
    kv = width // SIZES["num_attention_heads"] * SIZES["num_key_value_heads"]
    yield {"model.embed_tokens.weight": (vocab, width)}
    for layer in range(layers):
        own: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (width,),
            "post_attention_layernorm.weight": (width,),
            "self_attn.o_proj.weight": (width, width),
            "mlp.gate_proj.weight": (inner, width),
            "mlp.up_proj.weight": (inner, width),
            "mlp.down_proj.weight": (width, inner),
        }
        for part, rows in (("q", width), ("k", kv), ("v", kv)):
            own[f"self_attn.{part}_proj.weight"] = (rows, width)
            own[f"self_attn.{part}_proj.bias"] = (rows,)
        yield {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
    yield {"model.norm.weight": (width,)}


def _random(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float16]:
    """fp16 numbers of both signs between 2^-7 and 2^-6, made of random bits."""
    bits = np.frombuffer(rng.bytes(2 * math.prod(shape)), np.uint16)
    return (bits & 0x83FF | 0x2000).view(np.float16).reshape(shape)


def _write_tokenizer(folder: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    inner.save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    main()
