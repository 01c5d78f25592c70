"""Signatures: what a function has, and what a task's text asks for."""

from __future__ import annotations

import pytest

from sandbox_kernel.verify import ExpectedSignature, extract_expected_signature, verify_ast_signature

FINE: list[tuple[str, str, object]] = [
    ("def f(a, b): pass", "f", ["a", "b"]),
    ("def f(a, b): pass", "f", "a, b"),
    ("def f(a, b): pass", "f", None),
    ("def f(): pass", "f", []),
    ("def f(a: int, b=3, *, key: str = 'x') -> int: pass", "f", "a, b, *, key"),
    ("def f(a: int, b=3, *, key: str = 'x'): pass", "f", "a: int, b=3, *, key='x'"),
    ("def f(a, /, b, *args, c, **kw): pass", "f", ["a", "/", "b", "*args", "c", "**kw"]),
    ("def f(a: 'list[int]'): pass", "f", "a: list[int]"),
    ("def f(a: list[ int ]): pass", "f", "a: list[int]"),
    ("async def f(a): pass", "f", "a"),
    ("f = lambda a, b=1: a", "f", "a, b"),
    ("class C:\n    def m(self, x): pass", "C.m", ["x"]),
    ("class C:\n    def m(self, x): pass", "C.m", ["self", "x"]),
    ("class C:\n    @classmethod\n    def m(cls, x): pass", "C.m", ["x"]),
    ("class C:\n    @staticmethod\n    def m(x): pass", "C.m", ["x"]),
    ("class C:\n    def __init__(self, x): pass", "C", ["x"]),
    ("class A:\n    class B:\n        def m(self): pass", "A.B.m", []),
    ("if x:\n    def f(a): pass\nelse:\n    def f(a, b): pass", "f", "a, b"),
    ("try:\n    import q\nexcept E:\n    def f(a): pass", "f", "a"),
    ("def f(): pass\ndef f(a): pass", "f", "a"),
]  # fmt: skip
WRONG: list[tuple[str, str, object, str]] = [
    ("def f(a, b): pass", "f", ["a", "c"],
     "f has the parameters (a, b), and (a, c) are wanted: missing: c; not wanted: b"),
    ("def f(b, a): pass", "f", "a, b", "the order differs (line 1)"),
    ("def F(a): pass", "f", "a", "There is no function f at top level (there is F)"),
    ("x = 1", "f", "a", "There is no function f at top level."),
    ("class C:\n    def f(self): pass", "f", [], "f is a method of the class C"),
    ("def g():\n    def f(): pass", "f", [], "inside another function (line 2)"),
    ("class C: pass", "C.m", [], "There is no method m in the class C"),
    ("x = 1", "C.m", [], "There is no class C"),
    ("class C: pass", "C", [], "without an __init__"),
    ("def f(a, *, b): pass", "f", "a, b", "b of f is keyword-only, and plain is wanted"),
    ("def f(a, b): pass", "f", "a, /, b", "a of f is plain, and positional-only is wanted"),
    ("def f(*a): pass", "f", "a", "(*a), and (a) are wanted"),
    ("def f(a, b=2): pass", "f", "a, b=3", "The default of b in f is 2, and 3 is wanted"),
    ("def f(a, b): pass", "f", "a, b=3", "The default of b in f is missing"),
    ("def f(a: str): pass", "f", "a: int", "The annotation of a in f is str, and int is wanted"),
    ("def f(a): pass", "f", "a: int", "The annotation of a in f is missing"),
    ("def f(a:\n", "f", "a", "The code is not Python: "),
    ("def f(a): pass\nclass f: pass", "f", "a", "without an __init__"),
    ("(" * 9999, "f", "a", "The code "),
    ("-" * 99_999 + "1", "f", "a", "The code cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "name", "params"), FINE)
def test_as_asked(code: str, name: str, params: object) -> None:
    assert verify_ast_signature(code, name, params) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("code", "name", "params", "words"), WRONG)
def test_not_as_asked(code: str, name: str, params: object, words: str) -> None:
    text = verify_ast_signature(code, name, params)  # type: ignore[arg-type]
    assert text is not None and words in text and text.endswith(".")


def test_async_and_result() -> None:
    assert verify_ast_signature("async def f(): pass", "f", [], asynchronous=True) is None
    assert "must be an async function" in str(verify_ast_signature("def f(): pass", "f", [], asynchronous=True))
    assert "must not be an async" in str(verify_ast_signature("async def f(): pass", "f", [], asynchronous=False))
    assert verify_ast_signature("def f() -> int: pass", "f", [], returns="int") is None
    assert "-> str, and has int" in str(verify_ast_signature("def f() -> int: pass", "f", [], returns="str"))
    assert "-> str, and has none" in str(verify_ast_signature("def f(): pass", "f", [], returns="str"))


def test_many_at_once() -> None:
    code = "def f(a): pass\ndef g(b): pass\nclass C:\n    def m(self): pass"
    assert verify_ast_signature(code, {"f": "a", "g": ["b"], "C.m": [],
                                                       "C": None}) == "C is a class without an __init__."
    text = str(verify_ast_signature(code, {"f": "x", "g": "b", "h": None}))
    assert "f has the parameters" in text and "no function h" in text and " g " not in text


@pytest.mark.parametrize("params", ["a b", ["1"], "a): pass\ndef g(", "a=1, b", "a, a"])
def test_what_are_no_parameters(params: object) -> None:
    if params == "a, a":  # the parser leaves this to the compiler
        assert verify_ast_signature("def f(a): pass", "f", "a, a") is not None
        return
    with pytest.raises(ValueError, match="not the parameters"):
        verify_ast_signature("def f(a): pass", "f", params)  # type: ignore[arg-type]


TASKS: list[tuple[str, str, list[str]]] = [
    ("Write a function f(a, b) that adds.", "f", ["a", "b"]),
    ("Please implement `mean(values, *, digits=2)` for lists (e.g. of floats).", "mean", ["values", "*", "digits=2"]),
    ("function 'verify_mint(tx: bytes, proof: list, root: bytes) -> bool'", "verify_mint", ["tx", "proof", "root"]),
    ("Complete the code.\n```python\nimport math\n\ndef area(r: float = 1.0) -> float:\n    ...\n```\n", "area",
     ["r=1.0"]),
    ("```python\nclass Stack:\n    def __init__(self): ...\n    def push(self, item): ...\n```", "Stack.push", ["self",
     "item"]),
    ("Fill in:\n\n    def gcd(a: int, b: int) -> int:\n        # your code\n", "gcd", ["a", "b"]),
    ("def gcd(a, b):\n    '''Greatest common divisor.'''", "gcd", ["a", "b"]),
    ("Define async def fetch(url, /, *args, **kw) please", "fetch", ["url", "/", "*args", "**kw"]),
    ("Write a function named clamp with parameters x, low and high.", "clamp", ["x", "low", "high"]),
    ("A function called 'is_leap' that takes an integer year and returns whether it is one", "is_leap", ["year"]),
    ("Implement a method named add with arguments (a, b).", "add", ["a", "b"]),
    ("Call `solve()`.", "solve", []),
    ("Example: f(2, 3) gives 5. Write the function f(x, y).", "f", ["x", "y"]),
    ("`f(2, 3)` is 5; write `f(x: dict[str, int], y=(1, 2))`", "f", ["x", "y=(1, 2)"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "params"), TASKS)
def test_what_a_task_asks_for(text: str, name: str, params: list[str]) -> None:
    found = extract_expected_signature(text)
    assert found == ExpectedSignature(name, params) == (name, params)


@pytest.mark.parametrize("text", ["", "Compute the mean of the list.", "e.g. (a, b)", "Print 'hello (world)'", "f(",
                         "(" * 5000,
                                  "a function that returns 3", "see f(1, 2)"])  # fmt: skip
def test_a_text_without_one(text: str) -> None:
    assert extract_expected_signature(text) is None


@pytest.mark.parametrize(("text", "name", "params"), TASKS)
def test_the_one_feeds_the_other(text: str, name: str, params: list[str]) -> None:
    found = extract_expected_signature(text)
    assert found is not None
    if "." not in name:
        assert verify_ast_signature(f"def {name}({', '.join(params)}): pass", *found) is None
        assert verify_ast_signature(f"def {name}(other, *rest): pass", *found) is not None
