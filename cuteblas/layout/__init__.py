"""CuTe's layout algebra in Python: correct as functions over all coordinates, or refused.

See docs/layout-semantics.md for what happens at the edges.
"""

from .algebra import coalesce, complement, filter_zeros, filtered, flatten, is_bijective, left_inverse, nullspace, right_inverse
from .basis import ArithTuple, E, ScaledBasis
from .composition import composition
from .core import (
                   Layout,
                   append,
                   cosize,
                   group_modes,
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
                   compatible,
                   congruent,
                   crd2crd,
                   crd2idx,
                   depth,
                   dice,
                   elem_leq,
                   elem_less,
                   elem_scale,
                   get,
                   idx2crd,
                   inner_product,
                   product,
                   product_each,
                   product_like,
                   rank,
                   round_up,
                   shape_div,
                   size,
                   slice_,
                   unflatten,
                   weakly_congruent,
)
from .show import layout_table, print_layout, print_tensor, tensor_table
from .swizzle import ComposedLayout, Swizzle
from .symbolic import Expr, Var
from .tensor import (
                   CoordinateIterator,
                   CountingIterator,
                   Tensor,
                   counting_iterator,
                   domain_offset,
                   flat_coordinate,
                   inner_partition,
                   local_partition,
                   local_tile,
                   make_identity_tensor,
                   make_tensor,
                   outer_partition,
)
from .tiling import (
                   blocked_product,
                   flat_divide,
                   flat_product,
                   logical_divide,
                   logical_product,
                   raked_product,
                   tile_to_shape,
                   tiled_divide,
                   tiled_product,
                   zipped_divide,
                   zipped_product,
)
from .vectors import domain_distribute, downcast, max_alignment, max_common_layout, max_common_vector, recast_layout, upcast

__all__ = ["ArithTuple", "ComposedLayout", "CoordinateIterator", "CountingIterator", "E", "Expr", "Layout", "LayoutError",
           "ScaledBasis", "Swizzle", "Tensor", "Var", "_", "append", "blocked_product", "ceil_div", "coalesce", "compatible",
           "complement", "composition", "congruent", "cosize", "counting_iterator", "crd2crd", "crd2idx", "depth", "dice",
           "domain_distribute", "domain_offset", "downcast", "elem_leq", "elem_less", "elem_scale", "filter_zeros", "filtered",
           "flat_coordinate", "flat_divide", "flat_product", "flatten", "get", "group_modes", "idx2crd", "inner_partition",
           "inner_product", "is_bijective", "layout_table", "left_inverse", "local_partition", "local_tile", "logical_divide",
           "logical_product", "make_identity_layout", "make_identity_tensor", "make_layout", "make_layout_like",
           "make_ordered_layout", "make_tensor", "max_alignment", "max_common_layout", "max_common_vector", "nullspace",
           "outer_partition", "prepend", "print_layout", "print_tensor", "product", "product_each", "product_like",
           "raked_product", "rank", "recast_layout", "replace", "right_inverse", "round_up", "select", "shape_div", "size",
           "slice_", "slice_and_offset", "take", "tensor_table", "tile_to_shape", "tiled_divide", "tiled_product", "unflatten",
           "upcast", "weakly_congruent", "zipped_divide", "zipped_product"]

_: None = None
"""The free mode of a slice: ``t[_, 3]``."""
