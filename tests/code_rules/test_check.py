"""Rules for code: what breaks them is found with its place, what does not is left alone."""

from __future__ import annotations

import pickle
import sys

import pytest

from sandbox_kernel.code_rules import Checker, CodeRules, Violation, check, refusal
from sandbox_kernel.errors import PolicyRefusal
from sandbox_kernel.policy import Policy
from sandbox_kernel.policy_layers import presets

RULES = CodeRules(
    imports_deny=("ctypes", "xml.etree", "sub*"), forbid=("eval", "exec", "os.system", "shutil.rm*", "while"),
    builtins_remove=("open", "input"), deny_dunders=True,
)  # fmt: skip
DENY, ALLOW, FORBID = "code.imports.deny", "code.imports.allow", "code.forbid"
BUILTIN, DUNDER = "code.builtins.remove", "code.dunder_attributes"


def rules_of(code: str, rules: CodeRules = RULES) -> list[str]:
    return [violation.rule for violation in check(code, rules)]


class TestImports:
    @pytest.mark.parametrize(
        "code",
        ["import ctypes", "import ctypes.util", "import math, ctypes as c", "from ctypes import CDLL",
         "import xml.etree",
         "from xml import etree", "from xml.etree import ElementTree", "import subprocess", "from ctypes import *",
         "def f():\n    import ctypes", "class A:\n    import ctypes", "try:\n    import ctypes\nexcept E: pass",
         "import xml\nxml.etree.ElementTree", "import importlib\nimportlib.import_module('ctypes')",
         "import importlib as i\ni.import_module('ctypes.util')",
         "from importlib import import_module as m\nm('ctypes')",
         "import importlib\nimportlib.import_module(name='ctypes')", "__import__('ctypes')",
         "__import__('cty' + 'pes')",
         "__import__(f'{\"cty\"}pes')", "__import__('sepytc'[::-1])", "__import__(''.join(['cty', 'pes']))",
         "import builtins\nbuiltins.__import__('ctypes')", "import runpy\nrunpy.run_module('ctypes')",
         "import pkgutil\npkgutil.resolve_name('ctypes:CDLL')", "exec('import ctypes')",
         "eval('__import__(\"ctypes\")')",
         "exec(compile('import ctypes', '', 'exec'))", "get_ipython().run_cell_magic('time', '', 'import ctypes\\n')",
         "get_ipython().run_line_magic('time', 'import ctypes')", "get_ipython().run_cell('import ctypes')"],
    )  # fmt: skip
    def test_denied(self, code: str) -> None:
        assert DENY in rules_of(code, CodeRules(imports_deny=RULES.imports_deny))

    @pytest.mark.parametrize(
        "code",
        ["import math", "import xml.dom", "from xml import dom", "import myctypes", "import numpy.ctypeslib",
         "ctypes = 1",
         "import importlib\nimportlib.import_module('json')", "__import__('json')", "x = 'import ctypes'",
         "# import ctypes", "import re\nre.compile('a')", "exec('import math')", "df.sub(1)"],
    )  # fmt: skip
    def test_others_are_left_alone(self, code: str) -> None:
        assert rules_of(code, CodeRules(imports_deny=RULES.imports_deny)) == []

    def test_only_what_is_allowed(self) -> None:
        rules = CodeRules(imports_allow=("math", "matplotlib.pyplot", "pandas", "sk*"), imports_deny=("pandas.io",))
        for code in ("import math", "import matplotlib.pyplot as plt", "from matplotlib import pyplot",
                     "import sklearn.svm",
                     "import pandas.testing", "from pandas import DataFrame", "from __future__ import annotations"):
            assert rules_of(code, rules) == [], code
        for code in ("import os", "import matplotlib", "from matplotlib import cm", "__import__('os')"):
            assert rules_of(code, rules) == [ALLOW], code
        assert rules_of("import pandas.io.sql", rules) == [DENY]
        assert "Allowed: math, matplotlib.pyplot" in check("import os", rules)[0].instead

    def test_none_is_allowed(self) -> None:
        assert rules_of("import math", CodeRules(imports_allow=())) == [ALLOW]

    @pytest.mark.parametrize(
        "code",
        ["__import__(name)", "import importlib\nimportlib.import_module(x + 'y')", "list(map(__import__, ['ctypes']))",
         "import importlib\nf = importlib.import_module\nf(name)", "from . import secrets", "from .. import x",
         "import importlib as i\n(lambda g: g('ctypes'))(i.import_module)", "__import__(**{'name': 'ctypes'})",
         "import functools\nfunctools.partial(__import__, 'ctypes')()"],
    )  # fmt: skip
    def test_what_cannot_be_told_is_refused_while_imports_are_restricted(self, code: str) -> None:
        assert ALLOW in rules_of(code, CodeRules(imports_deny=("ctypes",)))
        assert rules_of(code, CodeRules(max_code_chars=1000)) == []


