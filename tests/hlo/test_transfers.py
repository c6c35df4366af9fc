"""Transfers: each form in which a compiler moves bytes, and each that moves none.

``H`` is f32[8,4] in host memory, ``D`` the same on the device (128 bytes), ``R`` one row of it
(16 bytes); the expected pair is (bytes to the host, bytes to the device) per run.
"""

from collections.abc import Callable

import pytest

from assay.hlo.module import Module
from assay.model.module import Direction
from assay.model.summary import ModuleSummary

from .programs import entry, offloading_loop, with_computations

Summary = Callable[[str], ModuleSummary]
SHAPES = {"H": "f32[8,4]{1,0:S(5)}", "D": "f32[8,4]", "R": "f32[1,4]", "I": "s32[]"}
ARGUMENTS = ("h = H parameter(0)", "d = D parameter(1)", "i = I parameter(2)", "r = R parameter(3)")


def spelled(text: str) -> str:
    """``text`` with the one-letter shapes written out."""
    words = {
        f"{mark}{letter}": f"{mark}{shape}" for letter, shape in SHAPES.items() for mark in " ("
    }
    for short, long in words.items():
        for end in (" ", ",", ")"):
            text = text.replace(short + end, long + end)
    return text


def moved(summary: Summary, text: str) -> tuple[int | None, int | None]:
    """Bytes per run (to the host, to the device)."""
    read = summary(spelled(text))
    return read.to_host_bytes_per_run, read.to_device_bytes_per_run


OPERATIONS = {
    "copy to host": ("copy(d)", "H", (128, 0)),
    "copy to device": ("copy(h)", "D", (0, 128)),
    "copy within host": ("copy(h)", "H", (0, 0)),
    "copy within device": ("copy(d)", "D", (0, 0)),
    "update in place": ("dynamic-update-slice(h, r, i, i)", "H", (16, 0)),
    "update of a device base": ("dynamic-update-slice(d, r, i, i)", "H", (128, 0)),
    "update of a host base to device": ("dynamic-update-slice(h, r, i, i)", "D", (0, 128)),
    "row from host": ("dynamic-slice(h, i, i), dynamic_slice_sizes={1,4}", "R", (0, 16)),
    "fixed row from host": ("slice(h), slice={[2:3], [0:4]}", "R", (0, 16)),
    "whole read": ("add(h, d)", "D", (0, 128)),
    "one read though used twice": ("multiply(h, h)", "D", (0, 128)),
    "read and written back": ("add(h, d)", "H", (128, 128)),
    "filled from a scalar": ("broadcast(i), dimensions={}", "H", (128, 0)),
    "view": ("bitcast(h)", "H", (0, 0)),
    "allocation": ('custom-call(), custom_call_target="AllocateBuffer"', "H", (0, 0)),
    "kernel": ('custom-call(h, d), custom_call_target="kernel"', "D", (0, 128)),
    "element": ("get-tuple-element(pair), index=0", "H", (0, 0)),
}

DIMENSIONS = (
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=sum"
)
ROWS = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
sums { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  e = f32[] add(a, c)
  f = f32[] add(b, d)
  ROOT g = (f32[], f32[]) tuple(e, f) }
