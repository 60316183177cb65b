"""CuTe's layout algebra in Python: correct as functions over all coordinates, or refused.

See docs/layout-semantics.md for what happens at the edges.
"""

from .algebra import (
                   coalesce,
                   complement,
                   filter_zeros,
                   filtered,
                   flatten,
                   get_1d_coord,
                   get_flat_coord,
                   get_hier_coord,
                   is_bijective,
                   is_injective,
                   left_inverse,
                   nullspace,
                   right_inverse,
)
from .banks import BankReport, bank_report, wavefronts
from .basis import ArithTuple, E, ScaledBasis
from .composition import composition, tiler_to_layout, with_shape
from .core import (
                   Layout,
                   append,
                   coshape,
                   cosize,
                   group_modes,
                   make_fragment_like,
                   make_identity_layout,
                   make_layout,
                   make_layout_like,
                   make_ordered_layout,
                   prepend,
                   replace,
                   select,
                   slice_and_offset,
                   take,
)
from .errors import LayoutError
from .inttuple import (
                   ceil_div,
                   colex_leq,
                   colex_less,
                   compatible,
                   congruent,
                   crd2crd,
                   crd2idx,
                   depth,
                   dice,
                   elem_geq,
                   elem_gtr,
                   elem_leq,
                   elem_less,
                   elem_scale,
                   evenly_divides,
                   gcd,
                   get,
                   idx2crd,
                   inner_product,
                   lex_leq,
                   lex_less,
                   product,
                   product_each,
                   product_like,
                   rank,
                   repeat_like,
                   round_up,
                   shape_div,
                   size,
                   slice_,
                   transform_leaf,
                   tuple_max,
                   tuple_min,
                   tuple_sum,
                   unflatten,
                   unwrap,
                   weakly_congruent,
                   wrap,
                   zero_of,
)
from .pictures import (
                   bank_picture,
                   copy_picture,
                   draw,
                   layout_picture,
                   mma_picture,
                   to_latex,
                   to_svg,
                   tv_picture,
)
from .pictures.figure import Figure
from .show import layout_table, print_layout, print_tensor, tensor_table, tv_table
from .swizzle import ComposedLayout, Swizzle, make_swizzle
from .symbolic import Expr, Var
from .tensor import (
                   CoordinateIterator,
                   CountingIterator,
                   Tensor,
                   counting_iterator,
                   domain_offset,
                   inner_partition,
                   local_partition,
                   local_tile,
                   make_identity_tensor,
                   make_tensor,
                   make_tma_tensor,
                   outer_partition,
)
from .tiling import (
                   blocked_product,
                   flat_divide,
                   flat_product,
                   logical_divide,
                   logical_product,
                   make_layout_tv,
                   raked_product,
                   tile_to_shape,
                   tiled_divide,
                   tiled_product,
                   tv_owners,
                   zipped_divide,
                   zipped_product,
)
from .vectors import (
    domain_distribute,
    downcast,
    max_alignment,
    max_common_layout,
    max_common_vector,
    recast_layout,
    upcast,
)

__all__ = ["ArithTuple", "BankReport", "ComposedLayout", "CoordinateIterator", "CountingIterator",
           "E", "Expr", "Figure", "Layout", "LayoutError", "ScaledBasis", "Swizzle", "Tensor",
           "Var", "_", "append", "bank_picture", "bank_report", "blocked_product", "ceil_div",
           "coalesce", "colex_leq", "colex_less", "compatible", "complement", "composition",
           "congruent", "copy_picture", "coshape", "cosize", "counting_iterator", "crd2crd",
           "crd2idx", "depth", "dice", "domain_distribute", "domain_offset", "downcast", "draw",
           "elem_geq", "elem_gtr", "elem_leq", "elem_less", "elem_scale", "evenly_divides",
           "filter_zeros", "filtered", "flat_divide", "flat_product", "flatten", "gcd", "get",
           "get_1d_coord", "get_flat_coord", "get_hier_coord", "group_modes", "idx2crd",
           "inner_partition", "inner_product", "is_bijective", "is_injective", "layout_picture",
           "layout_table", "left_inverse", "lex_leq", "lex_less", "local_partition", "local_tile",
           "logical_divide", "logical_product", "make_fragment_like", "make_identity_layout",
           "make_identity_tensor", "make_layout", "make_layout_like", "make_layout_tv",
           "make_ordered_layout", "make_swizzle", "make_tensor", "make_tma_tensor", "max_alignment",
           "max_common_layout", "max_common_vector", "mma_picture", "nullspace", "outer_partition",
           "prepend", "print_layout", "print_tensor", "product", "product_each", "product_like",
           "raked_product", "rank", "recast_layout", "repeat_like", "replace", "right_inverse",
           "round_up", "select", "shape_div", "size", "slice_", "slice_and_offset", "take",
           "tensor_table", "tile_to_shape", "tiled_divide", "tiled_product", "tiler_to_layout",
           "to_latex", "to_svg", "transform_leaf", "tuple_max", "tuple_min", "tuple_sum",
           "tv_owners", "tv_picture", "tv_table", "unflatten", "unwrap", "upcast", "wavefronts",
           "weakly_congruent", "with_shape", "wrap", "zero_of", "zipped_divide", "zipped_product"]
__dir__ = __all__.copy

_: None = None
"""The free mode of a slice: ``t[_, 3]``."""
