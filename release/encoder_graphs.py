"""Writes the graphs of the encoders, as ONNX files without weights: `python -m release.encoder_graphs`.

The shipped files are next to the vocabulary. They are rewritten when a rule here changes, and then the vectors may
change, too (see `PRECISION`).

onnxruntime would expand weights of 4 or 8 bits to float32 when it loads a file with them, and multiplying by them would
be most of the work. `DynamicQuantizeMatMul` takes the weights as they are, and quantises the activations at run time.
All rows of one product share one scale, so several texts in a batch would change each other's vectors. Texts therefore
go through the graph one by one.
"""

import re
import struct
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from remembrancer.actors.embedder.encoder_weights import graph_of

_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES: Final = Path(__file__).with_name("onnx.proto").read_text()
_MESSAGE: Final = re.compile(r"message (\w+) \{([^}]*)\}")
_DECLARED: Final = re.compile(r"(repeated )?(\w+) (\w+) = (\d+);")
_FLOAT, _INT8, _INT64 = 1, 3, 7
"""Values of `TensorProto.DataType`."""
_ATTRIBUTE_FLOAT, _ATTRIBUTE_INT, _ATTRIBUTE_INTS = 1, 2, 7
"""Values of `AttributeProto.AttributeType`."""
_EXTERNAL: Final = 1
"""A value of `TensorProto.DataLocation`: the data is passed in when the file is loaded."""
_MICROSOFT: Final = "com.microsoft"
"""The domain of onnxruntime's own operators."""
_OPSET, _IR_VERSION = 17, 8


class Encoder(NamedTuple):
    """The shape of a BERT encoder. The names of its weights are those of `EncoderWeights`."""

    name: str
    layers: int
    width: int
    heads: int
    epsilon: float
    attends_at_once: bool
    """True to use onnxruntime's single attention operator, which is a fifth faster and rounds differently."""


ENCODERS: Final = (
    Encoder("all-MiniLM-L6-v2", 6, 384, 12, 1e-12, attends_at_once=False),
    Encoder("multilingual-e5-small", 12, 384, 12, 1e-12, attends_at_once=True),
)


