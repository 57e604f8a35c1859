"""The target network: transformers' Qwen3, made, loaded, saved, and run with taps."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from planners.nets.files import INDEX, WEIGHTS, read_object
from planners.nets.layers import Mask, attend, rms_norm, rotary_table, rotate, split_heads
from runtime.errors import SlipstreamError


class Cache:
    """Keys (after RoPE) and values of earlier rows, written in place into one allocation.

    Args:
        rows: N sequences.
        capacity: T, the most rows of a sequence.
        device: where they lie; the host by default.

    Attributes:
        length: rows in use; set back, it forgets the rows behind.
    """

    def __init__(
        self, config: Qwen3Config, rows: int, capacity: int, device: torch.device | None = None
    ) -> None:
        shape = (config.num_hidden_layers, 2, rows, config.num_key_value_heads)
        self.length = 0
        self.buffer = torch.empty(*shape, capacity, config.head_dim, device=device)

    def of(self, rows: Tensor) -> Cache:
        """A copy for some of the sequences, numbered [M]."""
        some = copy(self)
        some.buffer = self.buffer[:, :, rows]
        return some

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write new rows [N, Hkv, S, D] behind the cached ones; returns all of them."""
        end = self.length + k.shape[2]
        rows = self.buffer[layer, :, :, :, :end]
        rows[0, :, :, self.length :] = k
        rows[1, :, :, self.length :] = v
        return rows[0], rows[1]


@dataclass(frozen=True, eq=False)
class TargetOutput:
    """What a pass of the target returns.

    Attributes:
        hidden: [N, S, d] after the final norm.
        taps: [N, S, K*d] the residual stream after each tapped block, in tap order; or None.
    """

    hidden: Tensor
    taps: Tensor | None


def new_target(seed: int, **sizes: Any) -> Qwen3ForCausalLM:
    """A freshly initialised target; `sizes` are Qwen3Config's fields."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**sizes))


def load_target(folder: Path) -> Qwen3ForCausalLM:
    """Load `config.json` and the safetensors file, or its shards, weights as fp32.

    Raises:
        SlipstreamError: a file is missing, or the checkpoint is no Qwen3.
    """
    for name, other in (("config.json", ""), (WEIGHTS, INDEX)):
        if not (folder / name).is_file() and not (other and (folder / other).is_file()):
            raise SlipstreamError(
                f"{folder} is no target checkpoint",
                expected=f"a file {folder / name}" + (f" or {other}" if other else ""),
                found="none",
                fix="train one with `make train-tiny`",
            )
    disable_progress_bar()  # of every file; ours are the commands' own
    try:
        _check_family(folder)
        config = Qwen3Config.from_pretrained(folder)
        model, seen = Qwen3ForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, output_loading_info=True
        )
        if seen["missing_keys"]:  # transformers would go on with random numbers there
            raise ValueError(f"no weights for {sorted(seen['missing_keys'])[0]}")
        for name, parameter in model.named_parameters():
            if not parameter.isfinite().all():
                raise ValueError(f"NaN or infinity in {name}")
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise SlipstreamError(
            f"{folder} can't be loaded",
            expected="a Qwen3 checkpoint, whole and of safetensors files",
            found=str(error),
            fix="copy the whole folder, or save it again with save_pretrained",
        ) from error
    return model.eval()


def _check_family(folder: Path) -> None:
    """Refuse another architecture by name; a config that names none is taken for a Qwen3."""
    known = Qwen3ForCausalLM.__name__
    found = read_object(folder / "config.json").get("architectures") or [known]
    if found != [known]:
        raise SlipstreamError(
            f"{folder} can't be trained, nor a drafter for it",
            expected=f'"architectures": ["{known}"] in its config.json',
            found=str(found)[:160],
            fix="train its drafter with its authors' code, and export both: "
            f"slipstream export {folder} --draft DRAFTER",
        )


def save_target(model: Qwen3ForCausalLM, folder: Path) -> None:
    """Write the checkpoint in bf16, as transformers writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    copy = Qwen3ForCausalLM(model.config)
    copy.load_state_dict(model.state_dict())
    copy.to(torch.bfloat16).save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)


