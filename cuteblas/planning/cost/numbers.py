"""The numbers of a card: what each means, and between which values it is believable."""

from __future__ import annotations

__all__ = ["RANGES"]

_EFFICIENCY = 0.5, 1.25              # above 1 it makes up for what is summed by a norm

RANGES = {
    # Of the published multiply-adds in a clock, what a unit reaches in the inner loop of a tile.
    "units": {
        "fused multiply-adds: share of rate": _EFFICIENCY,
        "fused multiply-adds of int32: share of rate": _EFFICIENCY,
        # with their conversions to float32
        "fused multiply-adds of 16 bits: share of rate": (0.1, 1.0),
        "fused multiply-adds of bool: share of rate": (0.05, 1.0),     # as logical instructions
        "tensor cores: share of rate": _EFFICIENCY,
        "tensor cores, float64: share of rate": _EFFICIENCY,
        "tensor cores, bytes: share of rate": _EFFICIENCY,
    },
    # What a multiprocessor takes for what it does beside products.
    "rates": {
        # a wavefront of loads from global memory into registers
        "a fetch: clocks": (0.5, 4.0),
        # an asynchronous copy by a warp, with its address and predicate
        "a copy of few elements: clocks": (1.0, 10.0),
        # split into planes, or moved to where their words begin, in registers
        "converted: bytes in a clock": (20.0, 200.0),
        # slower with all registers of a thread than with an easy number of them
        "crowded registers: part": (0.1, 4.0),
        "written: bytes in a clock": (8.0, 100.0),      # from registers to C, with alpha and beta
        # longer than by vectors: where threads have no neighbours side by side
        "C by elements: part": (0.05, 6.0),
        "C by rows: part": (0.05, 6.0),                 # by way of shared memory
        "C by words: part": (0.05, 12.0),               # as words of 64 bits, from three sums each
        # longer, as blocks that begin in different places share less of L2
        "a divided tile: part": (0.005, 0.3),
        # of the time of C's bytes, if no other block multiplies meanwhile
        "writing alone: part": (0.05, 1.0),
    },
    # How long blocks wait: clocks until what was asked for is there, and the warps that hide each
    # other's instructions.
    "waits": {
        "TMA: clocks": (300.0, 2000.0),
        "copies: clocks": (100.0, 2000.0),              # asynchronous ones, mostly of lines in L2
        # the same while all blocks read as fast as memory allows
        "streams: clocks": (800.0, 4000.0),
        "loads: clocks": (500.0, 4000.0),               # into registers
        "a sum of others: clocks": (500.0, 15000.0),    # of a divided tile, until it is there
        "any unit: warps": (1.0, 10.0),                 # of a multiprocessor that keep a unit busy
        "float64 on tensor cores: warps": (0.5, 10.0),
    },
    # Of the bandwidth of a large device copy.
    "memory": {
        "share of bandwidth": (0.6, 1.15),
        "in L2: times the bandwidth": (1.0, 2.5),
        # of kernels that split operands or make residues of them
        "prepared: share of bandwidth": (0.3, 1.0),
    },
    "launch": {
        "seconds": (5e-7, 4e-6),
        "adding: launches": (0.05, 2.0),                # of slices, beside the launch that does it
    },
    "copy": {
        "start: launches": (0.05, 3.0),
        "latency: clocks": (500.0, 4000.0),
        "a pass of a box: clocks": (5.0, 300.0),
        "a pass of a tile: clocks": (5.0, 300.0),
        "a mode: instructions": (2.0, 60.0),
        "a pass: instructions": (1.0, 30.0),
        "in L2: times the bandwidth": (0.8, 2.5),
        "share of bandwidth": (0.7, 1.15),
        "others read: part": (0.02, 1.0),    # of the bytes of touched sectors that nobody asked for
        "others written: part": (0.1, 6.0),
        "a run: bytes": (1.0, 100.0),                   # that a run takes beside its own
    },
}
"""By family and name, the least and the largest believable value."""
