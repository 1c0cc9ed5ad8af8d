"""The part of an ONNX file that is rewritten here. All the rest of it is kept as it stands.

The numbers are those of the format's own definition, onnx.proto. What is not declared here, attributes for instance,
protobuf carries along from reading to writing. So there is no need of the `onnx` package, whose import alone takes
longer than all of the rewriting.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FLOAT: Final = 1
INT8: Final = 3
"""Of `TensorProto.DataType`."""
_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES: Final = {
    "OperatorSet": (("domain", 1, _FIELD.TYPE_STRING, False), ("version", 2, _FIELD.TYPE_INT64, False)),
    "Node": (
        ("input", 1, _FIELD.TYPE_STRING, True),
        ("output", 2, _FIELD.TYPE_STRING, True),
        ("name", 3, _FIELD.TYPE_STRING, False),
        ("op_type", 4, _FIELD.TYPE_STRING, False),
        ("domain", 7, _FIELD.TYPE_STRING, False),
    ),
    "Tensor": (
        ("dims", 1, _FIELD.TYPE_INT64, True),
        ("data_type", 2, _FIELD.TYPE_INT32, False),
        ("name", 8, _FIELD.TYPE_STRING, False),
        ("raw_data", 9, _FIELD.TYPE_BYTES, False),
    ),
    "Graph": (("node", 1, "Node", True), ("initializer", 5, "Tensor", True)),
    "Model": (("graph", 7, "Graph", False), ("opset_import", 8, "OperatorSet", True)),
}
"""For each message its fields: name, number, type, whether there may be several."""


def read_model(content: bytes) -> Any:
    """The model in an ONNX file, as a protobuf message with the fields that are named above.

    Raises:
        google.protobuf.message.DecodeError: it is no such file.
    """
    return _model_class().FromString(content)


@cache
def _model_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="onnx_part.proto", package="onnx_part", syntax="proto2")
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for name, number, kind, several in fields:
            field = declared.field.add(name=name, number=number)
            field.label = _FIELD.LABEL_REPEATED if several else _FIELD.LABEL_OPTIONAL
            if isinstance(kind, str):
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".onnx_part.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx_part.Model"))
