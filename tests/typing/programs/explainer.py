"""Somebody who wants to know which kernel a product would run, and prepares for it."""

import numpy as np

import cuteblas
from cuteblas import Explanation


def lines(explanation: Explanation) -> list[str]:
    family, copies = explanation.family, explanation.copies
    return [f"{family}, {len(copies)} copies", *str(explanation).splitlines()]


if __name__ == "__main__":
    a = np.ones((256, 128), np.float32)
    for precision in cuteblas.explain(a, a.T, device="h200"), cuteblas.explain(a, a.T, device="a100", precision="ieee"):
        assert lines(precision)[0].startswith("gemm")
    assert lines(cuteblas.explain(a, a.T, epilogue="gelu", device="h100", order="F"))
    assert lines(cuteblas.explain_copy(a.T, order="C", device="b200"))[0].startswith("transpose")
    with cuteblas.record() as calls, cuteblas.backend("numpy"):
        cuteblas.matmul(a, a.T, precision="auto")
    cuteblas.reset_stats()
    print(calls, cuteblas.current_backend(), cuteblas.set_workspace_limit(None),
          sum(len(x) for x in cuteblas.stats().values()))
