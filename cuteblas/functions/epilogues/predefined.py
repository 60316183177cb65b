"""Predefined epilogues, each usable inside another one: ``gelu(acc + bias)``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .epilogue import epilogue
from .functions import erf, logistic

__all__ = ["bgrad_a", "bgrad_b", "bias", "bias_gelu", "bias_gelu_aux", "bias_relu", "bias_relu_aux",
           "clamp", "dequantize", "dgelu", "dgelu_bgrad", "dgelu_tanh", "dgelu_tanh_bgrad", "drelu",
           "drelu_bgrad", "gelu", "gelu_aux", "gelu_tanh", "leaky_relu", "relu", "relu_aux",
           "residual_add", "scale", "sigmoid", "silu", "tanh"]

_AXES = {"row": -1, "column": -2}


@epilogue
def bias(acc: Any, *, bias: Any) -> Any:
    """``acc + bias``: a bias of shape (n,) has a value for each column, one of shape (m, 1) a value
    for each row.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    bias : array
        Broadcasts over the result: shape (n,) for a value per column, (m, 1) for a value per row.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> bias(np.ones((2, 3)), bias=np.array([1.0, 2.0, 3.0]))
    array([[2., 3., 4.],
           [2., 3., 4.]])
    >>> cuteblas.matmul(np.eye(2), np.ones((2, 3)), epilogue=bias(bias=np.array([1.0, 2.0, 3.0])))
    array([[2., 3., 4.],
           [2., 3., 4.]])
    """
    return acc + bias


@epilogue
def relu(acc: Any) -> Any:
    """``max(acc, 0)``; NaN stays NaN.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> relu(np.array([-2.0, 2.0]))
    array([0., 2.])
    >>> cuteblas.matmul(np.eye(2), np.array([[1.0, -1.0], [2.0, -2.0]]), epilogue="relu")
    array([[1., 0.],
           [2., 0.]])
    """
    return np.maximum(acc, 0)


@epilogue
def bias_relu(acc: Any, *, bias: Any) -> Any:
    """``max(acc + bias, 0)``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    bias : array
        Broadcasts over the result: shape (n,) for a value per column, (m, 1) for a value per row.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> bias_relu(np.array([[-3.0, 3.0]]), bias=np.array([[1.0, 1.0]]))
    array([[0., 4.]])
    """
    return relu(acc + bias)


@epilogue
def leaky_relu(acc: Any, *, negative_slope: Any = 0.01) -> Any:
    """``acc`` where it is positive, ``negative_slope * acc`` elsewhere.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    negative_slope : float
        The slope below 0.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> leaky_relu(np.array([-2.0, 2.0]), negative_slope=0.5)
    array([-1.,  2.])
    """
    return np.where(acc > 0, acc, negative_slope * acc)


@epilogue
def gelu(acc: Any) -> Any:
    """``acc * Phi(acc)``, with Phi of the normal distribution computed from the error function.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> gelu(np.array([-100.0, 0.0, 100.0]))
    array([ -0.,   0., 100.])
    """
    return 0.5 * acc * (1 + erf(acc * math.sqrt(0.5)))


@epilogue
def gelu_tanh(acc: Any) -> Any:
    """GELU with Phi approximated by tanh (Hendrycks and Gimpel, arXiv:1606.08415): the GELU of
    cuBLAS and nvmath-python.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> gelu_tanh(np.array([-100.0, 0.0, 100.0]))
    array([ -0.,   0., 100.])
    """
    return 0.5 * acc * (1 + np.tanh(_tanh_argument(acc)))


@epilogue
def bias_gelu(acc: Any, *, bias: Any) -> Any:
    """``gelu(acc + bias)``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    bias : array
        Broadcasts over the result: shape (n,) for a value per column, (m, 1) for a value per row.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> bias_gelu(np.array([[0.0, 100.0]]), bias=np.array([[0.0, 1.0]]))
    array([[  0., 101.]])
    """
    return gelu(acc + bias)


@epilogue
def silu(acc: Any) -> Any:
    """``acc * sigmoid(acc)``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> silu(np.array([-1000.0, 0.0, 1000.0]))
    array([  -0.,    0., 1000.])
    """
    return acc * logistic(acc)


@epilogue
def sigmoid(acc: Any) -> Any:
    """``1 / (1 + exp(-acc))``, without overflow.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    return logistic(acc)


@epilogue
def tanh(acc: Any) -> Any:
    """``tanh(acc)``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> tanh(np.array([-1000.0, 0.0, 1000.0]))
    array([-1.,  0.,  1.])
    """
    return np.tanh(acc)


