"""The default model's graph, rewritten so that its products are of integers. Pure: bytes to bytes, in 0.1 s.

The file holds its weights as int8, each column with a scale, and onnxruntime would unfold them to float32 when it loads
them: the products of a text with the weights are then most of the work. These rules change that.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.embedder.onnx_file import FLOAT, INT8, MICROSOFT, read_model

PRECISION: Final = "w7a8"
"""The precision of the vectors: weights of 7 bits, activations of 8. To be changed with any rule that changes the
vectors, since vectors of another precision are not compared with these."""
LARGEST_WEIGHT: Final = 63
"""Seven bits and no eighth: x86 processors without VNNI add two products of a uint8 and an int8 in 16 bits with
saturation, and 2 * 255 * 63 fits there. So all of them make the same vectors. (With onnxruntime's
`session.x64quantprecision` eight bits would do, but it slows down processors with VNNI as well, by a half.)"""


def int8_graph(content: bytes) -> bytes:
    """An ONNX file with the same model, for one text at a time, without padding.

    A sentence's vector has a cosine of 0.97 to 0.99 to that of the file as it was, a single word's of 0.94 and more.
    All that goes through a product at once shares one scale: of several texts in a batch, each would change the others.
    """
    model = read_model(content)
    use_integer_products(model)
    unfold_only_what_is_looked_up(model.graph)
    attend_to_all(model.graph)
    add_biases_in_products(model.graph)
    compute_gelu_at_once(model.graph)
    rewritten: bytes = model.SerializeToString()
    return rewritten


def use_integer_products(model: Any) -> int:
    """Turn Cast → Mul → MatMul into `DynamicQuantizeMatMul`; the number of products that were turned.

    Cast and Mul unfold a constant matrix of int8 by a scale for each column. The operator takes the matrix as it is,
    and quantises the activations when it is run, to uint8 with one scale and zero point.
    """
    graph = model.graph
    constants = {each.name: each for each in graph.initializer}
    makers, uses = _makers(graph), _uses(graph)
    turned: set[str] = set()
    for node in graph.node:
        if node.op_type != "MatMul" or (unfolding := _unfolding(makers, constants, node.input[1])) is None:
            continue
        cast, mul = unfolding
        weights, scales = constants[cast.input[0]], constants[mul.input[1]]
        if list(scales.dims) != [1, weights.dims[-1]] or uses[mul.output[0]] != 1:
            continue
        _narrow(weights, scales)
        zeros = graph.initializer.add()
        zeros.name, zeros.data_type, zeros.raw_data = f"{weights.name}_zeros", INT8, bytes(weights.dims[1])
        zeros.dims.append(weights.dims[1])
        node.op_type, node.domain = "DynamicQuantizeMatMul", MICROSOFT
        node.input[:] = [node.input[0], weights.name, scales.name, zeros.name]
        turned |= {cast.output[0], mul.output[0]}
    _put_nodes(graph, [node for node in graph.node if node.output[0] not in turned])
    if not any(each.domain == MICROSOFT for each in model.opset_import):
        model.opset_import.add(domain=MICROSOFT, version=1)
    return len(turned) // 2


def unfold_only_what_is_looked_up(graph: Any) -> int:
    """Look rows of an embedding up before they are unfolded, not after; the number of embeddings that were changed.

    The numbers are the same, and the process is smaller by three quarters of the embeddings.
    """
    constants = {each.name: each for each in graph.initializer}
    makers, uses = _makers(graph), _uses(graph)
    nodes: list[Any] = []
    moved: set[str] = set()
    for node in graph.node:
        unfolding = _unfolding(makers, constants, node.input[0]) if node.op_type == "Gather" else None
        if unfolding is None or uses[node.input[0]] != 1:
            nodes.append(node)
            continue
        cast, mul = unfolding
        moved |= {cast.output[0], mul.output[0]}
        nodes += _looked_up_first(node, cast, mul)
    _put_nodes(graph, [node for node in nodes if node.output[0] not in moved])
    return len(moved) // 2


def attend_to_all(graph: Any) -> int:
    """Let each token attend to all others of its batch, whatever the mask says; the number of layers that were changed.

    For a text by itself, which has no padding, the mask changes nothing but the time: a fifth of a long text's.
    Add(scores, mask) → Softmax → IsNaN, Where becomes Softmax(scores).
    """
    makers = _makers(graph)
    renamed: dict[str, str] = {}
    dropped: set[str] = set()
    for where in graph.node:
        if where.op_type != "Where" or (isnan := makers.get(where.input[0])) is None or isnan.op_type != "IsNaN":
            continue
        softmax = makers[isnan.input[0]]
        masked = makers[softmax.input[0]]
        if [softmax.op_type, masked.op_type, where.input[2]] != ["Softmax", "Add", softmax.output[0]]:
            continue
        softmax.input[0] = masked.input[0]
        renamed[where.output[0]] = softmax.output[0]
        dropped |= {where.output[0], isnan.output[0], masked.output[0]}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    _put_nodes(graph, [node for node in graph.node if node.output[0] not in dropped])
    return len(renamed)


def add_biases_in_products(graph: Any) -> int:
    """Let a product add its bias itself; the number of products that do."""
    constants = {each.name for each in graph.initializer}
    makers, uses = _makers(graph), _uses(graph)
    kept: list[Any] = []
    for node in graph.node:
        product = makers.get(node.input[0]) if node.op_type == "Add" and node.input[1] in constants else None
        if product is None or product.op_type != "DynamicQuantizeMatMul" or uses[product.output[0]] != 1:
            kept.append(node)
        else:
            product.input.append(node.input[1])
            product.output[0] = node.output[0]
    added = len(graph.node) - len(kept)
    _put_nodes(graph, kept)
    return added


def compute_gelu_at_once(graph: Any) -> int:
    """Turn x * (0.5 * (1 + erf(x / sqrt 2))), five passes over the widest layer, into `Gelu`; how many were turned."""
    makers, uses = _makers(graph), _uses(graph)
    scalars = {each.name: np.frombuffer(each.raw_data, "<f4")[0] for each in graph.initializer if _is_scalar(each)}
    dropped: set[str] = set()
    for last in graph.node:
        if last.op_type != "Mul" or (half := makers.get(last.input[1])) is None or half.op_type != "Mul":
            continue
        chain = _chain(makers, half.input[1], ("Add", "Erf", "Div"))
        if chain is None or any(uses[node.output[0]] != 1 for node in (half, *chain)):
            continue
        one, _, root = chain
        numbers = [scalars.get(name) for name in (half.input[0], one.input[1], root.input[1])]
        if root.input[0] != last.input[0] or None in numbers or not np.allclose(numbers, (0.5, 1.0, 2**0.5)):  # type: ignore[arg-type]
            continue
        last.op_type, last.domain, last.input[:] = "Gelu", MICROSOFT, [last.input[0]]
        dropped |= {node.output[0] for node in (half, *chain)}
    _put_nodes(graph, [node for node in graph.node if node.output[0] not in dropped])
    return len(dropped) // 4


def _is_scalar(tensor: Any) -> bool:
    return tensor.data_type == FLOAT and not tensor.dims and len(tensor.raw_data) == 4


def _chain(makers: dict[str, Any], name: str, operators: tuple[str, ...]) -> list[Any] | None:
    """The nodes that made a value, each from the first input of the one before; None: they are other operators."""
    found: list[Any] = []
    for operator in operators:
        node = makers.get(name)
        if node is None or node.op_type != operator:
            return None
        found.append(node)
        name = node.input[0]
    return found


def _makers(graph: Any) -> dict[str, Any]:
    """The node that makes each value."""
    return {name: node for node in graph.node for name in node.output}


def _uses(graph: Any) -> Counter[str]:
    """The number of times that each value is an input."""
    return Counter(name for node in graph.node for name in node.input)


def _unfolding(makers: dict[str, Any], constants: dict[str, Any], name: str) -> tuple[Any, Any] | None:
    """The Cast and the Mul that make a value from a constant matrix of int8 and its scales; None: it is none such."""
    mul = makers.get(name)
    if mul is None or mul.op_type != "Mul" or mul.input[1] not in constants:
        return None
    cast = makers.get(mul.input[0])
    if cast is None or cast.op_type != "Cast" or cast.input[0] not in constants:
        return None
    matrix = constants[cast.input[0]]
    return (cast, mul) if matrix.data_type == INT8 and len(matrix.dims) == 2 else None


def _narrow(weights: Any, scales: Any) -> None:
    """Bring each column's weights into ±LARGEST_WEIGHT, and its scale with them, as a vector."""
    matrix, steps = narrowed(np.frombuffer(weights.raw_data, np.int8).reshape(weights.dims).astype(np.float32))
    weights.raw_data = matrix.tobytes()
    scales.raw_data = (np.frombuffer(scales.raw_data, "<f4") * steps).astype("<f4").tobytes()
    scales.dims[:] = [weights.dims[1]]