def forward(
    model: Qwen3ForCausalLM,
    tokens: Tensor,
    *,
    taps: Sequence[int] = (),
    cache: Cache | None = None,
    first_output: int = 0,
    positions: Tensor | None = None,
    mask: Mask | None = None,
) -> TargetOutput:
    """Run the target over tokens [N, S] that follow the cached rows.

    The same function as the transformers module's own forward, in fewer and larger operations.

    Args:
        taps: 0-based blocks whose output residual stream is wanted (`hidden_states[id + 1]`).
        cache: earlier rows; the new ones are added. None for a pass of its own.
        first_output: rows before it get no hidden state; saves most of the last block's work.
        positions: [N, S] of the tokens; by default they follow the cached rows.
        mask: where a row may look, instead of all rows up to its own: [N, S, T] bool over cached
            and new rows, or a packed one.

    Raises:
        ValueError: `first_output` with the last block tapped, whose early rows would be missing,
            or with a mask.
    """
    config, core = model.config, model.model
    last = config.num_hidden_layers - 1
    if first_output and last in taps:
        raise ValueError("first_output leaves out rows that a tap on the last block needs")
    if mask is not None and first_output:
        raise ValueError("first_output leaves out rows that the mask speaks of")
    if positions is None:
        past = cache.length if cache else 0
        positions = torch.arange(past, past + tokens.shape[1], device=tokens.device)[None]
    cos, sin = rotary_table(positions, config.head_dim, config.rope_parameters["rope_theta"])
    eps, size = config.rms_norm_eps, config.head_dim
    x = core.embed_tokens(tokens)
    tapped: dict[int, Tensor] = {}
    for i, layer in enumerate(core.layers):
        attention, mlp = layer.self_attn, layer.mlp
        start = first_output if i == last else 0
        h = rms_norm(x, layer.input_layernorm.weight, eps)
        k = rms_norm(split_heads(attention.k_proj(h), size), attention.k_norm.weight, eps)
        k = rotate(k, cos, sin)
        v = split_heads(attention.v_proj(h), size)
        if cache:
            k, v = cache.extend(i, k, v)
        q = rms_norm(
            split_heads(attention.q_proj(h[:, start:]), size), attention.q_norm.weight, eps
        )
        q = rotate(q, cos[:, :, start:], sin[:, :, start:])
        x = x[:, start:] + attention.o_proj(_attention(q, k, v, mask))
        h = rms_norm(x, layer.post_attention_layernorm.weight, eps)
        x = x + mlp.down_proj(functional.silu(mlp.gate_proj(h)) * mlp.up_proj(h))
        if i in taps:
            tapped[i] = x
    if cache:
        cache.length += tokens.shape[1]
    return TargetOutput(
        hidden=rms_norm(x, core.norm.weight, eps),
        taps=torch.cat([tapped[i] for i in taps], -1) if taps else None,
    )


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Tensor:
    """Attention of the last S of T rows under a mask, or each to itself and what came before."""
    if isinstance(mask, Tensor):
        return attend(q, k, v, mask[:, None])
    if mask is not None:
        return attend(q, k, v, mask)
    rows, columns = q.shape[2], k.shape[2]
    if rows == columns:
        return attend(q, k, v, None, causal=True)
    if rows == 1:
        return attend(q, k, v, None)
    mask = torch.ones(rows, columns, dtype=torch.bool, device=q.device).tril(columns - rows)
    return attend(q, k, v, mask)


@torch.no_grad()
def round_to_bf16(module: torch.nn.Module) -> None:
    """Round every parameter to the nearest bf16 number, in place; the dtype stays."""
    for parameter in module.parameters():
        parameter.copy_(parameter.to(torch.bfloat16).to(parameter.dtype))
