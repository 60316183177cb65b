"""The plots of this folder from its data: ``python docs/performance/plots.py`` writes them, and prints the table of README.md.

``products.svg`` and ``transposes.svg`` are on the page of this folder, ``numpy-arrays.svg`` is on docs/numpy-arrays.md,
``overview-light.svg`` and ``overview-dark.svg`` in
README.md. It needs matplotlib: ``pip install -e '.[docs]'``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

try:
    import matplotlib as mpl
except ImportError:
    sys.exit("the plots need matplotlib: pip install -e '.[docs]'")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
ORDERS = {"NN": "o", "NT": "s", "TN": "^", "TT": "D"}
ELEMENTS = {"int8": 1, "float16": 2, "float32": 4, "float64": 8, "complex128": 16}
# The targets: time of cuBLAS over ours, by extent, and parts of a device copy.
TARGETS = {
    "float32": {1024: 2.3, 2048: 3.6, 4096: 4.2, 8192: 4.0, 16384: 4.0},
    "complex64": {1024: 2.0, 2048: 3.3, 4096: 4.0, 8192: 4.0, 16384: 4.0},
    "float16": {1024: 1.0, 2048: 1.0, 4096: 1.02, 8192: 1.05, 16384: 1.05},
    "complex128": {2048: 0.97, 4096: 0.97, 8192: 0.97},
}
COPIES = {
    "8192x8192": 0.95, "16384x8192": 0.95, "8191x8193": 0.90, "3x10000000": 0.85, "10000000x3": 0.85, "1000003x37": 0.85,
    "37x1000003": 0.85, "64x1000000x3:0,2,1": 0.85, "64x1001x1037:0,2,1": 0.85, "256x512x512:2,1,0": 0.85,
    "64x36x128x256:3,1,2,0": 0.85, "65x35x129x253:2,0,3,1": 0.85, "16x32x24x48x128:4,2,0,3,1": 0.85, "8192x8192:inplace": 0.95,
    "8191x8191:inplace": 0.90,
}
# The chart of README.md: of each element type the file of data, the place of its name beside its last point, and its colours on
# white and on black.
OVERVIEW = {
    "float32": ("float32", (7, 2), "#1f6fb4", "#6cb6ff"),
    "complex64": ("complex", (7, -9), "#b2521b", "#f0a36b"),
    "float16": ("half", (7, 5), "#2c7d3f", "#7cc98d"),
    "float64": ("double", (-16, -15), "#7a4fb0", "#c3a3f0"),
    "complex128": ("double", (-24, 8), "#7d6608", "#d9c25a"),
}
# The table of README.md: what a row says, its file and group of data, the cases.
TABLE = {
    "`matmul`, float32, 4096 (NN NT TN TT)": ("float32", "gemm", "float32 4096x4096x4096"),
    "the same with `precision=\"ieee\"`, 4096": ("float32-ieee", "gemm", "float32 4096x4096x4096"),
    "`matmul`, float32, 100000 x 1024 by 1024 x 64": ("skinny", "gemm", "float32 100000x64x1024"),
    "`matmul`, complex64, 4096": ("complex", "gemm", "complex64 4096x4096x4096"),
    "`matmul`, float16, 4096": ("half", "gemm", "float16 4096x4096x4096"),
    "`matmul`, float64, 4096": ("double", "gemm", "float64 4096x4096x4096"),
    "`matmul`, complex128, 4096": ("double", "gemm", "complex128 4096x4096x4096"),
    "`matmul`, int64, 4096": ("integers", "gemm", "int64 4096x4096x4096"),
    "`blas.igemm`, int8 to int32, 8192, against cuBLASLt": ("int-mm", "int_mm", "int8 8192x8192x8192"),
    "`ascontiguousarray(a.T)`, float32 8192 x 8192": ("transpose", "transpose", "float32 8192x8192"),
}


def rows(name: str, group: str) -> list[dict]:
    """The rows of one file of data."""
    return json.loads((HERE / "data" / f"h200-{name}.json").read_text("utf-8"))["figures"][group]


def cubes(name: str, element: str) -> dict[str, dict[int, float]]:
    """Ratios of products of n x n x n, by order and n."""
    found: dict[str, dict[int, float]] = {}
    for row in rows(name, "gemm"):
        kind, size, orders = row["case"].split()[:3]
        extents = size.split("x")
        if kind == element and len(set(extents)) == 1:
            found.setdefault(orders, {})[int(extents[0])] = row["ratio"]
    return found


def products(axes: Axes, element: str, table: str, sweep: str | None = None, ragged: str | None = None) -> None:
    """Time of ``cupy.matmul`` over ours, by extent."""
    def points(ratios: dict[int, float], style: str, **options: Any) -> None:
        axes.plot(*zip(*sorted(ratios.items()), strict=True), style, **options)

    if sweep:
        points(cubes(sweep, element)["NN"], "-", lw=1, color="#4878a8", label="multiples of 128, NN")
    if ragged:
        points(cubes(ragged, element)["NN"], ".", color="#888", label="other extents, NN")
    for orders, ratios in cubes(table, element).items():
        points(ratios, ORDERS[orders], ms=4, mfc="none", color="#222", label=orders)
    points(TARGETS[element], "_", ms=18, mew=2, color="#c33", label="target")
    axes.axhline(1, color="#333", lw=0.8)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.set_title(element, fontsize=10)
    axes.grid(alpha=0.3)


def draw_products(file: Path) -> None:
    """float32, complex64, float16 and complex128 beside cuBLAS."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    products(axes[0, 0], "float32", "float32", "sweep", "ragged")
    products(axes[0, 1], "complex64", "complex")
    products(axes[1, 0], "float16", "half", "half-sweep", "half-ragged")
    products(axes[1, 1], "complex128", "double")
    for each in axes.flat:
        each.legend(fontsize=7, ncols=2, loc="upper left" if each in axes[:, 0] else "lower right")
        each.set_xlabel("n")
    figure.suptitle("n x n x n on one NVIDIA H200: time of cupy.matmul over ours", fontsize=11)
    figure.savefig(file, metadata={"Date": None})


