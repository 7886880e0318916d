"""Store a GGUF model's weights in 8-bit blocks: ``python tools/repack_gguf.py MODEL-q4_k_m.gguf MODEL-8bit.gguf``.

Files called 4-bit hold a mixture of kinds, and llama.cpp has fast ARM code for some of them only. 8-bit blocks (Q8_0)
are among the fast ones and change a weight by no more than about 0.4% of the largest in its block of 32; they
take more memory. It makes the same bytes every time. Needs ``pip install gguf``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

#: What llama.cpp writes into ``general.file_type`` of a model in Q8_0.
MOSTLY_Q8_0 = 7


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="the GGUF file to read")
    parser.add_argument("out", type=Path, help="the GGUF file to write")
    return parser.parse_args()


def copy_fields(reader: Any, writer: Any) -> None:
    """Copy what the file says of itself, all but the kind of its weights."""
    from gguf import GGUFValueType

    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue  # the writer has these of itself
        if field.name == "general.file_type":
            writer.add_uint32(field.name, MOSTLY_Q8_0)
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)


def copy_tensors(reader: Any, writer: Any) -> None:
    """Copy the weights: matrices in 8-bit blocks, vectors as they are."""
    from gguf import GGMLQuantizationType, quants

    for tensor in reader.tensors:
        if tensor.data.ndim < 2:
            writer.add_tensor(tensor.name, quants.dequantize(tensor.data, tensor.tensor_type))
            continue
        blocks = tensor.data
        if tensor.tensor_type != GGMLQuantizationType.Q8_0:
            plain = quants.dequantize(tensor.data, tensor.tensor_type)
            blocks = quants.quantize(plain, GGMLQuantizationType.Q8_0)
        writer.add_tensor(tensor.name, blocks, raw_dtype=GGMLQuantizationType.Q8_0)


def main() -> int:
    """Read one file and write the other."""
    given = options()
    if not given.model.is_file():
        sys.stderr.write(f"there is no file {given.model}: name a GGUF file\n")
        return 2
    try:
        from gguf import GGUFReader, GGUFWriter
    except ImportError:
        sys.stderr.write("this needs gguf: pip install gguf\n")
        return 2
    reader = GGUFReader(given.model)
    writer = GGUFWriter(given.out, reader.fields["general.architecture"].contents())
    copy_fields(reader, writer)
    copy_tensors(reader, writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
