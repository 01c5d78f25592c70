"""What to use instead of what a rule forbids; names that lead to Python's inside."""

from __future__ import annotations

from collections.abc import Sequence

_INSTEAD = {
    "eval": "Use ast.literal_eval for values, int() or float() for numbers.",
    "exec": "Write the code itself, or a function.",
    "compile": "Write the code itself, or a function.",
    "__import__": "Write an import statement.",
    "importlib": "Write an import statement.",
    "open": "Use pathlib.Path.read_text, or pandas.read_csv for tables, if they are allowed.",
    "input": "Give the value as a parameter of a function.",
    "os.system": "Cells cannot start programs; use Python's own functions (shutil, pathlib, glob).",
    "os.popen": "Cells cannot start programs; use Python's own functions (shutil, pathlib, glob).",
    "os.exec*": "Cells cannot start programs; use Python's own functions (shutil, pathlib, glob).",
    "os.spawn*": "Cells cannot start programs; use Python's own functions (shutil, pathlib, glob).",
    "os.fork": "Use concurrent.futures.ThreadPoolExecutor.",
    "os._exit": "Use raise SystemExit, or return from the function.",
    "subprocess": "Cells cannot start programs; use Python's own functions (shutil, pathlib, glob).",
    "pty": "Cells cannot start programs.",
    "ctypes": "Use numpy for arrays and struct for bytes.",
    "socket": "Cells have no network; read a file of the notebook's folder.",
    "requests": "Cells have no network; read a file of the notebook's folder.",
    "urllib.request": "Cells have no network; read a file of the notebook's folder.",
    "multiprocessing": "Use concurrent.futures.ThreadPoolExecutor, or numpy for arithmetic.",
    "pickle": "Use json for plain values, DataFrame.to_csv for tables.",
    "marshal": "Use json for plain values.",
    "globals": "Use a dictionary of your own.",
    "locals": "Use a dictionary of your own.",
    "vars": "Use the attributes themselves.",
    "getattr": "Write the attribute itself: value.name.",
    "setattr": "Write the assignment itself: value.name = ....",
    "breakpoint": "Use print, or raise an exception where you want to look.",
    "global": "Give the value as a parameter and return the new one.",
    "while": "Use a for loop over range(...), which ends by itself.",
    "lambda": "Define a function with def.",
}

_ATTRIBUTE = {
    "__import__": "Write an import statement.",
    "__traceback__": "Use traceback.format_exception(error).",
    "__class__": "Use type(value), isinstance(value, ...).",
    "__dict__": "Use the attributes themselves, or dataclasses.asdict.",
    "__bases__": "Use isinstance or issubclass.",
    "__mro__": "Use isinstance or issubclass.",
    "__subclasses__": "Keep a list of your own classes.",
    "__code__": "Use inspect.signature for parameters.",
}

# Attributes with two underscores at each end that people use, and that lead nowhere.
_HARMLESS = """
    __init__ __new__ __post_init__ __init_subclass__ __set_name__ __call__ __repr__ __str__ __bytes__ __format__
    __hash__ __bool__ __len__ __length_hint__ __iter__ __next__ __reversed__ __contains__ __getitem__ __setitem__
    __delitem__ __missing__ __enter__ __exit__ __aenter__ __aexit__ __aiter__ __anext__ __await__ __eq__ __ne__
    __lt__ __le__ __gt__ __ge__ __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__
    __matmul__ __rmatmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __divmod__ __pow__
    __rpow__ __lshift__ __rshift__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __neg__ __pos__ __abs__
    __invert__ __int__ __float__ __complex__ __index__ __round__ __trunc__ __floor__ __ceil__ __copy__ __deepcopy__
    __name__ __qualname__ __module__ __doc__ __version__ __all__ __slots__ __match_args__ __annotations__
    __dataclass_fields__ __array__ __array_interface__ __file__ __cause__ __context__ __suppress_context__ __notes__
    __members__ __setattr__ __delattr__ __wrapped__ __defaults__ __kwdefaults__ __dir__ __sizeof__ __fspath__
    __class_getitem__ __imatmul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__ __ilshift__
    __irshift__ __rdivmod__ __rlshift__ __rrshift__ __array_ufunc__ __array_function__
    __main__ __future__
"""
HARMLESS = frozenset(_HARMLESS.split())

# Frames and code objects are reached by attributes without underscores, too (generators, tracebacks, coroutines).
_INNER = """
    tb_frame tb_next f_back f_builtins f_code f_globals f_locals f_trace gi_frame gi_code gi_yieldfrom cr_frame
    cr_code cr_await cr_origin ag_frame ag_code ag_await co_code co_consts co_names func_globals func_code
    func_closure mro
"""
INNER = frozenset(_INNER.split())


def instead_of(word: str) -> str:
    """What to use instead of a module, name or keyword; "" when nothing is known."""
    parts = word.split(".")
    for start in range(len(parts)):
        for end in range(len(parts), start, -1):
            if (start == 0 or end - start > 1) and (text := _INSTEAD.get(".".join(parts[start:end]))):
                return text
    return ""


def refused_text(rule: str, module: str, allow: Sequence[str]) -> tuple[str, str]:
    """What is wrong with the import of a module, and what to do instead."""
    if rule == "code.imports.deny":
        return f"The module {module} may not be imported here.", instead_of(module)
    shown = ", ".join(allow[:12]) + (", ..." if len(allow) > 12 else "")
    return f"The module {module} is not among those that may be imported here.", f"Allowed: {shown or 'none'}."


def instead_of_attribute(name: str) -> str:
    """What to use instead of an inner attribute."""
    return _ATTRIBUTE.get(name, "Use the value's public methods and attributes.")


def is_inner(name: str) -> bool:
    """Whether an attribute leads to Python's inside."""
    return name in INNER or (name.startswith("__") and name.endswith("__") and len(name) > 4 and name not in HARMLESS)