def narrowed(matrix: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A matrix as integers of ±LARGEST_WEIGHT, and each column's scale."""
    widest = np.abs(matrix).max(axis=0)
    widest[widest == 0.0] = 1.0
    return np.rint(matrix * (LARGEST_WEIGHT / widest)).astype(np.int8), widest / LARGEST_WEIGHT


def _looked_up_first(gather: Any, cast: Any, mul: Any) -> list[Any]:
    """Gather(Mul(Cast(weights), scales)) as Mul(Cast(Gather(weights)), Gather(scales))."""
    result = gather.output[0]
    rows, row_scales, unfolded, scaled = type(gather)(), type(gather)(), type(gather)(), type(gather)()
    for node, like, suffix in ((rows, gather, "_int8"), (row_scales, gather, "_scale"), (unfolded, cast, "_unscaled")):
        node.CopyFrom(like)  # with its attributes
        node.name, node.output[:] = f"{like.name}{suffix}", [f"{result}{suffix}"]
    scaled.CopyFrom(mul)
    rows.input[0] = cast.input[0]
    row_scales.input[0] = mul.input[1]
    unfolded.input[:] = [rows.output[0]]
    scaled.input[:] = [unfolded.output[0], row_scales.output[0]]
    scaled.output[:] = [result]
    return [rows, row_scales, unfolded, scaled]


def _put_nodes(graph: Any, nodes: list[Any]) -> None:
    kept = type(graph)()
    kept.node.extend(nodes)
    del graph.node[:]
    graph.node.MergeFrom(kept.node)
