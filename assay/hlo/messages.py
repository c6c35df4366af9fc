"""The messages of XLA's HloProto that Assay reads, and their fields.

Field numbers are those of ``xla/service/hlo.proto`` and ``xla/xla_data.proto``; fields that are
not named here are skipped.
"""

from collections.abc import Mapping
from typing import Final

MESSAGES: Final[Mapping[str, Mapping[str, tuple[int, str]]]] = {
    "Module": {
        "name": (1, "string"),
        "computations": (3, "Computation*"),
        "host_program_shape": (4, "ProgramShape"),
        "entry_computation_id": (6, "int64"),
        "schedule": (7, "Schedule"),
        "input_output_alias": (8, "InputOutputAlias"),
        "buffer_donor": (18, "BufferDonor"),
        "stack_frame_index": (17, "StackFrameIndex"),
    },
    "ProgramShape": {"parameters": (1, "Shape*"), "result": (2, "Shape")},
    "Computation": {
        "name": (1, "string"),
        "instructions": (2, "bytes*"),
        "id": (5, "int64"),
        "root_id": (6, "int64"),
        "execution_thread": (8, "string"),
    },
    # Of an Instruction, what tells whether to decode the rest.
    "Outline": {"opcode": (2, "string"), "id": (35, "int64"), "operand_ids": (36, "int64*")},
    "Instruction": {
        "name": (1, "string"),
        "opcode": (2, "string"),
        "shape": (3, "Shape"),
        "metadata": (7, "OpMetadata"),
        "literal": (8, "Literal"),
        "parameter_number": (9, "int64"),
        "fusion_kind": (11, "string"),
        "tuple_index": (13, "int64"),
        "dimensions": (14, "int64*"),
        "window": (15, "Window"),
        "convolution_dimension_numbers": (16, "ConvolutionDimensionNumbers"),
        "slice_dimensions": (17, "SliceDimensions*"),
        "dynamic_slice_sizes": (20, "int64*"),
        "channel_id": (26, "int64"),
        "custom_call_target": (28, "string"),
        "dot_dimension_numbers": (30, "DotDimensionNumbers"),
        "id": (35, "int64"),
        "operand_ids": (36, "int64*"),
        "control_predecessor_ids": (37, "int64*"),
        "called_computation_ids": (38, "int64*"),
        "backend_config": (43, "bytes"),
        "is_host_transfer": (47, "bool"),
        "comparison_direction": (63, "string"),
        "frontend_attributes": (68, "FrontendAttributes"),
        "output_operand_aliasing": (74, "OutputOperandAliasing*"),
        "async_execution_thread": (79, "string"),
    },
    # Of an Instruction, what it is counted by.
    "Label": {
        "opcode": (2, "string"),
        "shape": (3, "bytes"),
        "metadata": (7, "bytes"),
        "custom_call_target": (28, "string"),
    },
    # Of an Instruction, what says nothing of its meaning, or says it by reference; all that is not
    # named here stays in the message as bytes.
    "Anonymous": {
        "name": (1, "bytes"),
        "opcode": (2, "string"),
        "metadata": (7, "bytes"),
        "channel_id": (26, "int64"),
        "id": (35, "int64"),
        "operand_ids": (36, "int64*"),
        "control_predecessor_ids": (37, "int64*"),
        "called_computation_ids": (38, "int64*"),
        "sharding": (40, "AnonymousSharding"),
        "backend_config": (43, "bytes"),
        "all_reduce_id": (45, "int64"),
        "custom_call_has_side_effect": (65, "bool"),
        "frontend_attributes": (68, "FrontendAttributes"),
        "statistics_viz": (82, "bytes"),
        "original_value": (88, "bytes"),
    },
    # Of an Instruction, what says where a value comes from or goes, apart from all the rest.
    "Placed": {
        "shape": (3, "Shape"),
        "parameter_number": (9, "int64"),
        "tuple_index": (13, "int64"),
    },
    "AnonymousSharding": {"tuple_shardings": (5, "AnonymousSharding*"), "metadata": (7, "bytes*")},
    "Window": {"dimensions": (1, "WindowDimension*")},
    "WindowDimension": {
        "size": (1, "int64"),
        "stride": (2, "int64"),
        "padding_low": (3, "int64"),
        "window_dilation": (5, "int64"),
        "base_dilation": (6, "int64"),
    },
    "ConvolutionDimensionNumbers": {
        "kernel_input_feature_dimension": (3, "int64"),
        "kernel_output_feature_dimension": (4, "int64"),
        "output_batch_dimension": (9, "int64"),
        "output_feature_dimension": (10, "int64"),
        "input_spatial_dimensions": (11, "int64*"),
        "output_spatial_dimensions": (12, "int64*"),
    },
    "DotDimensionNumbers": {"lhs_contracting_dimensions": (1, "int64*")},
    "SliceDimensions": {"start": (1, "int64"), "limit": (2, "int64"), "stride": (3, "int64")},
    "FrontendAttributes": {"map": (1, "FrontendAttribute*")},
    "FrontendAttribute": {"key": (1, "string"), "value": (2, "string")},
    "OutputOperandAliasing": {
        "output_shape_index": (1, "int64*"),
        "operand_index": (2, "int64"),
        "operand_shape_index": (3, "int64*"),
    },
    "OpMetadata": {
        "op_type": (1, "string"),
        "op_name": (2, "string"),
        "source_file": (3, "string"),
        "source_line": (4, "int32"),
        "stack_frame_id": (15, "int32"),
    },
    "Shape": {
        "element_type": (2, "int32"),
        "dimensions": (3, "int64*"),
        "tuple_shapes": (4, "Shape*"),
        "layout": (5, "Layout"),
    },
    "Layout": {
        "minor_to_major": (1, "int64*"),
        "tiles": (6, "Tile*"),
        "element_size_in_bits": (7, "int64"),
        "memory_space": (8, "int64"),
    },
    "Tile": {"dimensions": (1, "int64*")},
    "Literal": {
        "shape": (1, "Shape"),
        "preds": (2, "bool*"),
        "u8s": (3, "bytes"),
        "s32s": (4, "int32*"),
        "s64s": (5, "int64*"),
        "u32s": (6, "uint32*"),
        "u64s": (7, "uint64*"),
        "s8s": (15, "bytes"),
        "u16s": (16, "bytes"),
        "s16s": (17, "bytes"),
    },
    "Schedule": {"sequences": (1, "ScheduleEntry*")},
    "ScheduleEntry": {"key": (1, "int64"), "value": (2, "InstructionSequence")},
    "InstructionSequence": {"instruction_ids": (1, "int64*")},
    "InputOutputAlias": {"entries": (1, "AliasEntry*")},
    "AliasEntry": {
        "output_shape_index": (1, "int64*"),
        "parameter_number": (2, "int64"),
        "parameter_shape_index": (3, "int64*"),
        "kind": (4, "int32"),
    },
    "BufferDonor": {"entries": (1, "BufferDonorEntry*")},
    "BufferDonorEntry": {
        "parameter_number": (1, "int64"),
        "parameter_shape_index": (2, "int64*"),
    },
    "StackFrameIndex": {
        "file_names": (1, "string*"),
        "function_names": (2, "string*"),
        "file_locations": (3, "FileLocation*"),
        "stack_frames": (4, "StackFrame*"),
    },
    "FileLocation": {
        "file_name_id": (1, "int32"),
        "function_name_id": (2, "int32"),
        "line": (3, "int32"),
        "column": (4, "int32"),
    },
    "StackFrame": {"file_location_id": (1, "int32"), "parent_frame_id": (2, "int32")},
    # The compiler's buffer assignment, which HloProto holds next to the module.
    "HloProto": {"hlo_module": (1, "bytes"), "buffer_assignment": (3, "bytes")},
    "BufferAssignment": {
        "logical_buffers": (1, "LogicalBuffer*"),
        "buffer_aliases": (2, "BufferAlias*"),
        "buffer_allocations": (3, "BufferAllocation*"),
        "heap_simulator_traces": (4, "HeapSimulatorTrace*"),
    },
    "Location": {"shape_index": (3, "int64*"), "instruction_id": (4, "int64")},
    "LogicalBuffer": {
        "id": (1, "int64"),
        "size": (2, "int64"),
        "defined_at": (3, "Location"),
        "color": (4, "int64"),
    },
    "BufferAlias": {"source_buffer_id": (1, "int64"), "location": (2, "Location")},
    "BufferAllocation": {
        "index": (1, "int64"),
        "size": (2, "int64"),
        "is_thread_local": (3, "bool"),
        "is_entry_computation_parameter": (5, "bool"),
        "parameter_number": (6, "int64"),
        "maybe_live_out": (7, "bool"),
        "color": (8, "int64"),
        "assigned": (9, "Assigned*"),
        "parameter_shape_index": (10, "int64*"),
        "is_tuple": (11, "bool"),
        "is_constant": (12, "bool"),
    },
    "Assigned": {
        "logical_buffer_id": (1, "int64"),
        "offset": (2, "int64"),
        "size": (3, "int64"),
    },
    "HeapSimulatorTrace": {
        "events": (1, "HeapEvent*"),
        "whole_module_simulation": (2, "bool"),
        "buffer_allocation_index": (3, "int64"),
    },
    "HeapEvent": {
        "kind": (1, "int32"),
        "buffer_id": (2, "int64"),
        "computation_name": (3, "string"),
        "instruction_name": (4, "string"),
        "share_with_canonical_id": (5, "int64"),
    },
}
"""Message -> field -> (number, type); ``*`` marks a repeated field.

A map is, on the wire, a repeated message of key and value; an enum is an int32; a message that is
decoded later is bytes.
"""