@epilogue
def clamp(acc: Any, *, lo: Any = None, hi: Any = None) -> Any:
    """``min(max(acc, lo), hi)``; ``None`` leaves a side open, NaN stays NaN.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    lo, hi : number or array, optional
        Bounds.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> clamp(np.array([-3.0, 0.5, 3.0]), lo=0, hi=1)
    array([0. , 0.5, 1. ])
    """
    raised = acc if lo is None else np.maximum(acc, lo)
    return raised if hi is None else np.minimum(raised, hi)


@epilogue
def scale(acc: Any, *, scale: Any) -> Any:
    """``acc * scale``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    scale : number or array
        Broadcasts over the result: a number, shape (n,) for a value per column, (m, 1) for a value
        per row.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> scale(np.ones((2, 2)), scale=np.array([[2.0], [3.0]]))
    array([[2., 2.],
           [3., 3.]])
    """
    return acc * scale


@epilogue
def dequantize(acc: Any, *, scale: Any = 1.0, row_scale: Any = 1.0, column_scale: Any = 1.0,
               zero: Any = 0) -> Any:
    """``(acc - zero) * scale * row_scale * column_scale`` in float32, for sums of integers.

    ``zero`` is what the zero points add to the sums.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    scale : number
        A factor for every element.
    row_scale : number or array
        A factor for each row, of shape (m, 1): the scales of A.
    column_scale : number or array
        A factor for each column, of shape (n,): the scales of B.
    zero : number or array
        Subtracted from the sums first.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> dequantize(np.array([[100, -50]]), scale=0.5, column_scale=np.array([[1.0, 2.0]]), zero=2)
    array([[ 49., -52.]], dtype=float32)
    """
    return (acc - zero).astype(np.float32) * _float32(scale) * _float32(row_scale) * _float32(column_scale)


@epilogue
def residual_add(acc: Any, *, residual: Any) -> Any:
    """``acc + residual``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    residual : array
        Of the shape of the product.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> residual_add(np.ones((2, 2)), residual=np.eye(2))
    array([[2., 1.],
           [1., 2.]])
    """
    return acc + residual


# -- for training: what the backward pass needs, and the backward pass -----------------------------
@epilogue
def relu_aux(acc: Any) -> Any:
    """``relu(acc)``, and the output ``mask``: where ``acc`` is positive, as bool.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``mask``: bool, of the shape of ``acc``.

    Examples
    --------
    >>> y, more = relu_aux(np.array([-2.0, 2.0]))
    >>> y, more["mask"]
    (array([0., 2.]), array([False,  True]))
    """
    return relu(acc), {"mask": acc > 0}


@epilogue
def bias_relu_aux(acc: Any, *, bias: Any) -> Any:
    """``relu(acc + bias)``, and the output ``mask``: where ``acc + bias`` is positive, as bool.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    bias : array
        Broadcasts over the result: shape (n,) for a value per column, (m, 1) for a value per row.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``mask``: bool, of the shape of ``acc``.

    Examples
    --------
    >>> y, more = bias_relu_aux(np.array([[-3.0, 3.0]]), bias=np.array([[1.0, 1.0]]))
    >>> y, more["mask"]
    (array([[0., 4.]]), array([[False,  True]]))
    """
    return relu_aux(acc + bias)


@epilogue
def gelu_aux(acc: Any) -> Any:
    """``gelu(acc)``, and the output ``pre``: ``acc`` itself.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``pre``: the input of GELU.

    Examples
    --------
    >>> y, more = gelu_aux(np.array([0.0, 100.0]))
    >>> more["pre"]
    array([  0., 100.])
    """
    return gelu(acc), {"pre": acc}


@epilogue
def bias_gelu_aux(acc: Any, *, bias: Any) -> Any:
    """``gelu(acc + bias)``, and the output ``pre``: ``acc + bias``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    bias : array
        Broadcasts over the result: shape (n,) for a value per column, (m, 1) for a value per row.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``pre``: the input of GELU.

    Examples
    --------
    >>> y, more = bias_gelu_aux(np.array([[0.0, 100.0]]), bias=np.array([[0.0, 1.0]]))
    >>> more["pre"]
    array([[  0., 101.]])
    """
    return gelu_aux(acc + bias)


@epilogue
def drelu(acc: Any, *, x: Any) -> Any:
    """``acc`` where ``x`` is positive, else 0; ``x`` is the mask of :data:`relu_aux`, the input of
    ReLU, or its result.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    x : array
        The input of ReLU, its result or a mask, of the shape of the product.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> drelu(np.array([2.0, 2.0]), x=np.array([-1.0, 1.0]))
    array([0., 2.])
    """
    return np.where(x > 0, acc, np.zeros_like(acc))


@epilogue
def dgelu(acc: Any, *, x: Any) -> Any:
    """``acc`` times the derivative of :data:`gelu` at ``x``, the input of GELU:
    ``Phi(x) + x phi(x)``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    x : array
        The input of the activation, of the shape of the product.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> dgelu(np.array([2.0, 2.0]), x=np.array([0.0, 100.0]))
    array([1., 2.])
    """
    return acc * (0.5 * (1 + erf(x * math.sqrt(0.5))) + x
                  * (math.sqrt(0.5 / math.pi) * np.exp(-0.5 * np.square(x))))


