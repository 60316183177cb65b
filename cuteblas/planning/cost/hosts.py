"""What NumPy and the way to a GPU cost on the host of a call.

The shipped numbers are those of an H200's host of 16 processors; ``python -m cuteblas calibrate``
measures others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar

from . import CostError

_VERSION = 1


@dataclass(frozen=True)
class HostCosts:
    """Rates of one processor in a second, unless said otherwise."""
    # Bytes: ``product_bytes`` of products that wait for memory; ``copied_bytes`` by NumPy on one
    # processor; ``transposed_bytes`` on the host; ``packed_bytes`` by a thread to or from pinned
    # memory; ``link_bytes`` one way at most; ``shared_bytes`` to and from several GPUs together.
    # Seconds: ``call`` that moves nothing, one ``replayed`` on operands that stay, ``each_device``
    # of several. ``few_bytes`` move faster by the driver than by threads.

    multiplications: Mapping[str, float]
    gpu_multiplications: Mapping[str, float]
    product_bytes: float
    copied_bytes: float
    transposed_bytes: float
    packed_bytes: float
    link_bytes: float
    call: float
    replayed: float
    shared_bytes: float
    each_device: float
    few_bytes: ClassVar[int] = 1 << 16

    def changed(self, changes: Mapping[str, Any]) -> HostCosts:
        """These costs with some numbers changed; of types, those that are named."""
        merged: dict[str, Any] = {name: {**getattr(self, name), **x} if isinstance(x, Mapping)
                                  else x for name, x in changes.items()}
        return replace(self, **merged)

    def written(self, command: str, processors: int) -> str:
        def short(x: float) -> float:
            return float(f"{x:.4g}")

        numbers = {name: {key: short(y) for key, y in x.items()} if isinstance(x, Mapping)
                   else short(x) for name, x in asdict(self).items()}
        return json.dumps({"version": _VERSION, "command": command, "processors": processors,
                           "numbers": numbers}, indent=1) + "\n"

    def link(self, processors: int) -> float:
        """Bytes in a second between pageable memory and the GPU, one way."""
        return min(self.link_bytes, self.packed_bytes * min(processors, 16) ** 0.7)

    def comparison(self, nbytes: float, processors: int) -> float:
        """Seconds to hash some bytes again with three quarters of the processors."""
        return nbytes / (self.product_bytes * min(processors, 16) * 0.75)

    def host_product(self, dtype: str, products: float, nbytes: float, processors: int) -> float:
        rate = self.multiplications.get(dtype, min(self.multiplications.values()))
        return products / (rate * processors) + nbytes / (self.product_bytes * processors)

    def host_copy(self, nbytes: float, transposed: bool, processors: int) -> float:
        return nbytes / (self.transposed_bytes * min(processors, 16) if transposed
                         else self.copied_bytes)

    def gpu_product(self, dtype: str, products: float) -> float:
        """The seconds of a sum of products of what is on the GPU."""
        return products / self.gpu_multiplications.get(dtype,
                                                       min(self.gpu_multiplications.values()))

    def gpu_call(self, dtype: str, products: float, up: float, down: float,
                 processors: int) -> float:
        """The seconds of a call on the GPU: of both ways, where half of the results go while
        operands arrive, or of its products if these take longer."""
        return self.call + max((up + down / 2) / self.link(processors),
                               self.gpu_product(dtype, products))

    def over_devices(self, alone: float, nbytes: float, count: int) -> float:
        """The seconds of a call that takes ``alone`` on one GPU, over ``count`` of them."""
        if count < 2:
            return alone
        return max(alone / count, nbytes / self.shared_bytes) + count * self.each_device


_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")

HOST = HostCosts(multiplications={"float32": 36e9, "float64": 13.4e9, "complex64": 7.9e9,
                                  "complex128": 3.9e9, "float16": 2e9,
                                  **dict.fromkeys(_INTEGERS, 6e9)},
                 gpu_multiplications={"float32": 120e12, "float64": 43e12, "complex64": 29.7e12,
                                      "complex128": 9.9e12, "float16": 200e12,
                                      **dict.fromkeys(_INTEGERS, 5e12)}, product_bytes=6.4e9,
                 copied_bytes=9e9, transposed_bytes=0.51e9, packed_bytes=6.1e9, link_bytes=55e9,
                 call=400e-6, replayed=100e-6, shared_bytes=88e9, each_device=7e-3)
"""The host of an H200."""


def host_costs_from(text: str, name: str) -> HostCosts:
    """The numbers of a file, completed by the shipped ones."""
    try:
        data = json.loads(text)
        numbers, known = dict(data["numbers"]), {field.name for field in fields(HostCosts)}
        if data["version"] != _VERSION:
            raise ValueError(f"its version is {data['version']}, not {_VERSION}")
        found = {key: {str(kind): float(y) for kind, y in x.items()}
                 if isinstance(getattr(HOST, key), Mapping) else float(x)
                 for key, x in numbers.items() if key in known}
        if not all(0 < y < float("inf") for x in found.values()
                   for y in (x.values() if isinstance(x, Mapping) else (x,))):
            raise ValueError("a number is not positive or not finite")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CostError(f"{name} has no valid host numbers: {error}; "
                        "run `python -m cuteblas calibrate --host` to write it again") from None
    return HOST.changed(found)
