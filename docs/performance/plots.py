"""The plots of this folder from its data: ``python docs/performance/plots.py`` writes them, and
prints the table of README.md.

``products.svg`` and ``transposes.svg`` are on the page of this folder, the others, each for a light
and a dark background, on README.md and docs/how-fast.md. It needs matplotlib:
``pip install -e '.[docs]'``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

try:
    import matplotlib as mpl
except ImportError:
    sys.exit("the plots need matplotlib: pip install -e '.[docs]'")
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

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
COPIES = {"8192x8192": 0.95, "16384x8192": 0.95, "8191x8193": 0.90, "3x10000000": 0.85,
          "10000000x3": 0.85, "1000003x37": 0.85, "37x1000003": 0.85, "64x1000000x3:0,2,1": 0.85,
          "64x1001x1037:0,2,1": 0.85, "256x512x512:2,1,0": 0.85, "64x36x128x256:3,1,2,0": 0.85,
          "65x35x129x253:2,0,3,1": 0.85, "16x32x24x48x128:4,2,0,3,1": 0.85,
          "8192x8192:inplace": 0.95, "8191x8191:inplace": 0.90,}
# The chart of README.md: of each element type the file of data, the place of its name beside its
# last point, and its colours on white and on black.
OVERVIEW = {
    "float32": ("float32", (7, 2), "#1f6fb4", "#6cb6ff"),
    "complex64": ("complex", (7, -9), "#b2521b", "#f0a36b"),
    "float16": ("half", (7, 5), "#2c7d3f", "#7cc98d"),
    "float64": ("double", (-16, -15), "#7a4fb0", "#c3a3f0"),
    "complex128": ("double", (-24, 8), "#7d6608", "#d9c25a"),
}
# The table of README.md: what a row says, its file and group of data, its case, the condition under
# which it holds.
HALF, BYTES = ("16-bit tensor cores; errors no larger than cuBLAS's",
               "8-bit tensor cores; errors no larger than cuBLAS's")
TABLE = {"`matmul`, float32, 4096 x 4096": ("float32", "gemm", "float32 4096x4096x4096", HALF),
         "the same, `precision=\"ieee\"`": ("float32-ieee", "gemm", "float32 4096x4096x4096",
                                            "native float32, as cuBLAS"),
         "float32, 100000 x 1024 by 1024 x 64": ("skinny", "gemm", "float32 100000x64x1024", HALF),
         "complex64, 4096 x 4096": ("complex", "gemm", "complex64 4096x4096x4096", HALF),
         "float16, 4096 x 4096": ("half", "gemm", "float16 4096x4096x4096",
                                  "the same tensor cores as cuBLAS"),
         "float64, 4096 x 4096": ("double", "gemm", "float64 4096x4096x4096", BYTES),
         "complex128, 4096 x 4096": ("double", "gemm", "complex128 4096x4096x4096", BYTES),
         "int64, 4096 x 4096": ("integers", "gemm", "int64 4096x4096x4096",
                                "8-bit tensor cores, exact; CuPy has no tensor cores here"),
         "`blas.igemm`, int8 to int32, 8192 x 8192": ("int-mm", "int_mm", "int8 8192x8192x8192",
                                                      "exact; beside cuBLASLt, not CuPy"),
         "`ascontiguousarray(a.T)`, float32 8192 x 8192": ("transpose", "transpose",
                                                           "float32 8192x8192",
                                                           "{part:.0f} % of a device copy"),}
# Colours on white and on black: background, ink, grid; then those of the series of a chart.
PAPER = (("#ffffff", "#1f2328", "#6e7781"), ("#0d1117", "#e6edf3", "#8b949e"))
OURS, OTHERS, THIRD = ("#1f6fb4", "#6cb6ff"), ("#b2521b", "#f0a36b"), ("#6e7781", "#8b949e")
# The chart of products by type and extent: of each element type the file, how far its name is above
# the last point in both panels, its colours.
BY_TYPE = {
    "int64": ("integers", (-3, -3), ("#b0306a", "#f08ab8")),
    "float32": ("float32", (2, 2), OURS),
    "complex64": ("complex", (-9, -9), OTHERS),
    "float64": ("double", (3, -10), ("#7a4fb0", "#c3a3f0")),
    "complex128": ("double", (-3, 0), ("#7d6608", "#d9c25a")),
    "float16": ("half", (6, -4), ("#2c7d3f", "#7cc98d")),
}
KINDS = {"square": "square", "rectangular": "rectangular", "thin": "thin", "vectors": "vectors",
         "deep": "long sums", "batched": "batched", "tiny batched": "many tiny"}
FLOATS, INTEGERS = ("float16", "float32", "float64", "complex64", "complex128"), ("int8", "int32", "int64", "bool")


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


def products(axes: Axes, element: str, table: str, sweep: str | None = None,
             ragged: str | None = None) -> None:
    """Time of ``cupy.matmul`` over ours, by extent."""
    def points(ratios: dict[int, float], style: str, **options: Any) -> None:
        axes.plot(*zip(*sorted(ratios.items()), strict=True), style, **options)

    if sweep:
        points(cubes(sweep, element)["NN"], "-", lw=1, color="#4878a8",
               label="multiples of 128, NN")
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
    parts = {row["case"]: row["of_copy"] for name in ("transpose", "transpose-permutations")
             for row in rows(name, "transpose")}
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    axes = figure.subplots()
    for i, (element, nbytes) in enumerate(ELEMENTS.items()):
        at = [x + 0.16 * (i - 2) for x in range(len(COPIES))]
        axes.bar(at, [parts[f"{element} {case}"] for case in COPIES], 0.15,
                 label=f"{nbytes} byte{'s' if nbytes > 1 else ''}")
    for x, target in enumerate(COPIES.values()):
        axes.plot((x - 0.42, x + 0.42), (target, target), color="#c33", lw=1.5,
                  label="target" if x == 0 else None)
    axes.axhline(1, color="#333", lw=0.8)
    axes.set_xticks(range(len(COPIES)), list(COPIES), rotation=35, ha="right", fontsize=7)
    axes.legend(fontsize=7, ncols=6)
    axes.set_title(
        "Transposes and permutations on one NVIDIA H200: time of a device copy over ours",
        fontsize=11
    )
    figure.savefig(file, metadata={"Date": None})


def draw_overview(file: Path, dark: bool) -> None:
    """Products by extent, and transposes by the size of an element, on a background of their
    own."""
    back, ink, faint = ("#0d1117", "#e6edf3", "#8b949e") if dark else ("#ffffff", "#1f2328", "#6e7781")
    figure = Figure(figsize=(7.2, 3.2), layout="constrained", facecolor=back)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for element, (table, place, *colours) in OVERVIEW.items():
        points = sorted(cubes(table, element)["NN"].items())
        left.plot(*zip(*points, strict=True), "o-", ms=4, lw=1.8, color=colours[dark])
        left.annotate(element, points[-1], place, textcoords="offset points", color=colours[dark],
                      fontsize=9)
    left.axhline(1, color=ink, lw=1)
    left.annotate("cuBLAS by cupy.matmul", (512, 1), (0, -12), textcoords="offset points",
                  color=ink, fontsize=9)
    left.set_xscale("log", base=2)
    left.set_xlim(480, 60000)
    left.set_xticks([2**i for i in range(9, 15)], [str(2**i) for i in range(9, 15)])
    left.set_ylim(0, 5.3)
    left.set_xlabel("n", color=ink)
    left.set_title("matmul, n x n by n x n:\nspeed relative to cuBLAS", color=ink, fontsize=10)
    found = {row["case"].split()[0]: row for row in rows("transpose", "transpose")
             if row["case"].endswith(" 8192x8192")}
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
    right.set_title("ascontiguousarray(a.T), 8192:\nspeed relative to a device copy", color=ink,
                    fontsize=10)
    for axes in (left, right):
        axes.set_facecolor(back)
        axes.tick_params(colors=ink, which="both", labelsize=9)
        axes.minorticks_off()
        axes.spines[:].set_color(faint)
        axes.grid(alpha=0.25, color=faint)
        axes.set_axisbelow(True)
    figure.savefig(file, metadata={"Date": None})


def paper(dark: bool, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of panels one below the other, on its own background, as narrow as a telephone can
    show."""
    back, ink, faint = PAPER[dark]
    figure = Figure(figsize=(6.4, height), layout="constrained", facecolor=back)
    found = list(figure.subplots(panels, squeeze=False)[:, 0])
    for axes in found:
        axes.set_facecolor(back)
        axes.tick_params(colors=ink, which="both", labelsize=9)
        axes.spines[:].set_color(faint)
        axes.grid(alpha=0.25, color=faint)
        axes.set_axisbelow(True)
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set_color(ink)
            text.set_fontsize(9.5)
    return figure, found


