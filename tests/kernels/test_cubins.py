"""Every kernel family compiles to machine code for every supported architecture, without spilling registers; no GPU is needed."""

import importlib.util
import os
import re
import shutil
import subprocess

import pytest

from cuteblas.kernels.common import OperandAccess
from cuteblas.kernels.gemm_simt import SimtConfig, gemm_simt
from cuteblas.kernels.gemm_wgmma import WgmmaConfig, gemm_wgmma
from cuteblas.kernels.reduce_split import ReduceConfig, reduce_split
from cuteblas.planning import H200, CopyProblem, plan_copy
from cuteblas.planning.simt import candidates

pytest.importorskip("cuda.core", reason="NVRTC comes with the extra 'test'")

FLOATS = ["float32", "float64", "complex64", "complex128"]


def cubin(kernel, arch):
    from cuteblas import runtime

    return runtime.compile(kernel, arch)


def cuobjdump():
    """The disassembler: a toolkit's, or the one that comes as a Python package."""
    spec = importlib.util.find_spec("nvidia")
    folders = [f"{place}/cu13/bin" for place in (spec.submodule_search_locations if spec else None) or ()]
    return shutil.which("cuobjdump") or shutil.which("cuobjdump", path=os.pathsep.join(folders))


def resources(code, path):
    """Registers and stack bytes of the kernel, from the machine code."""
    tool = cuobjdump()
    if tool is None:
        pytest.skip("cuobjdump is not installed (pip install nvidia-cuda-cuobjdump)")
    file = path / "kernel.cubin"
    file.write_bytes(code)
    text = subprocess.run([tool, "-res-usage", str(file)], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"REG:(\d+)", text).group(1)), int(re.search(r"STACK:(\d+)", text).group(1))


def vector(element):
    return {4: 4, 8: 2, 16: 1}[{"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}[element]]


@pytest.mark.parametrize("element, candidate", [(d, c) for d in FLOATS for c in candidates(d)[:3]], ids=str)
def test_products_do_not_spill(element, candidate, tmp_path):
    access = OperandAccess(0, vector(element)), OperandAccess(1), OperandAccess(0, min(vector(element), candidate.tile.values[0]))
    kernel = gemm_simt(SimtConfig(element, element, candidate.tile, *access))
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    assert stack == 0, f"{kernel.name} spills"
    assert registers * kernel.threads * kernel.min_blocks <= 65536


@pytest.mark.parametrize("majors", [(True, True), (False, False)])
def test_tensor_core_products_do_not_spill(majors, tmp_path):
    kernel = gemm_wgmma(WgmmaConfig("float16", "float32", k_major_a=majors[0], k_major_b=majors[1]))
    registers, stack = resources(cubin(kernel, "sm_90a"), tmp_path)
    assert stack == 0 and registers <= 168


@pytest.mark.parametrize("item", [1, 2, 4, 8, 16])
def test_transposes_fill_the_multiprocessor(item, tmp_path):
    """32 registers: eight blocks of 256 threads, all that a multiprocessor holds."""
    kernel = plan_copy(CopyProblem((8192, 8192), (1, 8192), (8192, 1), item), H200).launches[0].kernel
    registers, stack = resources(cubin(kernel, "sm_90"), tmp_path)
    assert stack == 0 and registers <= 40 and kernel.shared_bytes * 8 <= H200.shared_bytes_per_block


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_architectures(arch):
    """One kernel of each portable family on every architecture, old ones without asynchronous copies."""
    simple = OperandAccess(0, 1)
    for element in ("float32", "complex128", "float16", "bool"):
        tile = candidates(element)[-1].tile
        kernel = gemm_simt(SimtConfig(element, element, tile, simple, OperandAccess(1), simple, "value", "value"))
        assert cubin(kernel, arch)
    for problem in (CopyProblem((100, 64), (1, 100), (64, 1), 1), CopyProblem((100, 64), (64, 1), (64, 1), 4),
                    CopyProblem((3, 5), (1, 3), (5, 1), 16)):
        kernel = plan_copy(problem, H200).launches[0].kernel
        assert cubin(kernel, arch)
    assert cubin(reduce_split(ReduceConfig("float32", "float16", simple, "value", "value", 1)), arch)
