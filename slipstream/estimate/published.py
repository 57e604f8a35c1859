"""Published decoding rates that the roofline is held against, reproduced or not.

Rates are NVIDIA's (TensorRT Edge-LLM performance tables; Jetson Orin Nano Super announcement). The
factors of `roofline.Factors` are one set for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.estimate.devices import DEVICES, Precision
from slipstream.estimate.named import MODELS
from slipstream.estimate.roofline import Factors, Pass, Roofline

WITHIN = 0.30
CONTEXT = 512  # rows in the cache: the tables' prompts are a few hundred tokens long
EDGE_LLM = "TensorRT Edge-LLM 0.9.0 tables"
SUPER = "NVIDIA, Jetson Orin Nano Super announcement (MLC, INT4)"
BATCH = "kernels for a few rows reach less of the bandwidth than those for one"


@dataclass(frozen=True)
class Row:
    """One published rate.

    Attributes:
        rate: tokens/s over all sequences.
        sequences: decoded side by side.
        committed: tokens per round and sequence; 1 is plain decoding.
        block: rows drafted and verified a round.
        why_not: None if the roofline comes within 30 %, else why it does not.
    """

    source: str
    device: str
    model: str
    precision: Precision
    rate: float
    sequences: int = 1
    committed: float = 1.0
    block: int = 1
    why_not: str | None = None

    def estimate(self, factors: Factors | None = None) -> float:
        """Tokens/s by the roofline."""
        model = MODELS[self.model]
        roofline = Roofline(model, DEVICES[self.device], self.precision, factors)
        n, block = self.sequences, self.block
        # sequences of a batch share nothing there, so their context is in the branches
        trunk, branch = (CONTEXT, 0) if n == 1 else (0, CONTEXT)
        seconds = roofline.network(model.target, Pass(n, block, trunk, branch))
        seconds += roofline.head(n * block)
        if block > 1 and model.draft:
            drafting = Pass(n, block, trunk, branch, context=self.committed)
            seconds += roofline.network(model.draft, drafting) + roofline.head(n * block)
        return n * self.committed / seconds


ROWS: tuple[Row, ...] = (
    Row(EDGE_LLM, "thor", "qwen3.5-4b", "nvfp4", 69.4),
    Row(EDGE_LLM, "thor", "qwen3.5-27b", "nvfp4", 14.8),
    Row(EDGE_LLM, "thor", "qwen3-8b", "int4", 48.9),
    Row(EDGE_LLM, "orin-nx", "qwen3-8b", "int4", 18.9),
    Row(EDGE_LLM, "orin-nx", "qwen3.5-0.8b", "int4", 88.7),
    # the tables don't name the power mode; this is the module's 68 GB/s, without Super
    Row(EDGE_LLM, "orin-nano-8gb", "qwen3-1.7b", "int4", 37.4),
    Row(EDGE_LLM, "thor", "qwen3.5-4b", "nvfp4", 73.8, committed=2.27, block=16),
    Row(EDGE_LLM, "thor", "qwen3.5-27b", "nvfp4", 21.7, committed=2.59, block=16),
    Row(SUPER, "orin-nano-8gb", "llama-3.1-8b", "int4", 14.0),
    Row(SUPER, "orin-nano-8gb-super", "llama-3.1-8b", "int4", 19.14),
    Row(EDGE_LLM, "thor", "qwen3.5-4b", "nvfp4", 271.3, sequences=8, why_not=BATCH),
    Row(EDGE_LLM, "thor", "qwen3.5-27b", "nvfp4", 76.0, sequences=8, why_not=BATCH),
    Row(EDGE_LLM, "thor", "qwen3-8b", "int4", 184.5, sequences=8, why_not=BATCH),
    Row(
        EDGE_LLM,
        "thor",
        "qwen3.5-4b",
        "nvfp4",
        169.0,
        sequences=8,
        committed=2.27,
        block=16,
        why_not="verification of 128 rows is far from the published compute",
    ),
    Row(
        EDGE_LLM,
        "thor",
        "qwen3.5-27b",
        "nvfp4",
        55.6,
        sequences=8,
        committed=2.59,
        block=16,
        why_not="verification of 128 rows is far from the published compute",
    ),
)

NOT_MODELLED = {
    "EAGLE3 rows": "an autoregressive drafter and a tree whose size the tables don't give",
    "MTP rows": "a drafting head with a reduced vocabulary, of unpublished size",
    "memory figures (9.5 GB, 3.3 GB)": "they hold a vision encoder, the drafter and the runtime",
    "Alpamayo2-Edge on Thor": "a closed container; sizes and precision are not published",
}


def slowdown_of_batches() -> tuple[float, float]:
    """How much slower published plain decoding of 8 sequences is than the roofline: least, most."""
    ratios = [
        row.estimate() / row.rate for row in ROWS if row.sequences > 1 and row.committed == 1.0
    ]
    return min(ratios), max(ratios)
