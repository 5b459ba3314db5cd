"""A pytest plugin that replaces a library's own buffers by framestow's drop-ins.

    DROP_IN_FOR=stable-baselines3 python -m pytest -p public_suites.drop_ins tests/test_buffers.py

Before any test is imported, every name of a replaced buffer in the library's modules is bound to the drop-in. So the
tests import the drop-in, and the library makes it too. Only the modules that define the buffers, and the drop-ins,
still see the library's own class. A later import of such a module returns a copy with the drop-in's names. Classes that
derived from the library's own class do not change. Without DROP_IN_FOR nothing changes.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from importlib import import_module
from types import ModuleType

from public_suites.suites import SUITES


def pytest_configure(config):
    """Replace the buffers of the library that DROP_IN_FOR names by its drop-ins.

    A fork server imports the library once, with either buffer; else each worker of a vector environment would.
    """
    multiprocessing.set_forkserver_preload([module for suite in SUITES.values() for module in suite.modules_of_workers])
    library = os.environ.get("DROP_IN_FOR")
    if library:
        put_in_place(library)


def put_in_place(library):
    """Bind every name of a replaced class in the library's modules to the drop-in."""
    suite = SUITES[library]
    for module in suite.modules_with_names:
        import_module(module)
    ours = import_module(suite.drop_in_module)
    stand_ins = {}
    for place, name in suite.replaced.items():
        module, _, attribute = place.rpartition(".")
        theirs = getattr(import_module(module), attribute)
        stand_ins[theirs] = getattr(ours, name)
    for theirs, drop_in in stand_ins.items():
        _count_derived_classes(theirs, drop_in)
    built_on = {theirs.__module__ for theirs in stand_ins} | set(_modules_named_in("framestow.integrations"))
    others = {}
    for name, module in _modules_of(suite.package):
        if module.__name__ in built_on:  # a module may have several names
            module = _put_another(name, others.setdefault(module.__name__, _copy_of(module)))  # noqa: PLW2901
        _rebind(module, stand_ins)


def _modules_of(package):
    """Return each loaded module of the package, by its name."""
    return [(name, module) for name, module in sys.modules.items() if f"{name}.".startswith(f"{package}.")]


def _modules_named_in(package):
    """Return the name of each module that the package's modules refer to."""
    for _, module in _modules_of(package):
        yield from (value.__name__ for value in vars(module).values() if isinstance(value, ModuleType))


def _count_derived_classes(theirs, drop_in):
    """Make the library's checks accept subclasses of its class as subclasses of ours, if possible."""
    for derived in theirs.__subclasses__():
        _count_derived_classes(derived, drop_in)
        if hasattr(drop_in, "register") and not issubclass(drop_in, derived):
            drop_in.register(derived)


def _copy_of(module):
    another = ModuleType(module.__name__, module.__doc__)
    vars(another).update(vars(module))
    return another


def _put_another(name, module):
    """Make the module the import of this name."""
    sys.modules[name] = module
    parent, _, own_name = name.rpartition(".")
    setattr(sys.modules[parent], own_name, module)
    return module


def _rebind(module, stand_ins):
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value in stand_ins:
            setattr(module, name, stand_ins[value])
