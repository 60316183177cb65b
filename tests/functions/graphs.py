"""The meaning of an epilogue's graph, by NumPy: the second opinion on what tracing recorded."""

from __future__ import annotations

import numpy as np
from scipy.special import erf

from cuteblas._dtypes import dtype as element


def logistic(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, np.ones_like(e), e) / (1 + e)


OWN = {"erf": erf, "sigmoid": logistic, "real": lambda x: x.real, "imag": lambda x: x.imag}


def interpret(graph, leaves):
    """The result and the outputs of a graph over arrays by ``(op, name)``; every value must have
    the type that is written."""
    values = {}
    for node in graph.nodes:
        args = [values[a] for a in node.args]
        if node.op == "constant":
            value = np.asarray(node.value, node.dtype)
        elif node.op in ("acc", "c", "alpha", "beta", "operand", "scalar"):
            value = np.asarray(leaves[node.op, node.name]).astype(node.dtype)
        elif node.op == "cast":
            value = args[0].astype(element(node.dtype).numpy)
        else:
            assert node.op == "where" or len({a.dtype for a in args}) == 1, f"{node.op} of {[a.dtype for a in args]}"
            value = np.asarray(OWN.get(node.op, getattr(np, node.op, None))(*args))
        assert value.dtype == element(node.dtype).numpy, f"{node.op} gives {value.dtype}, not {node.dtype}"
        values[node] = value
    return values[graph.result], {name: values[node] for name, node in graph.outputs}


def by_graph(resolved, acc, *, alpha=1, beta=0, c=None):
    """What a kernel makes of the sums, as far as the graph says it."""
    sums = acc.dtype
    leaves = {("acc", ""): acc, ("alpha", ""): sums.type(alpha), ("beta", ""): sums.type(beta),
              ("c", ""): c}
    leaves |= {("operand", name): x for name, x in resolved.operands} | {
        ("scalar", name): x for name, x in resolved.scalars
    }
    with np.errstate(all="ignore"):
        result, outputs = interpret(resolved.trace.graph, leaves)
    stored = {name: np.broadcast_to(outputs[name], acc.shape).astype(element(dtype).numpy)
              for name, dtype in resolved.trace.outputs}
    stored["c"] = np.broadcast_to(result, acc.shape).astype(element(resolved.trace.output).numpy)
    reduced = {name: getattr(np, op)(stored[source], axis=axis).astype(dtype)
               for name, op, axis, source, dtype in resolved.trace.reductions if source in stored}
    return stored["c"], {name: x for name, x in stored.items() if name != "c"
                         and name not in resolved.trace.hidden} | reduced
