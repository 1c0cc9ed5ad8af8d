"""ONNX files as protobuf messages, with only the fields that are used here, so that the package `onnx` is not
needed."""

import re
from functools import cache
from typing import Any, Final

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray

FLOAT: Final = 1
_DATA_TYPES: Final = {"<f4": FLOAT, "|i1": 3, "<i8": 7}
"""Values of `TensorProto.DataType` by numpy's names."""
MICROSOFT: Final = "com.microsoft"
"""The domain of onnxruntime's own operators."""
_ATTRIBUTE_FLOAT: Final = 1
_ATTRIBUTE_INT: Final = 2
_ATTRIBUTE_INTS: Final = 7
"""Values of `AttributeProto.AttributeType`."""
_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES: Final = """
message OperatorSet { string domain = 1; int64 version = 2; }
message Attribute { string name = 1; float f = 2; int64 i = 3; repeated int64 ints = 8; int32 type = 20; }
message Node {
    repeated string input = 1; repeated string output = 2; string name = 3; string op_type = 4;
    repeated Attribute attribute = 5; string domain = 7;
}
message Tensor { repeated int64 dims = 1; int32 data_type = 2; string name = 8; bytes raw_data = 9; }
message Dimension { int64 dim_value = 1; string dim_param = 2; }
message Shape { repeated Dimension dim = 1; }
message TensorType { int32 elem_type = 1; Shape shape = 2; }
message Type { TensorType tensor_type = 1; }
message Value { string name = 1; Type type = 2; }
message Graph {
    repeated Node node = 1; string name = 2; repeated Tensor initializer = 5;
    repeated Value input = 11; repeated Value output = 12;
}
message Model { int64 ir_version = 1; Graph graph = 7; repeated OperatorSet opset_import = 8; }
"""
"""The definitions of `onnx.proto`, in its notation."""
_MESSAGE: Final = re.compile(r"message (\w+) \{([^}]*)\}")
_DECLARED: Final = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")


def new_model(opset: int, ir_version: int) -> Any:
    """A model without nodes, whose graph may use the operators of that opset and onnxruntime's own."""
    model = _model_class()(ir_version=ir_version)
    model.graph.name = "model"
    model.opset_import.add(domain="", version=opset)
    model.opset_import.add(domain=MICROSOFT, version=1)
    return model


def constants_of(content: bytes) -> dict[str, NDArray[Any]]:
    """The float32 and integer constants of an ONNX file, by name, in the order of the file.

    Raises:
        google.protobuf.message.DecodeError: it is not an ONNX file.
    """
    kinds = {number: name for name, number in _DATA_TYPES.items()}
    return {
        each.name: np.frombuffer(each.raw_data, kinds[each.data_type]).reshape(each.dims)
        for each in _model_class().FromString(content).graph.initializer
        if each.data_type in kinds and each.raw_data
    }


def add_constant(graph: Any, name: str, values: NDArray[Any]) -> str:
    """Add a constant of float32, int8 or int64. Returns its name."""
    data_type = _DATA_TYPES[values.dtype.str]
    graph.initializer.add(dims=values.shape, data_type=data_type, name=name, raw_data=values.tobytes())
    return name


def add_node(
    graph: Any, operator: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: int | float | list[int]
) -> str:
    """Add a node. Returns the name of its first output."""
    node = graph.node.add(op_type=operator, input=inputs, output=outputs, name=outputs[0], domain=domain)
    for name, value in attributes.items():
        if isinstance(value, list):
            node.attribute.add(name=name, ints=value, type=_ATTRIBUTE_INTS)
        elif isinstance(value, int):
            node.attribute.add(name=name, i=value, type=_ATTRIBUTE_INT)
        else:
            node.attribute.add(name=name, f=value, type=_ATTRIBUTE_FLOAT)
    return outputs[0]


def declare(values: Any, name: str, *shape: int | str) -> str:
    """Add a float32 tensor to a graph's inputs or outputs; a named dimension may have any size."""
    dims = [{"dim_value": size} if isinstance(size, int) else {"dim_param": size} for size in shape]
    values.add(name=name, type={"tensor_type": {"elem_type": FLOAT, "shape": {"dim": dims}}})
    return name


@cache
def _model_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="onnx_part.proto", package="onnx_part", syntax="proto2")
    for message, fields in _MESSAGE.findall(_MESSAGES):
        declared = file.message_type.add(name=message)
        for repeated, kind, name, number in _DECLARED.findall(fields):
            field = declared.field.add(name=name, number=int(number))
            field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            if kind[0].isupper():
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".onnx_part.{kind}"
            else:
                field.type = _FIELD.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx_part.Model"))