def finish(figure: Figure, file: Path, legends: list[Axes], dark: bool, **options: Any) -> None:
    """Add legends and write the file."""
    for axes in legends:
        axes.legend(fontsize=8.5, frameon=False, labelcolor=PAPER[dark][1], **options)
    figure.savefig(file, metadata={"Date": None})


def decimals(axis: Axis) -> None:
    """Ticks of a logarithmic axis as numbers that people write."""
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def draw_by_type(file: Path, dark: bool) -> None:
    """Speed-up over CuPy and rate of square products, by type and extent."""
    figure, (upper, lower) = paper(dark, 6.6, 2)
    for element, (name, above, colours) in BY_TYPE.items():
        found = sorted((int(row["case"].split()[1].split("x")[0]), row["ratio"], row["tflops"])
                       for row in rows(name, "gemm") if row["case"].startswith(element + " ")
                       and row["case"].endswith(" NN")
                       and len(set(row["case"].split()[1].split("x"))) == 1)
        extents, ratios, rates = zip(*found, strict=True)
        for axes, values, points in ((upper, ratios, above[0]), (lower, rates, above[1])):
            axes.plot(extents, values, "o-", ms=3.5, lw=1.7, color=colours[dark])
            axes.annotate(element, (extents[-1], values[-1]), (6, points),
                          textcoords="offset points", color=colours[dark], fontsize=8.5)
    upper.axhline(1, color=PAPER[dark][1], lw=1)
    words = "n x n by n x n: speed relative to cupy.matmul", "TFLOP/s (2 n³ operations, 8 n³ for complex numbers)"
    for axes, title in zip((upper, lower), words, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlim(440, 40000)
        axes.set_xticks([2**i for i in range(9, 15)], [str(2**i) for i in range(9, 15)])
        axes.set_title(title)
        decimals(axes.yaxis)
    lower.set_xlabel("n")
    upper.set_yticks([0.8, 1, 1.5, 2, 3, 4, 5, 8, 10])
    lower.set_yticks([20, 50, 100, 200, 500])
    finish(figure, file, [], dark)


def draw_permutations(file: Path, dark: bool) -> None:
    """How many random permutations reach which share of a device copy, by cuteblas and by CuPy."""
    figure, (axes,) = paper(dark, 3.2)
    # CuPy does not copy the others
    found = [row for row in rows("transpose-random", "transpose") if row["rival_s"] > 1e-6]
    shares = [100 * (i + 1) / len(found) for i in range(len(found))]
    for words, colours, values in (("cuteblas", OURS, [row["of_copy"] for row in found]),
                                   ("CuPy", OTHERS,
                                    [row["of_copy"] / row["ratio"] for row in found])):
        axes.plot(sorted(values, reverse=True), shares, lw=2, color=colours[dark], label=words)
    axes.axvline(1, color=PAPER[dark][1], lw=1)
    axes.set_xlim(0, 1.4)
    axes.set_ylim(0, 102)
    axes.set_xlabel("speed relative to a device copy of the same bytes")
    axes.set_ylabel("% of permutations at least as fast")
    axes.set_title(f"{len(found)} random permutations of 1 to 256 MiB, written in another order")
    finish(figure, file, [axes], dark, loc="lower left")


def draw_numpy_arrays(file: Path, dark: bool) -> None:
    """NumPy arrays by way of the GPU, beside NumPy and beside CuPy with its copies there and
    back."""
    kinds = "float32", "float64", "complex64", "complex128"
    found = [row for row in rows("numpy-arrays", "numpy") if row["case"].startswith(kinds)]
    figure, (axes,) = paper(dark, 3.4)
    bars = (-0.2, "ratio", "NumPy on 16 cores", OURS), (0.2, "to_trip", "CuPy, with both copies",
                                                        OTHERS)
    for shift, key, words, colours in bars:
        axes.bar([i + shift for i in range(len(found))], [row[key] for row in found], 0.4,
                 label=words, color=colours[dark])
    axes.axhline(1, color=PAPER[dark][1], lw=1)
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, 10, 20, 50])
    decimals(axes.yaxis)
    axes.set_xticks(range(len(found)), [row["case"].replace(" ", "\n") for row in found])
    axes.set_title(
        "n x n products of NumPy arrays, copies to the GPU and back included:\ntime of others over ours"
    )
    finish(figure, file, [axes], dark, loc="upper left")


