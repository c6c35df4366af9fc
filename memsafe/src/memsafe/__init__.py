"""Makes a JAX function fit a memory budget without changing its code.

    import memsafe
    safe_step = memsafe.memsafe(step, budget="16GB")

`memsafe.explain(step, "16GB")(*arguments)` prints how `safe_step` is computed.
"""

from memsafe.errors import BudgetError
from memsafe.explain import explain
from memsafe.transform import memsafe

__all__ = ["BudgetError", "explain", "memsafe"]
