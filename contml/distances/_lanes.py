"""Eight float64 in one vector for numba: compilers leave loops of about six turns as scalar code.

A vector lies in one AVX-512 register, or in several narrower ones where a processor has none. Comparisons give *bits*:
a whole number whose bit k tells of lane k. All of this is for compiled functions; Python cannot call it.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types
from numba.core.typing import templates

#: Numbers in a vector.
LANES = 8

#: Typed loosely: numba's own types do not tell that the first argument is left out in a call.
_numba: Any = extending
_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = extending.intrinsic
_types: Any = types
_templates: Any = templates

_WORD, _BYTE, _INDEX = ir.IntType(64), ir.IntType(LANES), ir.IntType(32)
_VECTOR, _MASK = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(1), LANES)
_ANY = ir.Constant(_VECTOR, ir.Undefined)


class Lanes(types.Type):
    """numba's type of a vector."""


lanes = Lanes("Lanes")
_floats, _float, _int = _types.CPointer(types.float64), types.float64, types.int64


@_numba.register_model(Lanes)
class _Model(_numba.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, of: Any) -> None:
        super().__init__(manager, of, _VECTOR)


def _operation(result: Any, *given: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function for compiled code, with these types, from one that builds its code from the builder and the values."""

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        def typed(_: Any, *_arguments: Any) -> Any:
            def code(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
                made = build(builder, *values)
                return context.get_dummy_value() if result is types.none else made

            return result(*given), code

        typed.__name__, typed.__doc__ = build.__name__, build.__doc__
        typed.__dict__["__signature__"] = inspect.signature(build)  # as many arguments; numba does not count the first
        return _intrinsic(typed)

    return decorate


@_intrinsic
def pointer(_: Any, array: Any, at: Any) -> Any:
    """The numbers of a C-contiguous array from this place of its memory on, indexed as a flat array.

    Without the array's shape, negative indices and count of references, whose upkeep costs as much as a small problem:
    whoever calls the machine code must hold the array.
    """

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        return builder.gep(data, [values[1]])

    contiguous = getattr(array, "layout", None) == "C"
    return (_types.CPointer(array.dtype)(array, _types.unliteral(at)), code) if contiguous else None


def _address(builder: Any, numbers: Any, at: Any) -> Any:
    return builder.bitcast(builder.gep(numbers, [at]), _VECTOR.as_pointer())


@_operation(lanes, _floats, _int)
def load(builder: Any, numbers: Any, at: Any) -> Any:
    """The vector of eight float64 from this place of a `pointer` on."""
    return builder.load(_address(builder, numbers, at), align=8)


@_operation(types.none, _floats, _int, lanes)
def store(builder: Any, numbers: Any, at: Any, vector: Any) -> None:
    """Put a vector where `load` would find it."""
    builder.store(vector, _address(builder, numbers, at), align=8)


@_operation(lanes, _float)
def every(builder: Any, value: Any) -> Any:
    """The number in every lane."""
    one = builder.insert_element(_ANY, value, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(one, _ANY, ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES))


def _lower(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@_operation(lanes, lanes, lanes)
def lower(builder: Any, a: Any, b: Any) -> Any:
    """The lower of two in each lane; that of the second vector where one is NaN."""
    return _lower(builder, a, b)


def _bits(builder: Any, mask: Any) -> Any:
    return builder.zext(builder.bitcast(mask, _BYTE), _WORD)


@_operation(_int, lanes, lanes)
def less(builder: Any, a: Any, b: Any) -> Any:
    """Bits of a < b."""
    return _bits(builder, builder.fcmp_ordered("<", a, b))


@_operation(_int, lanes, lanes)
def equal(builder: Any, a: Any, b: Any) -> Any:
    """Bits of a == b."""
    return _bits(builder, builder.fcmp_ordered("==", a, b))


@_operation(lanes, _int, lanes, lanes)
def where(builder: Any, bits: Any, a: Any, b: Any) -> Any:
    """The first vector in the lanes of these bits, else the second."""
    return builder.select(builder.bitcast(builder.trunc(bits, _BYTE), _MASK), a, b)


@_operation(_int, _int)
def first(builder: Any, bits: Any) -> Any:
    """The lowest bit's number; the bits are not 0."""
    return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))


def _folded(builder: Any, vector: Any, join: Callable[..., Any]) -> Any:
    """Lanes joined by halves: log2 steps, always in the same order."""
    step = LANES // 2
    while step:
        order = ir.Constant(ir.VectorType(_INDEX, LANES), [(k + step) % LANES for k in range(LANES)])
        vector = join(vector, builder.shuffle_vector(vector, _ANY, order))
        step //= 2
    return builder.extract_element(vector, ir.Constant(_INDEX, 0))


@_operation(_float, lanes)
def least(builder: Any, vector: Any) -> Any:
    """The least of the eight; any of them where one is NaN."""
    return _folded(builder, vector, lambda a, b: _lower(builder, a, b))


@_operation(_float, lanes)
def total(builder: Any, vector: Any) -> Any:
    """The sum of the eight."""
    return _folded(builder, vector, builder.fadd)


def _arithmetic(symbol: Any, name: str) -> None:
    def code(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return getattr(builder, name)(*values)

    _templates.infer_global(symbol)(type(name, (_templates.ConcreteTemplate,), {"cases": [lanes(lanes, lanes)]}))
    _numba.lower_builtin(symbol, lanes, lanes)(code)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