def random_products() -> list[dict]:
    """Random products, each with its speed relative to the faster of CuPy and PyTorch."""
    data = json.loads((HERE / "data" / "h100-random.json").read_text("utf-8"))["figures"]["gemm"]
    return [row | {"speed": min(filter(None, (row["rival_s"], row["torch_s"]))) / row["ours_s"]}
            for row in data]


def draw_random(file: Path, dark: bool) -> None:
    """Random products beside the faster of CuPy and PyTorch, by kind."""
    data = random_products()
    figure, (axes,) = paper(dark, 3.8)
    for at, kind in enumerate(KINDS):
        of_kind = [row for row in data if row["kind"] == kind]
        for i, row in enumerate(of_kind):
            number = row["case"].split()[0] in INTEGERS
            axes.plot(
                at + 0.7 * (i / (len(of_kind) - 1) - 0.5),
                row["speed"],
                "^" if number else "o",
                ms=3.6,
                mew=0,
                color=(OTHERS if number else OURS)[dark],
                alpha=0.85,
                label=None
                if at
                or any(
                    row["case"].split()[0] in (INTEGERS if number else FLOATS)
                    for row in of_kind[:i]
                )
                else "integers and bool"
                if number
                else "floats and complex numbers"
            )
    axes.axhline(1, color=PAPER[dark][1], lw=1)
    axes.set_yscale("log")
    axes.set_yticks([0.5, 1, 2, 5, 10, 100, 1000])
    decimals(axes.yaxis)
    axes.set_xticks(range(len(KINDS)), list(KINDS.values()))
    axes.set_title(
        "252 random products on one NVIDIA H100:\nspeed relative to the faster of CuPy and PyTorch"
    )
    finish(figure, file, [axes], dark, loc="upper left", markerscale=1.6)