class TestForbid:
    @pytest.mark.parametrize(
        "code",
        ["eval('1')", "f = eval", "[eval][0]('1')", "map(eval, x)", "@eval\ndef f(): pass", "x: eval('1') = 1",
         "def f(x=eval('1')): pass", "def f(x: eval('1')): pass", "def f() -> eval('1'): pass",
         "class A(eval('x')): pass",
         "class A:\n    y = eval('1')", "lambda: eval('1')", "[eval(x) for x in y]", "(e := eval)('1')", "f'{eval(x)}'",
         "eval = print", "del eval", "async def f():\n    await eval('x')", "match x:\n    case 1 if eval('1'): pass",
         "with eval('x') as y: pass", "try: pass\nexcept eval('E'): pass", "import builtins\nbuiltins.eval('1')",
         "from builtins import eval as e", "from builtins import *", "__builtins__.eval", "__builtins__['eval']",
         "import builtins as b\ngetattr(b, 'ev' + 'al')", "vars(__builtins__)['eval']", "globals()['eval']",
         "__builtins__.__dict__['eval']", "import sys\nsys.modules['builtins'].eval", "__builtins__.get('eval')",
         "import builtins\nbuiltins.__dict__.get('eval')", "getattr(__builtins__, name)", "def eval(x): return x",
         "global eval\neval('1')", "def f(eval):\n    global eval\n    eval('1')"],
    )  # fmt: skip
    def test_a_name(self, code: str) -> None:
        assert FORBID in rules_of(code, CodeRules(forbid=("eval",)))

    @pytest.mark.parametrize(
        "code",
        ["df.eval('a + b')", "model.eval()", "import pandas as pd\npd.eval('1')", "x.eval = 1", "f(eval=1)", "'eval'",
         "def f(eval):\n    return eval + 1", "class A:\n    def eval(self): pass", "{'eval': 1}['eval']",
         "evaluate()"],
    )  # fmt: skip
    def test_a_name_is_not_an_attribute_or_a_parameter(self, code: str) -> None:
        assert rules_of(code, CodeRules(forbid=("eval",))) == []

    @pytest.mark.parametrize(
        "code",
        ["import os\nos.system('ls')", "import os as o\no.system", "from os import system",
         "from os import system as s",
         "from os import *", "import os\nf = os.system", "import os\np = os\np.system", "import os\n(p := os).system",
         "import os\ngetattr(os, 'system')", "import os\ngetattr(os, 'sys' + 'tem')", "import os\ngetattr(os, name)",
         "import os\nos.__dict__['system']", "import os\nvars(os)['system']", "__import__('os').system",
         "import importlib\nimportlib.import_module('os').system", "import sys\nsys.modules['os'].system",
         "import sys\nsys.modules.get('os').system", "import logging\nlogging.os.system", "os.system('x')",
         "from logging import os as q\nq.system", "class A:\n    import os as q\nA.q.system", "x.o = os\nx.o.system",
         "import operator, os\noperator.attrgetter('system')(os)", "import os\nos.__getattribute__('system')",
         "import os\nobject.__getattribute__(os, 'system')", "for o in (os, sys):\n    o.system",
         "(os if x else y).system",
         "def f(o=os):\n    o.system", "a, b = os, 1\na.system", "import os\nmatch os:\n    case os(system=s): pass",
         "[o.system for o in [os]]", "import pkgutil\npkgutil.resolve_name('os:system')",
         "exec('import os; os.system(1)')",
         "import os\no = p = os\np.system", "with os as o:\n    o.system", "(os or 1).system",
         "exec('eval = os.system')",
         "import os\nsetattr(x, 'q', os)\nx.q.system", "import os\nos.system.__call__('x')"],
    )  # fmt: skip
    def test_an_attribute_path(self, code: str) -> None:
        assert FORBID in rules_of(code, CodeRules(forbid=("os.system",)))

    @pytest.mark.parametrize(
        "code",
        ["import os\nos.path.join('a')", "platform.system()", "import platform\nplatform.system()",
         "system = 1\nsystem",
         "import os\nos.systemd", "x.cost.system", "import os\ngetattr(os, 'path')", "from os import path",
         "import os\ngetattr(x, name)"],
    )  # fmt: skip
    def test_other_paths_are_left_alone(self, code: str) -> None:
        assert rules_of(code, CodeRules(forbid=("os.system",))) == []

    def test_wildcards_and_modules(self) -> None:
        rules = CodeRules(forbid=("shutil.rm*", "*.to_pickle", "tkinter"))
        assert rules_of("import shutil\nshutil.rmtree('x')", rules) == [FORBID]
        assert rules_of("from shutil import rmtree", rules) == [FORBID]
        assert rules_of("df.to_pickle('x')", rules) == [FORBID]
        assert rules_of("import tkinter.ttk", rules) == [FORBID]
        assert rules_of("import shutil\nshutil.copy('x', 'y')\ndf.to_csv('x')", rules) == []

    @pytest.mark.parametrize(
        ("word", "code"),
        [("while", "while x: pass"), ("for", "for x in y: pass"), ("for", "[x for x in y]"), ("lambda", "f(lambda: 1)"),
         ("class", "class A: pass"), ("global", "def f():\n    global x"), ("try", "try: pass\nexcept* E: pass"),
         ("import", "from a import b"), ("if", "1 if x else 2"), ("not", "not x"), ("in", "x not in y"),
         ("is", "x is None"), ("async", "async def f(): pass"), ("yield", "def f(): yield from x"), ("del", "del x")],
    )  # fmt: skip
    def test_keywords(self, word: str, code: str) -> None:
        assert rules_of(code, CodeRules(forbid=(word,))) == [FORBID]
        assert rules_of(f"'{word}'\nx.{word}_ = 1", CodeRules(forbid=(word,))) == []


