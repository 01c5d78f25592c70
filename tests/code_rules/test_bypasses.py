"""Ways around rules of this kind that people have reported of other packages; each is refused before it runs.

They are kept as reports, not as a proof: docs/code-rules.md lists what is not seen, and the wall needs no rules.
"""

from __future__ import annotations

import pytest

from sandbox_kernel.code_rules import CodeRules, check

INSIDE = CodeRules(deny_dunders=True)
NAMES = CodeRules(forbid=("os.system", "os.popen", "eval", "exec"))
IMPORTS = CodeRules(imports_deny=("os", "subprocess", "ctypes", "socket"))

REPORTS = [
    # RestrictedPython: getattr in place of an attribute, with names in texts.
    ("zopefoundation/RestrictedPython#142", INSIDE,
     "getattr(getattr(getattr([], '__class__'), '__base__'), '__subclasses__')().pop(78)"),
    ("zopefoundation/RestrictedPython#282", INSIDE,
     "class Name(str):\n    def startswith(self, *_): return False\ngetattr(x, Name('__class__'))"),
    ("zopefoundation/RestrictedPython#285", INSIDE, "getattr((i for i in x), 'gi_frame')"),
    # ... attributes that a format string reads.
    ("zopefoundation/RestrictedPython#83", INSIDE, "'{0.__class__.__mro__}'.format(x)"),
    ("zopefoundation/AccessControl#46", INSIDE, "fields = '{0.__class__}'\nfields.format_map(x)"),
    ("zopefoundation/AccessControl#50", INSIDE, "'{0[__class__]}{0.__dict__}'.format(x)"),
    ("CVE-2023-41039", INSIDE, "import string\nstring.Formatter().format('{0.__globals__}', f)"),
    ("CVE-2024-47532", INSIDE, "import string\nstring.Formatter().get_field('0.__class__', [x], {})"),
    ("CVE-2024-47532, vformat", INSIDE,
     "import string as s\ns.Formatter().vformat('{a.__init__.__globals__}', (), {'a': s})"),
    ("huggingface/smolagents#2271", INSIDE, "'{0.__class__.__bases__[0].__subclasses__}'.format('a')"),
    ("run-llama/llama_index#21633", INSIDE, "def f(text):\n    return '{0.__class__}'.format(text)"),
    ("aden-hive/hive#715", INSIDE, "'{0.__globals__}'.format(f)"),
    # ... frames of what is suspended.
    ("CVE-2023-37271", INSIDE, "g = (g.gi_frame.f_back.f_back for _ in [1])\n[*g][0].f_globals"),
    ("zopefoundation/RestrictedPython#255", INSIDE, "async def f(): pass\nf().cr_frame.f_builtins"),
    ("danthedeckie/simpleeval#138", INSIDE, "foo.bar().gi_frame.f_globals['__builtins__'].exec('')"),
    # ... `except*`, whose handlers see a group of any class.
    ("CVE-2025-22153", INSIDE, "try: f()\nexcept* E as group: group.exceptions[0].__traceback__.tb_frame"),
    ("CVE-2025-22153, keyword", CodeRules(forbid=("try",)), "try: f()\nexcept* E: pass"),
    # ... what operator's functions read.
    ("zopefoundation/RestrictedPython#330", INSIDE, "from operator import attrgetter as a\na('__class__.__base__')(x)"),
    ("zopefoundation/RestrictedPython#330, methodcaller", INSIDE,
     "import operator\noperator.methodcaller('__getattribute__', '__class__')(x)"),
    ("zopefoundation/RestrictedPython#330, itemgetter", INSIDE,
     "import operator\noperator.itemgetter('__subclasses__')(vars(type))"),
    ("zopefoundation/RestrictedPython#330, names", NAMES,
     "import operator, os\noperator.methodcaller('system', 'ls')(os)"),
    # ... bindings that an older reader of code does not know.
    ("zopefoundation/RestrictedPython#175", NAMES, "import os\n(o := os).system('ls')"),
    ("zopefoundation/RestrictedPython#175, match", NAMES, "import os\nmatch os:\n    case os(system=run): run('ls')"),
    ("crewAIInc/crewAI#4643", INSIDE, "type.__dict__['__subclasses__'](object)"),
    ("secretflow/secretflow#1821", INSIDE, "tb.tb_frame.f_back.f_builtins"),
    # Modules that other modules hold.
    ("sandtrap: a module's private import", NAMES, "import random\nrandom._os.system('ls')"),
    ("sandtrap: the same by from", NAMES, "from random import _os as r\nr.system('ls')"),
    ("sandtrap: a module's import", NAMES, "import logging\nlogging.os.popen('ls')"),
    ("sandtrap: a granted package's import", NAMES, "import numpy\nnumpy.os.system('ls')"),
    ("sandtrap: through several", NAMES, "import string\nstring._re.enum.sys.modules['os'].system('ls')"),
    ("microsoft/agent-governance-toolkit#2631", NAMES, "import sys\nsys.modules['os'].system('ls')"),
    ("microsoft/agent-governance-toolkit#2631, imports", IMPORTS, "import sys\nsys.modules['os']"),
    ("the same, get", IMPORTS, "from sys import modules as m\nm.get('os')"),
    ("sandtrap: what a module of C is called", NAMES, "import posix\nposix.system('ls')"),
    ("the same, from", NAMES, "from posix import system as s\ns('ls')"),
    ("the same, imports", IMPORTS, "import posix"),
    ("the same, by *", NAMES, "from posix import *\nsystem('ls')"),
    ("the same, looked up", NAMES, "import sys\nsys.modules['posix'].system('ls')"),
    ("the same, imported by a call", NAMES, "__import__('posix').system('ls')"),
    ("the same, resolved", NAMES, "import pkgutil\npkgutil.resolve_name('posix:system')('ls')"),
    ("pydoc", NAMES, "import pydoc\npydoc.locate('os.system')('ls')"),
    ("the same, imports", IMPORTS, "from pydoc import locate\nlocate('os')"),
    ("inspect", NAMES, "import inspect, os\ninspect.getattr_static(os, 'system')('ls')"),
    ("the same, of subprocess", IMPORTS, "from _posixsubprocess import fork_exec"),
    ("the same, of ctypes", IMPORTS, "import _ctypes"),
    ("the same, of socket", IMPORTS, "import importlib\nimportlib.import_module('_socket')"),
    # Import without an import statement.
    ("python-tools: a loader", IMPORTS, "__loader__.load_module('os')"),
    ("the same, by class", IMPORTS, "from importlib.machinery import BuiltinImporter as b\nb.load_module('posix')"),
    ("the same, by spec", IMPORTS, "import importlib.util\nimportlib.util.find_spec('os').loader.load_module()"),
    ("hydra: code in a text", IMPORTS, "exec('import subprocess')"),
    ("hydra: importlib", IMPORTS, "import importlib\nimportlib.import_module('subprocess')"),
    ("hydra: a submodule", IMPORTS, "import os.path"),
    # Built-in names by another way.
    ("browser-use/browser-use#4679", NAMES, "print.__self__.eval('1')"),
    ("gristlabs/grist-core#2353", NAMES, "__builtins__['ev' + 'al']('1')"),
    ("the same, globals", NAMES, "globals()['__builtins__'].eval('1')"),
    ("the same, vars", NAMES, "import builtins\nvars(builtins)['exec']('x = 1')"),
    ("the same, in a default", NAMES, "def f(run=exec):\n    run('x = 1')"),
    ("the same, as a decorator", NAMES, "@eval\ndef code(): pass"),
]  # fmt: skip


@pytest.mark.parametrize(("report", "rules", "code"), REPORTS, ids=[report for report, _, _ in REPORTS])
def test_is_refused_before_it_runs(report: str, rules: CodeRules, code: str) -> None:
    compile(code, "<report>", "exec")
    found = check(code, rules)
    assert found, report
    assert all(violation.line >= 1 and violation.message for violation in found)


@pytest.mark.parametrize("code", [
    "import random\nrandom.shuffle(x)", "import _thread", "obj._os", "self._private.system", "x._socket = 1",
    "sys = 1\nmodules = {}\nmodules['os']", "d.get('os')", "loader.load(x)", "from os_tools import system",
])  # fmt: skip
def test_what_only_looks_like_one_is_left_alone(code: str) -> None:
    assert check(code, CodeRules(forbid=("os.system",), imports_deny=("subprocess", "ctypes"))) == []