def table() -> list[str]:
    """The rows of README.md: the range of ratios over the orders of operands, and the condition."""
    lines = []
    for words, (name, group, case, condition) in TABLE.items():
        found = [row for row in rows(name, group) if row["case"] == case
                 or row["case"][:-3] == case]
        ends = [f"{end(row['ratio'] for row in found):.2f}" for end in (min, max)]
        note = condition.format(part=100 * found[0].get("of_copy", 0))
        lines.append(f"| {words} | {' to '.join(dict.fromkeys(ends))} | {note} |")
    return lines


def by_type() -> list[str]:
    """The rows of docs/how-fast.md: random products, by type."""
    found: dict[str, list[float]] = {}
    for row in random_products():
        found.setdefault(row["case"].split()[0], []).append(row["speed"])
    return [
        f"| {element} | {len(found[element])} | {median(found[element]):.2g} | {min(found[element]):.2f} "
        f"| {sum(speed < 0.9 for speed in found[element])} |"
        for element in (*FLOATS, *INTEGERS)
    ]


CHARTS = {"overview": draw_overview, "by-type": draw_by_type, "permutations": draw_permutations,
          "numpy-arrays": draw_numpy_arrays, "random": draw_random}


def main(folder: Path) -> None:
    """Write the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams |= {"svg.hashsalt": "cuteblas", "svg.fonttype": "none",
                     "font.family": "sans-serif"}
    draw_products(folder / "products.svg")
    draw_transposes(folder / "transposes.svg")
    for name, draw in CHARTS.items():
        for dark, shade in enumerate(("light", "dark")):
            draw(folder / f"{name}-{shade}.svg", bool(dark))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
    print(*table(), "", *by_type(), sep="\n")
