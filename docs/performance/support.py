"""``python docs/performance/support.py`` prints the tables of docs/support.md: what planning
chooses, by architecture and type.

It needs no GPU: plans are made for the cards of ``cuteblas.planning.problem``.
``tests/test_documents.py`` compares the page with it.
"""

from __future__ import annotations

from dataclasses import replace

from cuteblas.planning import GemmProblem, Operand
from cuteblas.planning.floors import estimate
from cuteblas.planning.gemm.dispatch import plan_gemm
from cuteblas.planning.plan import Plan
from cuteblas.planning.problem import DEVICES, DeviceInfo, is_measured

N = 4096
TYPES = ("float32", "float64", "complex64", "complex128", "float16", "bfloat16", "int8", "int32",
         "int64", "bool")
# By compute capability: a card, or for want of one another card with this architecture.
ARCHITECTURES = {
    "7.5": replace(DEVICES["l40s"], arch="sm_75", shared_bytes_per_block=64 << 10),
    "8.0": DEVICES["a100"],
    "8.6": replace(DEVICES["l40s"], arch="sm_86"),
    "8.9": DEVICES["l40s"],
    "9.0": DEVICES["h200"],
    "10.0": DEVICES["b200"],
    "12.0": replace(DEVICES["l40s"], arch="sm_120"),
}
ALGORITHMS = ("ieee", "tf32", "fp16x3", "bf16x6", "modular")
WORDS = {"gemm_simt": "native", "gemm_mma": "`mma.sync`", "gemm_wgmma": "`wgmma`",
         "gemm_split": "`fp16x3`", "gemm_modular": "`modular`"}


def plan(element: str, device: DeviceInfo, precision: str = "auto") -> Plan:
    """The plan of a square product."""
    rows = Operand(element, (N, 1))
    return plan_gemm(GemmProblem(N, N, N, rows, Operand(element, (1, N)), rows,
                                 precision=precision), device)


def chosen() -> list[str]:
    """What computes a product by default, by type and architecture."""
    lines = ["| type | " + " | ".join(ARCHITECTURES) + " |",
             "|---" * (len(ARCHITECTURES) + 1) + "|"]
    for element in TYPES:
        words = [WORDS[plan(element, device).family] for device in ARCHITECTURES.values()]
        lines.append(f"| `{element}` | " + " | ".join(words) + " |")
    return lines


def by_name() -> list[str]:
    """The types that each algorithm takes by name, by architecture."""
    lines = ["| `precision=` | " + " | ".join(ARCHITECTURES) + " |",
             "|---" * (len(ARCHITECTURES) + 1) + "|"]
    for name in ALGORITHMS:
        cells = []
        for device in ARCHITECTURES.values():
            taken = []
            for element in TYPES:
                try:
                    plan(element, device, name)
                except ValueError:
                    continue
                taken.append(element)
            cells.append("all types" if len(taken) == len(TYPES) else ", ".join(taken) or "refused")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return lines


def expected() -> list[str]:
    """The milliseconds that planning expects, by card and type."""
    lines = ["| type | " + " | ".join(card.name.removeprefix("NVIDIA ")
                                      for card in DEVICES.values()) + " |",
             "|---" + "|---:" * len(DEVICES) + "|"]
    for element in TYPES:
        found = [1e3 * (estimate(plan(element, card)).seconds or 0) for card in DEVICES.values()]
        lines.append(f"| `{element}` | " + " | ".join(f"{each:.0f}" if each > 100 else f"{each:.2g}"
                                                      for each in found) + " |")
    return [*lines, "| measured | " + " | ".join("yes" if is_measured(card) else "no"
                                                 for card in DEVICES.values()) + " |"]


if __name__ == "__main__":
    print(*chosen(), "", *by_name(), "", *expected(), sep="\n")