class _Writer:
    """A graph that is being written."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.file = _model_class()(ir_version=_IR_VERSION)
        self.file.graph.name = "model"
        self.file.opset_import.add(domain="", version=_OPSET)
        self.file.opset_import.add(domain=_MICROSOFT, version=1)

    def write(self) -> bytes:
        """Write the encoder, from a text's `embeddings` to each token's state in the last layer."""
        width = self._encoder.width
        state = self.normalised(self.declare(self.file.graph.input, "embeddings"), "emb.ln")
        attend = self.attend_at_once if self._encoder.attends_at_once else self.attend_in_steps
        for layer in (f"l{number}." for number in range(self._encoder.layers)):
            heads = [f"{layer}head.{part}" for part in "qkv"]
            self.add("Split", [self.product(state, f"{layer}q", width, 3 * width)], *heads, axis=-1)
            attended = self.product(attend(heads, f"{layer}attended"), f"{layer}ao", width, width)
            state = self.normalised(self.add("Add", [state, attended], f"{layer}mixed"), f"{layer}aln")
            inner = self.product(state, f"{layer}fi", width, 4 * width)
            wide = self.add("Gelu", [inner], f"{layer}wide", domain=_MICROSOFT)
            added = self.add("Add", [state, self.product(wide, f"{layer}fo", 4 * width, width)], f"{layer}added")
            state = self.normalised(added, f"{layer}oln")
        self.declare(self.file.graph.output, state)
        content: bytes = self.file.SerializeToString(deterministic=True)
        return content

    def normalised(self, values: str, name: str) -> str:
        parts = [self.weights(f"{name}.{part}", _FLOAT, self._encoder.width) for part in "wb"]
        return self.add("LayerNormalization", [values, *parts], f"{name}.out", epsilon=self._encoder.epsilon, axis=-1)

    def product(self, values: str, name: str, inputs: int, outputs: int) -> str:
        parts = [
            self.weights(f"{name}.w", _INT8, inputs, outputs),
            self.weights(f"{name}.scale", _FLOAT, outputs),
            self.weights(f"{name}.zero", _INT8, outputs),
            self.weights(f"{name}.b", _FLOAT, outputs),
        ]
        return self.add("DynamicQuantizeMatMul", [values, *parts], f"{name}.out", domain=_MICROSOFT)

    def attend_at_once(self, heads: list[str], name: str) -> str:
        return self.add("MultiHeadAttention", heads, name, domain=_MICROSOFT, num_heads=self._encoder.heads)

    def attend_in_steps(self, heads: list[str], name: str) -> str:
        """Attention as in the default model's own file, where each factor is divided by the fourth root of the heads'
        width."""
        each = self._encoder.width // self._encoder.heads
        shape = self.constant(f"{name}.heads", _INT64, struct.pack("<4q", 1, -1, self._encoder.heads, each), 4)
        flat = self.constant(f"{name}.flat", _INT64, struct.pack("<3q", 1, -1, self._encoder.width), 3)
        scale = self.constant(f"{name}.scale", _FLOAT, struct.pack("<f", each**-0.25))
        turned: list[str] = []
        for head, order in zip(heads, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True):
            rows = self.add("Reshape", [head, shape], f"{head}.rows")
            turned.append(self.add("Transpose", [rows], f"{head}.turned", perm=order))
        factors = [self.add("Mul", [factor, scale], f"{factor}.scaled") for factor in turned[:2]]
        weights = self.add("Softmax", [self.add("MatMul", factors, f"{name}.by")], f"{name}.soft", axis=-1)
        mixed = self.add("MatMul", [weights, turned[2]], f"{name}.mixed")
        rows = self.add("Transpose", [mixed], f"{name}.rows", perm=[0, 2, 1, 3])
        return self.add("Reshape", [rows, flat], name)

    def constant(self, name: str, data_type: int, data: bytes, *dims: int) -> str:
        self.file.graph.initializer.add(name=name, data_type=data_type, dims=dims, raw_data=data)
        return name

    def weights(self, name: str, data_type: int, *dims: int) -> str:
        """Declare weights that are passed in when the file is loaded."""
        added = self.file.graph.initializer.add(name=name, data_type=data_type, dims=dims, data_location=_EXTERNAL)
        added.external_data.add(key="location", value="weights")
        return name

    def add(
        self, operator: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: int | float | list[int]
    ) -> str:
        """Add a node. Returns the name of its first output."""
        node = self.file.graph.node.add(op_type=operator, input=inputs, output=outputs, name=outputs[0], domain=domain)
        for name, value in attributes.items():
            if isinstance(value, list):
                node.attribute.add(name=name, ints=value, type=_ATTRIBUTE_INTS)
            elif isinstance(value, int):
                node.attribute.add(name=name, i=value, type=_ATTRIBUTE_INT)
            else:
                node.attribute.add(name=name, f=value, type=_ATTRIBUTE_FLOAT)
        return outputs[0]

    def declare(self, values: Any, name: str) -> str:
        """Add a float32 tensor, with a row for each token of one text, to the inputs or outputs."""
        dims = [{"dim_value": 1}, {"dim_param": "tokens"}, {"dim_value": self._encoder.width}]
        values.add(name=name, type={"tensor_type": {"elem_type": _FLOAT, "shape": {"dim": dims}}})
        return name


@cache
def _model_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="onnx_written.proto", package="onnx_written", syntax="proto2")
    for message, fields in _MESSAGE.findall(_MESSAGES):
        declared = file.message_type.add(name=message)
        for repeated, kind, name, number in _DECLARED.findall(fields):
            field = declared.field.add(name=name, number=int(number))
            field.label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
            if kind[0].isupper():
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".onnx_written.{kind}"
            else:
                field.type = _FIELD.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx_written.Model"))


def graphs() -> dict[Path, bytes]:
    """The shipped files with their content."""
    return {graph_of(encoder.name): _Writer(encoder).write() for encoder in ENCODERS}


if __name__ == "__main__":
    for path, content in graphs().items():
        path.write_bytes(content)
        print(f"{path}: {len(content):,} bytes")