def draw_transposes(file: Path) -> None:
    """Parts of a device copy, and the targets."""
    parts = {row["case"]: row["of_copy"] for name in ("transpose", "transpose-permutations") for row in rows(name, "transpose")}
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots()
    for i, (element, nbytes) in enumerate(ELEMENTS.items()):
        at = [x + 0.16 * (i - 2) for x in range(len(COPIES))]
        axes.bar(at, [parts[f"{element} {case}"] for case in COPIES], 0.15, label=f"{nbytes} byte{'s' if nbytes > 1 else ''}")
    for x, target in enumerate(COPIES.values()):
        axes.plot((x - 0.42, x + 0.42), (target, target), color="#c33", lw=1.5, label="target" if x == 0 else None)
    axes.axhline(1, color="#333", lw=0.8)
    axes.set_xticks(range(len(COPIES)), list(COPIES), rotation=35, ha="right", fontsize=7)
    axes.legend(fontsize=7, ncols=6)
    axes.set_title("Transposes and permutations on one NVIDIA H200: time of a device copy over ours", fontsize=11)
    figure.savefig(file, metadata={"Date": None})


def draw_overview(file: Path, dark: bool) -> None:
    """Products by extent, and transposes by the size of an element, on a background of their own."""
    back, ink, faint = ("#0d1117", "#e6edf3", "#8b949e") if dark else ("#ffffff", "#1f2328", "#6e7781")
    figure = Figure(figsize=(9, 3.6), layout="constrained", facecolor=back)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for element, (table, place, *colours) in OVERVIEW.items():
        points = sorted(cubes(table, element)["NN"].items())
        left.plot(*zip(*points, strict=True), "o-", ms=4, lw=1.8, color=colours[dark])
        left.annotate(element, points[-1], place, textcoords="offset points", color=colours[dark], fontsize=9)
    left.axhline(1, color=ink, lw=1)
    left.annotate("cuBLAS by cupy.matmul", (512, 1), (0, -12), textcoords="offset points", color=ink, fontsize=9)
    left.set_xscale("log", base=2)
    left.set_xlim(480, 42000)
    left.set_xticks([2**i for i in range(9, 15)], [str(2**i) for i in range(9, 15)])
    left.set_ylim(0, 5.3)
    left.set_xlabel("n", color=ink)
    left.set_title("matmul, n x n by n x n: speed relative to cuBLAS", color=ink, fontsize=10)
    found = {row["case"].split()[0]: row for row in rows("transpose", "transpose") if row["case"].endswith(" 8192x8192")}
    for at, element in enumerate(ELEMENTS):
        ours = found[element]["of_copy"]
        right.barh(at - 0.2, ours, 0.36, color=OVERVIEW["float32"][2 + dark])
        right.barh(at + 0.2, ours / found[element]["ratio"], 0.36, color=faint)
    right.annotate("cuteblas", (0.02, -0.2), color=back, fontsize=9, va="center")
    right.annotate("CuPy", (0.12, 0.2), color=ink, fontsize=9, va="center")
    right.axvline(1, color=ink, lw=1)
    right.set_yticks(range(len(ELEMENTS)), list(ELEMENTS))
    right.invert_yaxis()
    right.set_xlim(0, 1.04)
    right.set_title("ascontiguousarray(a.T), 8192 x 8192: speed\nrelative to a device copy of the same bytes", color=ink,
                    fontsize=10)
    for axes in (left, right):
        axes.set_facecolor(back)
        axes.tick_params(colors=ink, which="both", labelsize=9)
        axes.minorticks_off()
        axes.spines[:].set_color(faint)
        axes.grid(alpha=0.25, color=faint)
        axes.set_axisbelow(True)
    figure.savefig(file, metadata={"Date": None})