class TestBuiltinsAndDunders:
    @pytest.mark.parametrize("code", ["open('x')", "f = open", "import builtins\nbuiltins.open",
                             "from builtins import open",
                                      "__builtins__['open']", "with open('x') as f: pass",
                                      "def f(x=open): pass"])  # fmt: skip
    def test_a_removed_builtin(self, code: str) -> None:
        assert BUILTIN in rules_of(code, CodeRules(builtins_remove=("open",)))

    @pytest.mark.parametrize("code", ["import io\nio.open_code", "Image.open('x')", "def f(open): return open(1)"])
    def test_others_of_its_name(self, code: str) -> None:
        assert rules_of(code, CodeRules(builtins_remove=("open",))) == []

    @pytest.mark.parametrize(
        "code",
        ["().__class__", "().__class__.__base__.__subclasses__()", "(lambda: 1).__globals__", "f.__code__",
         "x.__dict__",
         "(x for x in y).gi_frame", "e.__traceback__", "tb.tb_frame.f_back", "f.f_globals", "c.cr_frame", "a.ag_frame",
         "type.mro(int)", "'{0.__class__}'.format(1)", "'{x.gi_frame}'.format_map(y)",
         "str.format('{.__globals__}', f)",
         "'{:{0.__class__}}'.format(1)", "'{0[a].__class__}'.format(x)", "f'{x.__class__}'",
         "getattr(x, '__cl' + 'ass__')",
         "getattr(x, 'f_back')", "name = '__globals__'\ngetattr(f, name)",
         "match x:\n    case object(__class__=c): pass",
         "from operator import attrgetter\nattrgetter('__class__.__bases__')(x)", "__builtins__", "__loader__",
         "__spec__",
         "class A:\n    def f(self): return __class__", "(y := x.__class__)", "@x.__class__\ndef f(): pass",
         "x: y.__class__ = 1", "class A(x.__class__): pass", "try: pass\nexcept* E as e: e.__traceback__",
         "x.__class__.__base__", "x.__class__().__name__", "(x.__class__, x.__name__)", "x.__class__.y.__name__",
         "object.__setattr__(x, '__class__', Y)", "del x.__dict__", "x.__class__ = Y", "from x import __dict__",
         "Formatter().format('{0.__init__.__globals__}', f)", "x.__reduce_ex__(2)", "object.__getattribute__(x, 'y')"],
    )  # fmt: skip
    def test_what_leads_inside(self, code: str) -> None:
        assert DUNDER in rules_of(code, CodeRules(deny_dunders=True))
        assert rules_of(code, CodeRules(forbid=("nothing",))) == []

    @pytest.mark.parametrize(
        "code",
        ["super().__init__()", "type(x).__name__", "np.__version__", "if __name__ == '__main__': pass",
         "'{0.real}'.format(1)",
         "from __future__ import annotations", "class A:\n    __slots__ = ()\n    def __eq__(self, o): return True",
         "'{\"a__b\": 1}'", "'{'", "'{0.name} {1[key]}'.format(a, b)", "x.frame", "f.__doc__", "df.index.__len__()",
         "__x", "class A:\n    def __repr__(self): return f'{self.__class__.__name__}()'", "error.__cause__",
         "object.__setattr__(self, 'x', 1)", "Colour.__members__", "a.__iadd__(b)", "f.__wrapped__.__name__"],
    )  # fmt: skip
    def test_what_people_use(self, code: str) -> None:
        assert rules_of(code, CodeRules(deny_dunders=True)) == []

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
    def test_type_parameters_and_aliases(self) -> None:
        for code in ("type A = eval('1')", "def f[T: eval('1')](): pass", "class A[T: eval('1')]: pass"):
            assert rules_of(code, CodeRules(forbid=("eval",))) == [FORBID]
        assert rules_of("type A = int", CodeRules(functions_only=True)) == []


