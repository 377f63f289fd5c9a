"""The rules for JAX, as gradient transformations of optax. They are written in JAX and need no compiled code, so that
they can be jitted, mapped and sharded; options and defaults are the library's.

    import libadamod.jax as aj

    tx = aj.adamod(1e-3)
    state = tx.init(params)
    updates, state = tx.update(grads, state, params)
    params = optax.apply_updates(params, updates)

There is a function for every rule of `rules()`, under the rule's name, and "adamw"; `create` takes the name.

SPDX-License-Identifier: MIT
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

try:
    import jax as _jax  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
except ImportError as error:
    raise ImportError(f"libadamod.jax needs jax, pip install jax optax: {error}") from None

from .transformation import GradientTransformation, State, create, evaluation, named, rules

__all__ = ["GradientTransformation", "State", "create", "evaluation", "rules"]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., GradientTransformation]: ...


globals().update({name: named(name) for name in (*rules(), "adamw")})