"""
AT_ROWS = {
    "scatter in place": (f"H scatter(h, at, r), {DIMENSIONS}", (16, 0)),
    "scatter of a device base": (f"H scatter(d, at, r), {DIMENSIONS}", (128, 0)),
    "scatter of a host base to device": (f"D scatter(h, at, r), {DIMENSIONS}", (0, 128)),
    "scatter of a host row": (f"D scatter(d, at, q), {DIMENSIONS}", (0, 16)),
    "scatter into two bases": (f"(H, D) scatter(h, d, at, r, r), {DIMENSIONS}s", (16, 0)),
    "scatter into two crossing": (f"(H, D) scatter(d, h, at, r, r), {DIMENSIONS}s", (128, 128)),
    "scatter of the second's row": (f"(D, D) scatter(d, d, at, r, q), {DIMENSIONS}s", (0, 16)),
    "update by a host row": ("D dynamic-update-slice(d, q, i, i)", (0, 16)),
    "update within host": ("H dynamic-update-slice(h, q, i, i)", (0, 0)),
    "gather from host": (
        (
            "R gather(h, at), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1,4}"
        ),
        (0, 16),
    ),
}


@pytest.mark.parametrize("name", AT_ROWS)
def test_an_operation_on_rows_moves_the_rows(name: str, summary: Summary) -> None:
    operation, expected = AT_ROWS[name]
    more = ("at = s32[1] parameter(4)", "q = f32[1,4]{1,0:S(5)} parameter(5)")
    assert (
        moved(summary, with_computations(ROWS, *ARGUMENTS, *more, f"ROOT x = {operation}"))
        == expected
    )


@pytest.mark.parametrize("name", OPERATIONS)
def test_one_operation_moves(name: str, summary: Summary) -> None:
    operation, result, expected = OPERATIONS[name]
    result = "s32[8,4]{1,0:S(5)}" if name == "filled from a scalar" else result
    pair = ("pair = (H, D) tuple(h, d)",)
    assert moved(summary, entry(*ARGUMENTS, *pair, f"ROOT x = {result} {operation}")) == expected


ASYNC_FORMS = {
    "copy-start": (
        "s = (H, D, u32[]) copy-start(d)",
        "ROOT x = H copy-done(s)",
        (128, 0),
    ),
    "copy-start back": (
        "s = (D, H, u32[]) copy-start(h)",
        "ROOT x = D copy-done(s)",
        (0, 128),
    ),
    "dynamic-update-slice-start": (
        "s = ((H, R, I, I), H, u32[]) dynamic-update-slice-start(h, r, i, i)",
        "ROOT x = H dynamic-update-slice-done(s)",
        (16, 0),
    ),
    "dynamic-slice-start": (
        "s = ((H, I, I), R, u32[]) dynamic-slice-start(h, i, i), dynamic_slice_sizes={1,4}",
        "ROOT x = R dynamic-slice-done(s)",
        (0, 16),
    ),
    "fusion-start": (
        "s = ((H, R, I), H, u32[]) fusion-start(h, r, i), kind=kLoop, calls=update",
        "ROOT x = H fusion-done(s)",
        (16, 0),
    ),
    "a computation on the host": (
        's = ((D), D, u32[]) call-start(d), async_execution_thread="host", to_apply=on_host',
        "ROOT x = D call-done(s)",
        (128, 128),
    ),
}
UPDATE = """
update { base = H parameter(0)
  row = R parameter(1)
  at = I parameter(2)
  ROOT new = H dynamic-update-slice(base, row, at, at) }
"""
ON_HOST = """
on_host { d = D parameter(0)
  ROOT e = D negate(d) }, execution_thread="host"
