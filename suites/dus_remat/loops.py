"""All loops by the names of their variants."""

from collections.abc import Mapping
from types import MappingProxyType

from suites.dus_remat import carries, writes
from suites.dus_remat.stacks import AS_IT_IS, Loop, Repeated
from suites.dus_remat.views import BITS, FENCED, FLAT, HALVES, SQUEEZED, TURNED

ON_NO_STACK: Mapping[str, Loop] = MappingProxyType({"scan-ys": carries.scan_ys})

ON_ONE_STACK: Mapping[str, Loop] = MappingProxyType(
    {
        "plain": Repeated(step=writes.plain),
        "squeeze": Repeated(step=writes.through(SQUEEZED)),
        "reshape": Repeated(step=writes.through(FLAT)),
        "reshape-outside": Repeated(step=writes.plain, carried=FLAT),
        "barrier": Repeated(step=writes.through(FENCED)),
        "transposed": Repeated(step=writes.transposed),
        "transposed-outside": Repeated(step=writes.plain_turned, carried=TURNED),
        "bitcast-converted": Repeated(step=writes.bitcast_converted),
        "bitcast-converted-outside": Repeated(step=writes.plain_bits, carried=BITS),
        "dot": Repeated(step=writes.dot),
        "transposed-dot": Repeated(step=writes.transposed_dot),
        "at-set": Repeated(step=writes.at_set),
        "add": Repeated(step=writes.plain_add),
        "at-add-reshape": Repeated(step=writes.at_add_reshape),
        "at-add-outside": Repeated(step=writes.at_add_flat, carried=FLAT),
        "select-row": Repeated(step=writes.select_row),
        "conditional": Repeated(step=writes.conditional),
        "where": Repeated(step=writes.where),
        "two-updates": Repeated(step=writes.two_updates(HALVES)),
        "two-updates-one-view": Repeated(step=writes.two_updates(AS_IT_IS)),
        "vmapped": Repeated(step=writes.vmapped),
        "vmapped-scatter": Repeated(step=writes.scattered),
        "vmapped-one-by-one": Repeated(step=writes.one_by_one),
        "read": Repeated(step=carries.read_new(AS_IT_IS)),
        "squeeze-read": Repeated(step=carries.read_new(SQUEEZED)),
        "reshape-read": Repeated(step=carries.read_new(FLAT)),
        "reshape-read-outside": Repeated(step=carries.read_new(AS_IT_IS), carried=FLAT),
        "read-old": Repeated(step=carries.read_old),
        "read-old-barrier": Repeated(step=carries.read_old_first),
        "read-dot": Repeated(step=carries.read_new_dot),
        "read-old-dot": Repeated(step=carries.read_old_dot),
        "read-old-dot-barrier": Repeated(step=carries.read_old_dot_first),
    }
)

ON_TWO_STACKS: Mapping[str, Loop] = MappingProxyType(
    {
        "swap": Repeated(step=carries.swap),
        "swap-unrolled": Repeated(step=carries.swap, unroll=2),
        "swap-in-one": carries.swap_in_one,
        "duplicate": Repeated(step=carries.duplicate),
        "duplicate-after": carries.duplicate_after,
        "keep-old": Repeated(step=carries.keep_old),
        "keep-old-once": carries.keep_old_once,
        "two-stacks": Repeated(step=carries.two_stacks(FLAT)),
        "two-stacks-one-view": Repeated(step=carries.two_stacks(AS_IT_IS)),
        "two-stacks-outside": Repeated(step=carries.two_stacks(AS_IT_IS), carried=FLAT),
    }
)