class TestShape:
    def test_functions_only(self) -> None:
        rules = CodeRules(functions_only=True)
        good = '"""Text."""\nimport math\nfrom os import path\nclass A: pass\ndef f():\n    x = 1\nasync def g(): pass'
        assert rules_of(good, rules) == []
        bad = "import math\nx = 1\nif x:\n    print(x)\n'text'\nfor i in x: pass\n@d\ndef f(): pass\nlambda: 1"
        found = check(bad, rules)
        assert [(v.line, v.rule) for v in found] == [(line, "code.functions_only") for line in (2, 3, 5, 6, 9)]
        assert found[0].instead == "Put this into a function."

    def test_length_in_characters(self) -> None:
        assert rules_of("x = 'é€𝄞'", CodeRules(max_code_chars=9)) == []
        (found,) = check("x = 'é€𝄞a'", CodeRules(max_code_chars=9))
        assert (found.rule, found.line) == ("code.max_code_chars", 1) and "10 characters, and 9" in found.message

    def test_what_would_take_too_long_to_read_is_too_long(self) -> None:
        assert rules_of("x\n" * 150_000, CodeRules(forbid=("eval",))) == ["code.max_code_chars"]

    def test_place(self) -> None:
        code = "def f():\n    é = 'ü'; y = eval(é)\n"
        assert [(v.line, v.column) for v in check(code, RULES)] == [(2, 18)]
        assert code.splitlines()[1][17:].startswith("eval")

    def test_sorted_each_once(self) -> None:
        found = check("eval(eval)\nimport ctypes\n[open, open]", RULES)
        assert [(v.line, v.column) for v in found] == [(1, 1), (1, 6), (2, 1), (3, 2), (3, 8)]

    def test_code_in_code_has_its_line(self) -> None:
        (found,) = check("x = 1\nget_ipython().run_cell_magic('time', '', 'y = 1\\neval(y)')", RULES)
        assert (found.line, found.column, found.rule) == (4, 1, FORBID)

    @pytest.mark.parametrize(
        "code",
        ["(" * 9999, "-" * 99_999 + "1",
         "a" + ".a" * 60_000, "f" + "()" * 60_000, "1" + "+1" * 60_000, "lambda:" * 20_000 + "1",
         "not " * 40_000 + "1", "1 if 1 else " * 10_000 + "1", "a\0b", "'\ud800'", "1" * 5000, "f'{" * 150,
         "if 1: pass\n" + "elif 1: pass\n" * 9000],
        ids=lambda code: code[:6],
    )  # fmt: skip
    def test_hostile_text_is_refused_and_harms_nothing(self, code: str) -> None:
        assert rules_of(code) in (["code"], ["syntax"])

    def test_aliases_that_grow_end(self) -> None:
        assert rules_of("\n".join(f"o = o.a{i}; p{i} = o" for i in range(3000)) + "\nimport os as o") == []

    def test_not_python(self) -> None:
        (found,) = check("x =\nimport ctypes", RULES)
        assert found.rule == "syntax" and found.line == 1

    def test_no_rules_no_reading(self) -> None:
        assert not CodeRules() and check("((((", CodeRules()) == []


