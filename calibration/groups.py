"""Parts of a network that share a precision: products of a block's attention or MLP, the head.

A graph's weights say what they belong to (`export.graphs`). A product without a weight, such as
attention's scores, belongs to the part whose rows it reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import onnx

from runtime.errors import SlipstreamError

Groups = dict[str, tuple[str, ...]]

PRODUCTS = {"MatMul", "Gemm"}
# what a weight's name begins with (quantizers append to it), and its group
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:{pattern})(?![A-Za-z0-9])"), group)
    for pattern, group in (
        (r"layers\.(\d+)\.(?:qkv|context|o)", "block {} attention"),
        (r"layers\.(\d+)\.(?:gate|up|down)", "block {} mlp"),
        (r"fc|fusion", "fuse"),
        (r"head", "head"),
        (r"embedding", "embed"),
        (r"patch_embed", "vision patches"),
        (r"blocks\.(\d+)\.attn\.\w+", "vision block {} attention"),
        (r"blocks\.(\d+)\.mlp\.\w+", "vision block {} mlp"),
        (r"merger\.\w+", "vision merger"),
        (r"deepstack_merger_list\.(\d+)\.\w+", "vision deepstack {}"),
    )
)
_BLOCK = re.compile(r"((?:vision )?block) (\d+) \w+")
_ENDS = ("head", "embed", "vision patches", "vision merger")


def groups(model: onnx.ModelProto) -> Groups:
    """Group name -> names of its product nodes, in the order of the graph; blocks count from 0.

    Every MatMul and Gemm is in one group, and the Gather of an embedding's table in "embed". A
    product with a weight of an unknown name is a group by itself, called like the weight.

    Args:
        model: its weights may lie elsewhere; only names are read.
    """
    weights = {weight.name: weight.name for weight in model.graph.initializer}
    newest: dict[str, str] = {}  # tensor -> the group that its rows came through last
    found: dict[str, list[str]] = {}
    for node in model.graph.node:
        weight = next((weights[name] for name in node.input if name in weights), None)
        if weight is not None and all(name in weights for name in node.input):
            weights |= dict.fromkeys(node.output, weight)  # a cast, or made of weights alone
            continue
        order = list(found)
        behind = [newest[name] for name in node.input if name in newest]
        group = max(behind, key=order.index) if behind else None
        table = node.op_type == "Gather" and weight is not None and _group_of(weight) == "embed"
        if node.op_type in PRODUCTS or table:
            group = _group_of(weight) if weight is not None else group or node.name
            found.setdefault(group, []).append(node.name)
        if group is not None:
            newest |= dict.fromkeys(node.output, group)
    return {group: tuple(nodes) for group, nodes in found.items()}


def first_and_last(groups: Collection[str]) -> tuple[str, ...]:
    """The groups that stay in a high precision unless told otherwise: the head, the embedding, and
    the first and last block of each network, whose errors cost the most.

    The blocks of a network of one or two are not among them: nothing would be left.
    """
    found = {
        match[0]: (match[1], int(match[2])) for match in map(_BLOCK.fullmatch, groups) if match
    }
    ends: set[tuple[str, int]] = set()
    for network in {kind for kind, _ in found.values()}:
        numbers = sorted({number for kind, number in found.values() if kind == network})
        if len(numbers) > 2:
            ends |= {(network, numbers[0]), (network, numbers[-1])}
    return tuple(name for name in groups if name in _ENDS or found.get(name) in ends)


def nodes_of(groups: Mapping[str, Sequence[str]], names: Collection[str]) -> tuple[str, ...]:
    """The nodes of some groups.

    Raises:
        SlipstreamError: there is no group of a name.
    """
    if unknown := [name for name in names if name not in groups]:
        raise SlipstreamError(
            f"the graph has no group {unknown[0]!r}",
            expected=", ".join(groups),
            found=unknown[0],
            fix="name groups of this graph",
        )
    return tuple(node for name in names for node in groups[name])


def _group_of(weight: str) -> str:
    for pattern, group in _NAMES:
        if match := pattern.match(weight):
            return group.format(*match.groups())
    return weight
