"""Operations on vectors of eight float64 inside functions compiled by numba, such as the solver on the CPU.

Without them, the compiler leaves the short loops of small problems as scalar code. A vector is one AVX-512 register, or
several narrower ones. Comparisons return *bits*: an integer whose bit k is set where lane k is true. Python cannot call
these functions.
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

#: Typed loosely: in numba's own types, calls do not omit the first argument.
_numba: Any = extending
_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = extending.intrinsic
_types: Any = types
_templates: Any = templates

_WORD, _BYTE, _INDEX = ir.IntType(64), ir.IntType(LANES), ir.IntType(32)
_VECTOR, _MASK = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(1), LANES)
_UNDEFINED = ir.Constant(_VECTOR, ir.Undefined)


class VectorType(types.Type):
    """The numba type of a vector."""


vector_type = VectorType("VectorType")
_floats, _float, _int = _types.CPointer(types.float64), types.float64, types.int64


@_numba.register_model(VectorType)
class _Model(_numba.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, of: Any) -> None:
        super().__init__(manager, of, _VECTOR)


def _operation(result: Any, *given: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function for compiled code, of these types, from a function that emits its instructions."""

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        def typed(_: Any, *_arguments: Any) -> Any:
            def code(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
                made = build(builder, *values)
                return context.get_dummy_value() if result is types.none else made

            return result(*given), code

        typed.__name__, typed.__doc__ = build.__name__, build.__doc__
        typed.__dict__["__signature__"] = inspect.signature(build)  # numba counts these arguments
        return _intrinsic(typed)

    return decorate


@_intrinsic
def pointer(_: Any, array: Any, at: Any) -> Any:
    """Return a C pointer to element `at` of a contiguous array, indexed as a flat array.

    The pointer has no shape, no negative indices and no reference count, which would cost as much as a small problem.
    The caller must keep the array alive.
    """

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.gep(context.make_array(signature.args[0])(context, builder, values[0]).data, [values[1]])

    contiguous = getattr(array, "layout", None) == "C"
    return (_types.CPointer(array.dtype)(array, _types.unliteral(at)), code) if contiguous else None


def _address(builder: Any, numbers: Any, at: Any) -> Any:
    return builder.bitcast(builder.gep(numbers, [at]), _VECTOR.as_pointer())


@_operation(vector_type, _floats, _int)
def load(builder: Any, numbers: Any, at: Any) -> Any:
    """Load the eight float64 that start at element `at` of a `pointer`."""
    return builder.load(_address(builder, numbers, at), align=8)


@_operation(types.none, _floats, _int, vector_type)
def store(builder: Any, numbers: Any, at: Any, vector: Any) -> None:
    """Write a vector to where `load` would read it."""
    builder.store(vector, _address(builder, numbers, at), align=8)


@_operation(vector_type, _float)
def broadcast(builder: Any, value: Any) -> Any:
    """Return a vector with this value in every lane."""
    one = builder.insert_element(_UNDEFINED, value, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(one, _UNDEFINED, ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES))


def _minimum(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@_operation(vector_type, vector_type, vector_type)
def minimum(builder: Any, a: Any, b: Any) -> Any:
    """Return the minimum in each lane. If one of the two values is NaN, return the value of the second vector."""
    return _minimum(builder, a, b)


def _mask_bits(builder: Any, mask: Any) -> Any:
    return builder.zext(builder.bitcast(mask, _BYTE), _WORD)


@_operation(_int, vector_type, vector_type)
def less(builder: Any, a: Any, b: Any) -> Any:
    """Return the bits of a < b."""
    return _mask_bits(builder, builder.fcmp_ordered("<", a, b))


@_operation(_int, vector_type, vector_type)
def equal(builder: Any, a: Any, b: Any) -> Any:
    """Return the bits of a == b."""
    return _mask_bits(builder, builder.fcmp_ordered("==", a, b))


@_operation(vector_type, _int, vector_type, vector_type)
def select(builder: Any, bits: Any, a: Any, b: Any) -> Any:
    """Return the first vector in the lanes whose bits are set, else the second."""
    return builder.select(builder.bitcast(builder.trunc(bits, _BYTE), _MASK), a, b)


@_operation(_int, _int)
def lowest_bit(builder: Any, bits: Any) -> Any:
    """Return the number of the lowest bit that is set. The result is undefined for 0."""
    return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))


def _reduce(builder: Any, vector: Any, join: Callable[..., Any]) -> Any:
    """Combine the lanes by halves, in log2 steps, always in the same order."""
    step = LANES // 2
    while step:
        order = ir.Constant(ir.VectorType(_INDEX, LANES), [(k + step) % LANES for k in range(LANES)])
        vector = join(vector, builder.shuffle_vector(vector, _UNDEFINED, order))
        step //= 2
    return builder.extract_element(vector, ir.Constant(_INDEX, 0))


@_operation(_float, vector_type)
def reduce_min(builder: Any, vector: Any) -> Any:
    """Return the minimum of the eight numbers. If one is NaN, return any of the eight."""
    return _reduce(builder, vector, lambda a, b: _minimum(builder, a, b))


@_operation(_float, vector_type)
def reduce_sum(builder: Any, vector: Any) -> Any:
    """Return the sum of the eight numbers."""
    return _reduce(builder, vector, builder.fadd)


def _arithmetic(symbol: Any, name: str) -> None:
    def code(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return getattr(builder, name)(*values)

    cases = [vector_type(vector_type, vector_type)]
    _templates.infer_global(symbol)(type(name, (_templates.ConcreteTemplate,), {"cases": cases}))
    _numba.lower_builtin(symbol, vector_type, vector_type)(code)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