class TestSession:
    def test_aliases_of_earlier_cells_are_known(self) -> None:
        checker = Checker(CodeRules(forbid=("os.system",)))
        assert checker.check("import os as o") == []
        assert checker.check("p = o") == []
        assert [v.rule for v in checker.check("p.system('ls')")] == [FORBID]
        assert Checker(CodeRules(forbid=("os.system",))).check("p.system('ls')") == [], "without them nothing is known"

    def test_a_refused_cell_leaves_nothing(self) -> None:
        checker = Checker(CodeRules(forbid=("os.system", "eval")))
        assert checker.check("import os as o; eval('1')")
        assert checker.check("o.system()") == []

    def test_an_expression_beside_the_code(self) -> None:
        checker = Checker(CodeRules(functions_only=True, forbid=("eval",)))
        assert checker.check_expression("1 + 1") == []
        assert [v.rule for v in checker.check_expression("eval('1')")] == [FORBID]


class TestRefusal:
    def test_of_one(self) -> None:
        error = refusal(check("x = 1\nimport ctypes", RULES))
        assert isinstance(error, PolicyRefusal) and error.state == "kept"
        text = error.explain()
        assert text.startswith("Line 2, column 1: The module ctypes may not be imported here. (code.imports.deny) Use")
        assert "Nothing of this cell was run." in text and "variables of this session are kept" in text
        assert error.data["rule"] == DENY and (error.data["line"], error.data["column"]) == (2, 1)
        again = pickle.loads(pickle.dumps(error))
        assert again.explain() == text and again.data == error.data

    def test_of_many(self) -> None:
        error = refusal(check("eval(1)\n" * 9, RULES))
        assert error is not None
        assert "broken in 9 places" in str(error) and "and 4 more" in str(error) and len(error.data["violations"]) == 9

    def test_of_none(self) -> None:
        assert refusal([]) is None

    def test_violations_for_programs(self) -> None:
        found = Violation(1, 2, "code", "m")
        assert found.to_dict() == {"line": 1, "column": 2, "rule": "code", "message": "m", "instead": ""}


class TestPolicy:
    def test_from_a_policy(self) -> None:
        policy = Policy.from_tables({"code": {"imports": {"allow": ["math"], "deny": ["os"]}, "forbid": ["eval"],
                                              "builtins": {"remove": ["open"]}, "max_code_chars": 9,
                                              "functions_only": True, "dunder_attributes": "deny"}})  # fmt: skip
        assert CodeRules.from_policy(policy.code) == CodeRules(("math",), ("os",), ("eval",), ("open",), 9, True, True)

    @pytest.mark.parametrize("name", presets())
    def test_presets(self, name: str) -> None:
        rules = CodeRules.from_policy(Policy.load(name).code)
        assert bool(rules) is (name in ("classroom", "strict"))
        work = """
import numpy as np, pandas as pd, matplotlib.pyplot as plt
from sklearn.linear_model import Ridge
df = pd.read_csv('x.csv')
df.eval('a + b')
class M:
    def __init__(self):
        super().__init__()
with open('x') as f:
    f.read()
print(f'{df.shape}', '{:>5}'.format(1), type(df).__name__)
"""
        assert check(work, rules) == []
        assert bool(check("import ctypes", rules)) is bool(rules)

    def test_bad_patterns(self) -> None:
        for value in ("os", ["os system"], [1], [""]):
            with pytest.raises(ValueError, match="forbid is a sequence"):
                CodeRules(forbid=value)  # type: ignore[arg-type]