@epilogue
def dgelu_tanh(acc: Any, *, x: Any) -> Any:
    """``acc`` times the derivative of :data:`gelu_tanh` at ``x``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    x : array
        The input of the activation, of the shape of the product.

    Returns
    -------
    array
        Of the shape of ``acc``.

    Examples
    --------
    >>> dgelu_tanh(np.array([2.0, 2.0]), x=np.array([0.0, 100.0]))
    array([1., 2.])
    """
    t = np.tanh(_tanh_argument(x))
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * np.square(x))
    return acc * (0.5 * (1 + t) + 0.5 * x * (1 - np.square(t)) * slope)


@epilogue
def drelu_bgrad(acc: Any, *, x: Any, per: Any = "row") -> Any:
    """:data:`drelu`, and the output ``bgrad``: the gradient of a bias with a value for each
    ``"row"`` or ``"column"``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    x : array
        The input of ReLU, its result or a mask, of the shape of the product.
    per : {"row", "column"}
        Whether the bias has a value for each row or for each column.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``bgrad``: a vector.

    Examples
    --------
    >>> y, more = drelu_bgrad(np.ones((2, 3)), x=np.array([[1.0, -1.0, 1.0]] * 2))
    >>> y, more["bgrad"]
    (array([[1., 0., 1.],
           [1., 0., 1.]]), array([2., 2.]))
    """
    return _with_bias_gradient(drelu(acc, x=x), per)


@epilogue
def dgelu_bgrad(acc: Any, *, x: Any, per: Any = "row") -> Any:
    """:data:`dgelu`, and the output ``bgrad``: the gradient of a bias with a value for each
    ``"row"`` or ``"column"``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    x : array
        The input of the activation, of the shape of the product.
    per : {"row", "column"}
        Whether the bias has a value for each row or for each column.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``bgrad``: a vector.

    Examples
    --------
    >>> y, more = dgelu_bgrad(np.ones((2, 3)), x=np.zeros((2, 3)), per="column")
    >>> more["bgrad"]
    array([1., 1., 1.])
    """
    return _with_bias_gradient(dgelu(acc, x=x), per)


@epilogue
def dgelu_tanh_bgrad(acc: Any, *, x: Any, per: Any = "row") -> Any:
    """:data:`dgelu_tanh`, and the output ``bgrad``: the gradient of a bias with a value for each
    ``"row"`` or ``"column"``.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    x : array
        The input of the activation, of the shape of the product.
    per : {"row", "column"}
        Whether the bias has a value for each row or for each column.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``bgrad``: a vector.

    Examples
    --------
    >>> y, more = dgelu_tanh_bgrad(np.ones((2, 3)), x=np.zeros((2, 3)))
    >>> more["bgrad"]
    array([1.5, 1.5])
    """
    return _with_bias_gradient(dgelu_tanh(acc, x=x), per)


@epilogue(inputs=True)
def bgrad_a(acc: Any, *, a: Any) -> Any:
    """``acc`` itself, and the output ``bgrad``: the sums of A over K, one for each row.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    a : array
        The operand A; given by the product.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``bgrad``: a vector.

    Examples
    --------
    >>> c, more = cuteblas.matmul(np.ones((2, 3)), np.ones((3, 4)), epilogue=bgrad_a())
    >>> more["bgrad"]
    array([3., 3.])
    """
    return acc, {"bgrad": a.sum(axis=-1)}


@epilogue(inputs=True)
def bgrad_b(acc: Any, *, b: Any) -> Any:
    """``acc`` itself, and the output ``bgrad``: the sums of B over K, one for each column.

    Parameters
    ----------
    acc : array or value of an epilogue
        The sums; the product supplies them where the epilogue is bound.
    b : array
        The operand B; given by the product.

    Returns
    -------
    result : array
        Of the shape of ``acc``.
    outputs : dict
        ``bgrad``: a vector.

    Examples
    --------
    >>> c, more = cuteblas.matmul(np.ones((2, 3)), np.ones((3, 4)), epilogue=bgrad_b())
    >>> more["bgrad"]
    array([3., 3., 3., 3.])
    """
    return acc, {"bgrad": b.sum(axis=-2)}


def _tanh_argument(x: Any) -> Any:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))


def _float32(x: Any) -> Any:
    return x.astype(np.float32) if hasattr(x, "astype") else x


def _with_bias_gradient(gradient: Any, per: str) -> Any:
    if per not in _AXES:
        raise ValueError(f"per is 'row' or 'column', got {per!r}")
    return gradient, {"bgrad": gradient.sum(axis=_AXES[per])}
