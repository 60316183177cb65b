"""Tiles with the swizzles of the hardware."""

import pytest

from cuteblas.codegen.engine import CodegenError
from cuteblas.codegen.swizzled import operand_layout


def test_operand_tiles_that_do_not_exist():
    with pytest.raises(CodegenError, match="64 deep"):
        operand_layout(64, 32, "float16", True)
    with pytest.raises(CodegenError, match="multiple of 64 wide"):
        operand_layout(96, 64, "float16", False)
    with pytest.raises(CodegenError, match="multiple of 32 wide"):
        operand_layout(80, 64, "float16", False, 64)
