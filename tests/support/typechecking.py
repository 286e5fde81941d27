"""The type checker that tests run the package under: an int is a float, as for every other type
checker.

Of each function a test checks the first calls, and of the rest one in fifty. To check every call of
a long chain or search would take more time than the calls themselves, as would a checker for
functions that no test calls.
"""

import functools
import inspect
from collections import Counter

import jaxtyping
from beartype import BeartypeConf, beartype

FIRST, EACH = 3, 50

check = beartype(conf=BeartypeConf(is_pep484_tower=True))

calls = Counter()
"""The number of calls in this test, by the code of the function: those of a nested function count
together.
"""

every_call = jaxtyping.jaxtyped


def some_calls(fn=None, *, typechecker):
    """Do what ``jaxtyping.jaxtyped`` does, for some calls of a function."""
    if fn is None:
        return functools.partial(some_calls, typechecker=typechecker)
    import torch  # here, since the process that hands out tests runs none, and decorates nothing

    if not inspect.isfunction(fn):
        return every_call(fn, typechecker=typechecker)
    checked = functools.cache(lambda: every_call(fn, typechecker=typechecker))

    @functools.wraps(fn)
    def called(*args, **kwargs):
        if torch.compiler.is_compiling():  # what is traced must not change a counter
            return fn(*args, **kwargs)
        calls[fn.__code__] += 1
        is_checked = calls[fn.__code__] <= FIRST or calls[fn.__code__] % EACH == 0
        return (checked() if is_checked else fn)(*args, **kwargs)

    return called


jaxtyping.jaxtyped = some_calls  # the import hook decorates with this name
