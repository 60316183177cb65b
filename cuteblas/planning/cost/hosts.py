"""What NumPy and the way to a GPU cost on the host, as far as it is decided by that where a call on NumPy arrays runs.

The numbers were measured on the host of an NVIDIA H200, which has 16 processors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["HOST", "HostCosts"]


@dataclass(frozen=True)
class HostCosts:
    """Rates of one processor, unless said otherwise.

    Attributes
    ----------
    multiplications : mapping of str to float
        That NumPy's BLAS does in a second, by the type of the product; of integers, bool and float16 on parts of the elements.
    gpu_multiplications : mapping of str to float
        Of the GPU.
    numpy_bytes : float
        That NumPy reads and writes in a second in products that wait for memory.
    copied_bytes : float
        Of an array that NumPy copies in its order in a second, by one processor however many there are.
    transposed_bytes : float
        The same in another order, in blocks and threads.
    packed_bytes : float
        That a thread moves into or out of pinned memory.
    link_bytes : float
        That the link moves one way at most, with pinned memory at both ends.
    call : float
        Seconds that a call takes which moves next to nothing.
    start : float
        Seconds that CUDA takes to start, with the import of CuPy and the first kernel.
    started : float
        The same where the program has begun to use CuPy itself.
    """

    multiplications: Mapping[str, float]
    gpu_multiplications: Mapping[str, float]
    numpy_bytes: float
    copied_bytes: float
    transposed_bytes: float
    packed_bytes: float
    link_bytes: float
    call: float
    start: float
    started: float

    def link(self, processors: int) -> float:
        """Bytes in a second between pageable memory and the GPU, one way."""
        return min(self.link_bytes, self.packed_bytes * min(processors, 16) ** 0.6)

    def numpy_product(self, dtype: str, products: float, nbytes: float, processors: int) -> float:
        """The seconds of a sum of products by NumPy."""
        rate = self.multiplications.get(dtype, min(self.multiplications.values()))
        return products / (rate * processors) + nbytes / (self.numpy_bytes * min(processors, 4))

    def numpy_copy(self, nbytes: float, transposed: bool) -> float:
        """The seconds of a copy by NumPy."""
        return nbytes / (self.transposed_bytes if transposed else self.copied_bytes)

    def gpu_call(self, dtype: str, products: float, up: float, down: float, processors: int) -> float:
        """The seconds of a call on the GPU, with the way there and back."""
        rate = self.gpu_multiplications.get(dtype, min(self.gpu_multiplications.values()))
        return self.call + (up + down) / self.link(processors) + products / rate


_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")

HOST = HostCosts(
    multiplications={"float32": 38e9, "float64": 21e9, "complex64": 9.3e9, "complex128": 4.6e9, "float16": 3e9,
                     **dict.fromkeys(_INTEGERS, 3e9), "int64": 0.5e9, "uint64": 0.5e9},
    gpu_multiplications={"float32": 80e12, "float64": 25e12, "complex64": 20e12, "complex128": 6e12, "float16": 300e12,
                         **dict.fromkeys(_INTEGERS, 5e12)},
    numpy_bytes=10e9, copied_bytes=4e9, transposed_bytes=5e9, packed_bytes=8e9, link_bytes=50e9, call=120e-6, start=1.2,
    started=0.3)
"""Of the host of an H200."""
