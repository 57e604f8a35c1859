"""Model shapes by name, from published `config.json` files: for models that are no bundle yet."""

from __future__ import annotations

from runtime.errors import SlipstreamError
from slipstream.estimate import fast_ddrive
from slipstream.estimate.networks import dflash, qwen3, qwen3_5
from slipstream.estimate.shape import ModelShape, NetworkShape

ROWS = (1024, 512)  # trunk and branch capacity where no bundle says


def _model(
    name: str,
    target: NetworkShape,
    width: int,
    vocab: int,
    draft: NetworkShape | None = None,
    block: int = 16,
) -> ModelShape:
    trunk, branch = ROWS
    return ModelShape(
        name=name,
        target=target,
        draft=draft,
        width=width,
        vocab=vocab,
        block=block if draft else 1,
        trunk_rows=trunk,
        branch_rows=branch,
        most_rollouts=64,
    )


def _qwen3_draft(layers: int, width: int, ffn: int) -> NetworkShape:
    return dflash(layers=layers, width=width, ffn=ffn, heads=32, kv_heads=8, head_dim=128, taps=5)


_Q3, _Q35, _LLAMA = 151936, 248320, 128256
MODELS: dict[str, ModelShape] = {
    model.name: model
    for model in (
        _model(
            "qwen3-1.7b",
            qwen3(layers=28, width=2048, ffn=6144, heads=16, kv_heads=8, head_dim=128),
            2048,
            _Q3,
        ),
        _model(
            "qwen3-4b",
            qwen3(layers=36, width=2560, ffn=9728, heads=32, kv_heads=8, head_dim=128),
            2560,
            _Q3,
            _qwen3_draft(5, 2560, 9728),
        ),
        _model(
            "qwen3-8b",
            qwen3(layers=36, width=4096, ffn=12288, heads=32, kv_heads=8, head_dim=128),
            4096,
            _Q3,
            _qwen3_draft(5, 4096, 12288),
        ),
        _model(
            "qwen3.5-0.8b",
            qwen3_5(
                layers=24, width=1024, ffn=3584, heads=8, kv_heads=2, key_heads=16, value_heads=16
            ),
            1024,
            _Q35,
        ),
        _model(
            "qwen3.5-4b",
            qwen3_5(
                layers=32, width=2560, ffn=9216, heads=16, kv_heads=4, key_heads=16, value_heads=32
            ),
            2560,
            _Q35,
            _qwen3_draft(5, 2560, 9728),
        ),
        _model(
            "qwen3.5-27b",
            qwen3_5(
                layers=64,
                width=5120,
                ffn=17408,
                heads=24,
                kv_heads=4,
                key_heads=16,
                value_heads=48,
            ),
            5120,
            _Q35,
            _qwen3_draft(5, 5120, 17408),
        ),
        _model(
            "llama-3.1-8b",
            qwen3(layers=32, width=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128),
            4096,
            _LLAMA,
        ),
        # the drafter published for it has two layers and drafts blocks of 8
        _model(
            "alpamayo-r1-10b",
            qwen3(layers=36, width=4096, ffn=12288, heads=32, kv_heads=8, head_dim=128),
            4096,
            155697,
            _qwen3_draft(2, 4096, 12288),
            block=8,
        ),
        fast_ddrive.model(),
    )
}


def model_named(name: str) -> ModelShape:
    """A shape by name.

    Raises:
        SlipstreamError: no such name.
    """
    if name not in MODELS:
        raise SlipstreamError(
            f"{name} is neither a bundle nor a known model",
            expected="a folder with bundle.json, or " + " or ".join(MODELS),
            found=name,
            fix="slipstream estimate BUNDLE --device orin-nx",
        )
    return MODELS[name]