"""


@pytest.mark.parametrize("name", ASYNC_FORMS)
def test_an_asynchronous_pair_moves_once(name: str, summary: Summary) -> None:
    start, done, expected = ASYNC_FORMS[name]
    assert moved(summary, with_computations(UPDATE + ON_HOST, *ARGUMENTS, start, done)) == expected


# Inside the fusions no shape says where it lies: only the caller's shapes do.
ROW = "s = R dynamic-slice(h, i, i), dynamic_slice_sizes={1,4}"
FUSIONS = {
    "update in place": (
        ("ROOT x = D dynamic-update-slice(h, r, i, i)",),
        "H",
        (16, 0),
    ),
    "update behind a view": (
        ("u = D dynamic-update-slice(h, r, i, i)", "ROOT x = D bitcast(u)"),
        "H",
        (16, 0),
    ),
    "two updates in place": (
        (
            "u = D dynamic-update-slice(h, r, i, i)",
            "ROOT x = D dynamic-update-slice(u, r, i, i)",
        ),
        "H",
        (32, 0),
    ),
    "a row, then arithmetic": (
        (
            "v = D bitcast(h)",
            "s = R dynamic-slice(v, i, i), dynamic_slice_sizes={1,4}",
            "ROOT x = R negate(s)",
        ),
        "R",
        (0, 16),
    ),
    "one row for two users": (
        (ROW, "a = R negate(s)", "ROOT x = R add(a, s)"),
        "R",
        (0, 16),
    ),
    "a row and the whole": (
        (
            ROW,
            "a = D negate(h)",
            "b = D add(h, a)",
            "ROOT x = D dynamic-update-slice(b, s, i, i)",
        ),
        "D",
        (0, 128),
    ),
    "several results": (
        (
            "u = D dynamic-update-slice(h, r, i, i)",
            "a = D negate(d)",
            "ROOT x = (D, D) tuple(u, a)",
        ),
        "(H, D)",
        (16, 0),
    ),
    "only a view, to other memory": (("ROOT x = D bitcast(h)",), "D", (0, 128)),
    "only a view, in place": (("ROOT x = D bitcast(h)",), "H", (0, 0)),
    "a fusion in a fusion": (
        ("ROOT x = D fusion(h, r, i), kind=kLoop, calls=update",),
        "H",
        (16, 0),
    ),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_a_fusion_moves_what_its_operations_touch(name: str, summary: Summary) -> None:
    inside, result, expected = FUSIONS[name]
    lines = "\n ".join((*ARGUMENTS, *inside)).replace("H", "D")
    update = UPDATE.replace("H", "D")
    fused = f"{update}fused {{ {lines} }}"
    call = f"ROOT y = {result} fusion(h, d, i, r), kind=kLoop, calls=fused"
    assert moved(summary, with_computations(fused, *ARGUMENTS, call)) == expected


def test_links_to_the_host_count_and_links_to_devices_do_not(summary: Summary) -> None:
    link = [
        "t = token[] after-all()",
        "in = (D, token[]) infeed(t)",
        "s = (D, u32[], token[]) send(d, t), channel_id=1, is_host_transfer=true",
        "sd = token[] send-done(s), channel_id=1, is_host_transfer=true",
        "q = (R, u32[], token[]) recv(t), channel_id=2, is_host_transfer=true",
        "qd = (R, token[]) recv-done(q), channel_id=2, is_host_transfer=true",
        "ROOT out = token[] outfeed(r, t), outfeed_shape=f32[1,4]",
    ]
    assert moved(summary, entry(*ARGUMENTS, *link)) == (128 + 16, 128 + 16)
    among_devices = [line.replace(", is_host_transfer=true", "") for line in link]
    assert moved(summary, entry(*ARGUMENTS, *among_devices)) == (16, 128)


def test_a_loop_that_only_carries_host_memory_moves_nothing(summary: Summary) -> None:
    text = offloading_loop(trips=8).replace("tuple(next, x, updated)", "tuple(next, x, saved)")
    update = next(line for line in text.splitlines() if "update =" in line)
    updated = next(line for line in text.splitlines() if "updated =" in line)
    assert moved(summary, text.replace(update, "").replace(updated, "")) == (0, 0)


def test_a_transfer_in_a_branch_is_an_upper_bound(summary: Summary) -> None:
    branches = 'out { d = D parameter(0)\n ROOT h = H copy(d) }\nstay { d = D parameter(0)\n z = f32[] constant(0)\n ROOT h = H custom-call(), custom_call_target="AllocateBuffer" }'  # noqa: E501 - HLO
    choice = "ROOT x = H conditional(p, d, d), true_computation=out, false_computation=stay"
    read = summary(
        spelled(with_computations(branches, *ARGUMENTS, "p = pred[] parameter(4)", choice))
    )
    (transfer,) = read.transfers
    assert (transfer.nbytes_per_run, transfer.at_most) == (128, True)


@pytest.mark.parametrize("peeled", [0, 1, 3])
def test_peeling_a_loop_does_not_change_what_it_moves(peeled: int, summary: Summary) -> None:
    read = summary(offloading_loop(trips=8, peeled=peeled))
    assert read.to_host_bytes_per_run == 8 * 16
    assert read.loops[0].trips == 8 - peeled
    assert read.loops[0].executions == 1


def test_an_unknown_trip_count_leaves_the_bytes_unknown(summary: Summary) -> None:
    text = offloading_loop(trips=8).replace(
        "bound = s32[] constant(8)", 'bound = s32[] custom-call(i), custom_call_target="length"'
    )
    read = summary(text)
    assert read.to_host_bytes_per_run is None
    assert read.to_device_bytes_per_run == 0


def test_a_loop_tells_how_wide_its_state_is_stored(summary: Summary) -> None:
    (loop,) = summary(offloading_loop(trips=8)).loops
    assert [str(shape) for shape in loop.carries] == ["s32[]", "f32[8,4]", "f32[8,4]S(5)"]


# Negative controls that must fail: cheaper detectors, on the same programs, get the answer wrong.


def test_counting_copy_start_alone_would_miss_the_offload(module: Callable[[str], Module]) -> None:
    read = module(offloading_loop(trips=8))
    opcodes = {
        each.opcode for computation in read.computations for each in computation.instructions
    }
    assert "copy-start" not in opcodes


def test_the_largest_constant_as_trip_count_would_count_the_peeled_row_twice(
    summary: Summary, module: Callable[[str], Module]
) -> None:
    text = offloading_loop(trips=8, peeled=1)
    (condition,) = (each for each in module(text).computations if each.name == "condition")
    largest = max(each.integer or 0 for each in condition.instructions)
    naive = sum(
        transfer.nbytes_per_execution * (largest if transfer.computation == "body" else 1)
        for transfer in summary(text).transfers
        if transfer.direction is Direction.TO_HOST
    )
    assert (naive, summary(text).to_host_bytes_per_run) == (9 * 16, 8 * 16)


def test_a_transfer_is_found_whatever_it_is_called(summary: Summary) -> None:
    text = offloading_loop(trips=8)
    renamed = text.replace("updated", "q1").replace("update =", "q2 =").replace("(update)", "(q2)")
    assert summary(renamed).to_host_bytes_per_run == summary(text).to_host_bytes_per_run == 128


def test_what_the_host_does_in_its_own_memory_moves_nothing(summary: Summary) -> None:
    helper = 'deep { d = D parameter(0)\n ROOT h = H copy(d) }, execution_thread="host"\n'
    on_host = (
        'work { d = D parameter(0)\n ROOT c = H call(d), to_apply=deep }, execution_thread="host"\n'
    )
    start = 's = ((D), H, u32[]) call-start(d), async_execution_thread="host", to_apply=work'
    text = with_computations(helper + on_host, *ARGUMENTS, start, "ROOT x = H call-done(s)")
    assert moved(summary, text) == (128, 0)  # the operand once, on its way to the host