def draw_numpy_arrays(file: Path) -> None:
    """NumPy arrays by way of the GPU, beside NumPy and beside CuPy with its copies there and back."""
    kinds = "float32", "float64", "complex64", "complex128"
    found = [row for row in rows("numpy-arrays", "numpy") if row["case"].startswith(kinds)]
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    for shift, key, words, color in ((-0.2, "ratio", "NumPy", "#4878a8"), (0.2, "to_trip", "CuPy, there and back", "#c98b3a")):
        axes.bar([i + shift for i in range(len(found))], [row[key] for row in found], 0.4, label=words, color=color)
    axes.axhline(1, color="#333", lw=0.8)
    axes.set_yscale("log")
    axes.set_xticks(range(len(found)), [row["case"].replace(" ", "\n") for row in found], fontsize=8)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3, axis="y")
    figure.suptitle("n x n matrices of NumPy on one NVIDIA H200 and 16 processors: time of others over ours", fontsize=10)
    figure.savefig(file, metadata={"Date": None})


def table() -> list[str]:
    """The rows of README.md."""
    lines = []
    for words, (name, group, case) in TABLE.items():
        found = [row for row in rows(name, group) if row["case"] == case or row["case"][:-3] == case]
        note = "".join(f" ({100 * row['of_copy']:.0f} % of a device copy)" for row in found if "of_copy" in row)
        lines.append(f"| {words} | {' '.join(format(row['ratio'], '.2f') for row in found)}{note} |")
    return lines


def main(folder: Path) -> None:
    """Write the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams |= {"svg.hashsalt": "cuteblas", "svg.fonttype": "none", "font.family": "sans-serif"}
    draw_products(folder / "products.svg")
    draw_transposes(folder / "transposes.svg")
    draw_numpy_arrays(folder / "numpy-arrays.svg")
    for dark, name in enumerate(("overview-light.svg", "overview-dark.svg")):
        draw_overview(folder / name, bool(dark))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
    print("\n".join(table()))
