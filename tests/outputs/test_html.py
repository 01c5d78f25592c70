"""HTML, style and drawings: what stays, what goes, and how long that takes."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox_kernel.outputs import css
from sandbox_kernel.outputs.html import _MARKED, ATTRIBUTES, TAGS, clean_html
from sandbox_kernel.outputs.settings import Removed, Settings
from sandbox_kernel.outputs.svg import clean_svg
from sandbox_kernel.outputs.text import clean_text, split_unfinished


def clean(html: str) -> str:
    return clean_html(html, Removed(), Settings(), scope="o12345678") or ""


SAME = [
    "<b>1</b>", "<p>日本 \U0001f600</p>", "<pre>a  b</pre>", "<h1>t</h1>", "x &lt;b&gt; &amp; y", "a & b",
    '<table border="1" class="dataframe">\n  <tr style="text-align: right;">\n <th></th><td>C:\\data</td></tr></table>',
    "<ul><li>a</li></ul>",
]  # fmt: skip


@pytest.mark.parametrize("html", SAME)
def test_simple_markup_is_not_touched(html: str) -> None:
    assert clean(html) == html


def test_what_is_cut_for_formulas_is_never_part_of_an_attribute() -> None:
    cleaned = clean('<p title="<wbr ">$x$ \\hr<wbr title="a>b">ef{x}</p>')
    assert cleaned == '<p title="&lt;wbr ">$x$ \\\u200bhref{x}</p>'


GONE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<a href='java\tscript:alert(1)'>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>", "<object data='data:text/html,x'></object>",
    "<svg onload=alert(1)></svg>", "<math href='javascript:alert(1)'><mtext>x</mtext></math>",
    "<form action='http://e.org'><button>x</button></form>", "<meta http-equiv=refresh content='0;url=http://e.org'>",
    "<base href='http://e.org/'>", "<link rel=stylesheet href='http://e.org/a.css'>", "<p/onclick=alert(1)>x",
    "<img src='http://e.org/x.png'>", "<img src='/api/contents'>", "<img src='//e.org'>",
    "<img srcset='http://e.org 1x'>",
    "<a data-commandlinker-command='terminal:create-new'>x</a>", "<div style='position:fixed'>x</div>",
    "<div style='background:u\\72l(http://e.org)'>x</div>", "<div style='background:URL(http://e.org)'>x</div>",
    "<div style=\"background:image-set('http://e.org' 1x)\">x</div>", "<table background='http://e.org'></table>",
    "<style>@import 'http://e.org';</style>", "<style>.a{background:url(http://e.org)}</style><b class=a>x</b>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>", "<!--><img src=x onerror=alert(1)>-->",
    "<svg></p><style><a id='</style><img src=1 onerror=alert(1)>'>",
    "<xmp><p title='</xmp><img src=x onerror=alert(1)>'>",
    "<textarea><img title='</textarea><img src=x onerror=alert(1)>'>",
    "<template><img src=x onerror=alert(1)></template>",
    "<video poster='http://e.org' src='http://e.org'></video>", "<a href='/files/x.html'>x</a>", "<a href='#x'>x</a>",
    "<input type=text autofocus>", "<input type=password>", "<img src='data:text/html;base64,AAAA'>",
    "<img src='data:image/svg+xml,<svg onload=alert(1)>'>", "<div contenteditable tabindex=0 accesskey=x>x</div>",
    "<font face='x;url(http://e.org)'>x</font>",
    # What a parser and a cleaner may see differently.
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<svg><foreignObject><style><a title='</style><img src=x onerror=alert(1)>'>",
    "<math><annotation-xml encoding='text/html'><style><img src=x onerror=alert(1)></style></annotation-xml></math>",
    "<select><template><img src=x onerror=alert(1)></template></select><option><img src=x onerror=alert(1)>",
    "<?xml version='1.0'?><img src=x onerror=alert(1)>", "<![CDATA[<img src=x onerror=alert(1)>]]>",
    "<svg><![CDATA[</svg><img src=x onerror=alert(1)>]]></svg>", "<plaintext><img src=x onerror=alert(1)>",
    "<img alt='`' src=x onerror=alert(1)//`>", "<style></style </style><img src=x onerror=alert(1)>",
    "<style>b{content:'</style><img src=x onerror=alert(1)>'}</style><b>x</b>",
    # Addresses that a page's own origin is hidden in.
    "<a href='java&#x0a;script:alert(1)'>x</a>", "<a href='&#1;javascript:alert(1)'>x</a>",
    "<a href='blob:http://e.org/1'>x</a>", "<a href='https:/api/x'>x</a>", "<a href='http:/files/x.html'>x</a>",
    "<a href='data:text/html;base64,PHNjcmlwdD4='>x</a>", "<a xlink:href='javascript:alert(1)'>x</a>",
    "<a download=x ping='http://e.org'>x</a>", "<picture><source srcset='http://e.org 1x'></picture>",
    "<video src='data:video/mp4;base64,AAAA' poster='http://e.org'><track src='http://e.org'></video>",
    "<input type=image src='http://e.org'>", "<link rel=preconnect href='http://e.org'>",
    # Style that leaves its box or fetches.
    "<div style='--a:url(http://e.org);background:var(--a)'>x</div>",
    "<div style='background:/**/url/**/(http://e.org)'>x</div>", "<style>@\\69mport 'http://e.org';</style>",
    "<style>@font-face{font-family:x;src:url(http://e.org)}@namespace url(http://e.org);</style>",
    "<b data-commandlinker-command='terminal:create-new' data-commandlinker-args='{}'>x</b>",
    "<details open ontoggle=alert(1)>x</details>", "<marquee onstart=alert(1)>x</marquee>",
    "<button popovertarget=p>x</button><div popover id=p>x</div>", "<x-foo contenteditable is=x slot=x>x</x-foo>",
]  # fmt: skip
_ACTS = re.compile(
    r"<(?:script|iframe|object|svg|math|form|button|meta|base|link|style)|\son\w+=|script:|e\.org|/api|/files|data-|fixed"
    r"|data:text|data:image/svg\+xml,|contenteditable|tabindex|accesskey|autofocus|password|type=\"?text|srcset|poster"
    r"|background|href=[\"']#|/on\w+=",
    re.I,
)


@pytest.mark.parametrize("html", GONE)
def test_what_acts_is_gone(html: str) -> None:
    assert _ACTS.search(html)
    assert not _ACTS.search(clean(html))


def test_classes_and_ids_of_the_page_mean_nothing() -> None:
    html = clean("<div class='jp-Dialog dataframe' id='main' style='color: red'>x</div>")
    assert html == (
        '<div style="contain: content; overflow: auto"><div id="o12345678">'
        '<div class="o-jp-Dialog dataframe" id="o12345678-main" style="color: red">x</div></div></div>'
    ) or 'class="o-jp-Dialog dataframe"' in html


@pytest.mark.parametrize("selector", [
    "html", ":root", "body", ":host", "*", "div", "[style]", ":not(b)", "div:first-child", "html *", "html > div",
    "div > *", "#o12345678", ":has(b)", ":is(div)", ":scope", "&", "html:not(.x)", ":root:hover",
])  # fmt: skip
def test_no_rule_hits_the_box_that_confines(selector: str) -> None:
    """The box is an element around the one that all rules begin with, or are for at most."""
    for rule in (f"{selector}{{display: contents!important; top: 0}}", f"b{{color: red; {selector}{{top: 0}}}}"):
        html = clean(f"<style>{rule}</style><b>x</b>")
        box, found, sheet = html.partition("<style>")
        assert box == ('<div style="contain: content; overflow: auto"><div id="o12345678">' if found else "<b>x</b>")
        for line in sheet.partition("</style>")[0].split("\n"):
            assert re.match(r"#o12345678(?: (?![>+~])|$)", line) or not line
        assert clean(html) == html


def test_a_title_hides_no_style_from_the_box() -> None:
    assert _MARKED.search('<b title="a>b" style="top: 0">')  # as an older nh3 writes it


@pytest.mark.parametrize("split", [
    "<wbr>", "<wbr/>", "<WBR class=x>", "</wbr>", "<!-- x -->", "<x></x>", "<script></script>", "&#104;", "\x00",
    "<x:y>",
])  # fmt: skip
def test_a_macros_name_in_pieces_is_broken_too(split: str) -> None:
    """MathJax reads the text of a whole block. A ``<wbr>`` in it is nothing."""
    before, after = ("\\", "ref") if split.startswith("&") else ("\\hr", "ef")
    formula = f"{before}{split}{after}{{javascript:alert(1)}}{{x}}"
    for html in (f"${formula}$", f"<p style='color: red'>\\({formula}\\)</p>"):
        assert "\\href" not in re.sub("<wbr[^>]*>", "", clean(html))


def test_nobody_is_told_to_trust_a_notebook_for_a_frame_that_was_removed() -> None:
    removed = Removed()
    told = "<span style='color:#565656'>Make this Notebook Trusted to load map: File -> Trust Notebook</span>"
    html = clean_html(f"<div>{told}<iframe srcdoc='x'></iframe></div>", removed, Settings())
    assert html is not None and "Trust" not in html and removed == {"iframe": 1}


def test_a_links_window_is_a_new_one() -> None:
    html = clean("<a href='https://e.org/a' target=_top rel=opener>x</a>")
    assert 'target="_blank"' in html and 'rel="noopener noreferrer nofollow"' in html and "_top" not in html


def test_tables_of_styler_keep_their_style() -> None:
    html = clean(
        "<style>\n#T_a_row0_col0, #T_a_row1_col1 {\n  background-color: red;\n  width: 10em;\n background: "
        "linear-gradient(90deg, #d65f5f 33.3%, transparent 33.3%);\n}\n#T_a th {\n  color: blue;\n}\n</style>"
        "<table id='T_a'><tr><td id='T_a_row0_col0' class='data row0 col0'>x</td></tr></table>"
    )
    assert "#o12345678 #o12345678-T_a_row0_col0, #o12345678 #o12345678-T_a_row1_col1 {background-color: red" in html
    assert "linear-gradient(90deg, #d65f5f 33.3%, transparent 33.3%)" in html
    assert "#o12345678 #o12345678-T_a th {color: blue}" in html and 'id="o12345678-T_a_row0_col0"' in html


SHEETS = [
    "body{opacity:0}", "#T_a, #jp-top-panel{display:none}", "*{visibility:hidden}", "#T_a:has(x){color:red}",
    ".jp-Notebook{display:none}", ":root{--jp-x: red}", "#T_a{a:[} body{display:none} x{b:]}",
    "@media x{body{color:red}}",
    "#T_a{color:red}} body{color:red}", "a{color:red;/*} body{color:red}/**/", "[x='}body{color:red}']{color:red}",
    "#a{color:red}</style><script>alert(1)</script>", "a:not(b, c){color:red}", "a\\{b{color:red}",
    "a b::part(x){color:red}",
    '#a{content:"}body{color:red"}', "#a{x:(}body{color:red}#b{y:)}",
]  # fmt: skip


@pytest.mark.parametrize("sheet", SHEETS)
def test_every_rule_stands_below_the_output(sheet: str) -> None:
    text, _ = css.clean_sheet(sheet, "o1")
    for line in text.splitlines():
        selectors = line.partition("{")[0]
        assert all(part.strip() == "#o1" or part.strip().startswith("#o1 ") for part in selectors.split(","))
        assert line.count("{") == line.count("}") == 1 and "<" not in line and ".jp-" not in line


VALUES = [
    "url(x)", "u\\72l(x)", "image-set('x' 1x)", "-webkit-image-set(x)", "var(--x)", "env(x)", "attr(x)",
    "expression(x)",
    "red;x:y", "red}", "/*", "src('x')", "element(#x)", "paint(x)", "cross-fade(x)", '"', "'a", "(", "[", "http://x",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_values_that_fetch_or_break_out(value: str) -> None:
    assert css.clean_value("background", value) is None


def test_positions() -> None:
    assert css.clean_value("position", "sticky") == "sticky"
    for value in ("fixed", "absolute", "absolute !important", "FIXED", "inherit"):
        assert css.clean_value("position", value) is None


class TestDrawings:
    def test_are_written_anew(self) -> None:
        drawing = "<svg width='8' height='8'><g id='a' onclick='x'><circle r='3' fill='url(#b)'/></g></svg>"
        kept = clean_svg(drawing, Removed())
        assert kept is not None and '<circle r="3" fill="url(#b)"></circle>' in kept and "onclick" not in kept

    @pytest.mark.parametrize(
        "inside",
        ["<script>alert(1)</script>", "<foreignObject><b>x</b></foreignObject>", "<a href='javascript:x'>x</a>",
         "<image href='http://e.org/x.png'/>", "<use href='http://e.org/x.svg#a'/>",
         "<rect style='fill:url(http://e.org)'/>",
         "<rect onload='alert(1)'/>", "<animate attributeName='href' to='javascript:x'/>",
         "<set attributeName='onload'/>",
         "<style>@import 'http://e.org'; *{fill:url(http://e.org)}</style>", "<rect fill='url(http://e.org)'/>"],
    )  # fmt: skip
    def test_what_acts_is_gone(self, inside: str) -> None:
        kept = clean_svg(f"<svg>{inside}</svg>", Removed())
        assert kept is not None
        assert not re.search(r"script|foreign|<a |e\.org|onload|animate|<set|import", kept)

    @pytest.mark.parametrize("text", ["", "x", "<svg", "<b>x</b>", "<svg><g></svg>", "<svg onload=x></svg>", "<g/>",
                                      "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg>&a;</svg>"])  # fmt: skip
    def test_what_is_none(self, text: str) -> None:
        assert clean_svg(text, Removed()) is None

    def test_repetitions_of_repetitions(self) -> None:
        def uses(name: str, count: int) -> str:
            return f"<use href='#{name}'/>" * count

        levels = "".join(f"<g id='a{i + 1}'>{uses(f'a{i}', 10)}</g>" for i in range(9))
        assert clean_svg(f"<svg><g id='a0'><rect/></g>{levels}<use href='#a9'/></svg>", Removed()) is None
        assert clean_svg(f"<svg><path id='p'/>{uses('p', 100)}</svg>", Removed()) is not None

    def test_stand_in_html_as_pictures(self) -> None:
        html = clean("a<svg width='8'><circle r='3'/></svg>b")
        assert re.fullmatch(r'a<img src="data:image/svg\+xml;base64,[\w+/=]+" alt="">b', html)


HOSTILE = [
    "<div>" * 60_000, "<b>" * 60_000 + "x", "<table><tr><td>" * 20_000, "<b id=1>" * 900 + "<p>" * 20_000,
    "<div><!--</div>-->" * 40_000, "<div><table><td></div></table>" * 20_000, "<style>" * 200_000, "<svg>" * 200_000,
    "<a b='" * 200_000, "<![CDATA[" * 100_000, "<" * 1_000_000, "&" * 1_000_000, "<b>x</b>" * 1_000_000,
    "<div a='</div>'>" * 20_000, "<style>" + "a,".join("x" for _ in range(100_000)) + "{color:red}</style>",
    "<style>" + "{" * 300_000 + "</style>", "<b style='" + "a:b;" * 200_000 + "'>",
    "<b class='" + "a " * 200_000 + "'>",
    "<p " + "a " * 300_000 + ">x", "<script>" * 100_000, "\x00" * 1_000_000 + "<b a>", "<img " * 100_000,
    "<div>\n<style scoped>" + ".dataframe" * 300_000 + "{}", "<svg><style>" + "a" * 3_000_000 + "</style></svg>",
    "<svg><rect style='" + "fill:url(#a);" * 200_000 + "'/></svg>",
]  # fmt: skip


@pytest.mark.parametrize("html", HOSTILE, ids=range(len(HOSTILE)))
def test_takes_time_in_proportion_to_the_length(html: str) -> None:
    began = time.process_time()
    clean(html)
    assert time.process_time() - began < 3


# ------------------------------------------------------------ properties

_PIECES = st.sampled_from(
    ["<", ">", "</", "/>", "<b", "<div ", "<table>", "<tr><td>", "</table>", "<style>", "</style>", "<svg>", "</svg>",
     "<math>",
     "<script>", "</script>", "<img src=x onerror=alert(1) ", "<!--", "-->", "--!>", "<![CDATA[", "]]>", "<form>",
     "<select>",
     "style='", 'style="', "color:red", "position:fixed", "background:url(x)", ";", "'", '"', "=", " ", "&lt;", "&#60;",
     "\\", "{", "}", "#a", ".b", "id=x", "class=jp-Dialog", "onclick=", "href='javascript:x'", "href=https://e.org",
     "<a ",
     "<noscript>", "<template>", "<p>", "<b style='color:red'>", "x", "\x00", "\ue000", "é",
     "$\\href{javascript:x}{y}$",
     "<input ", "<label for=x>", "<details>", "<xmp>", "<textarea>", "<title>", "<plaintext>", "<iframe srcdoc=",
     "<br>"]
)  # fmt: skip
_MESSES = st.lists(_PIECES, max_size=30).map("".join)


class _Seen(HTMLParser):
    """What an independent parser sees."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


class _Order(HTMLParser):
    """All that a text says, with the attributes of each tag sorted: nh3 writes them in any order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.said: list[object] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.said.append((tag, sorted((name, value or "") for name, value in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.said.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.said.append(data)


@given(_MESSES)
@settings(max_examples=400, deadline=None)
def test_nothing_outside_of_the_lists_survives(html: str) -> None:
    text = clean(html)
    seen = _Seen()
    seen.feed(re.sub(r"<style>\n.*?\n</style>", "", text, flags=re.S))
    seen.close()
    for tag, attributes in seen.found:
        assert tag in TAGS
        allowed = ATTRIBUTES["*"] | ATTRIBUTES.get(tag, set())
        if tag == "a":
            allowed = allowed | {"target", "rel"}
        if tag == "input":
            allowed = allowed | {"type"}
            assert attributes["type"] == "checkbox"
        assert attributes.keys() <= allowed
        for name in ("href", "src"):
            value = attributes.get(name) or ""
            assert not value or value.startswith(("https://", "http://", "mailto:", "data:"))
        assert (attributes.get("id") or "o12345678").startswith("o12345678")
        assert "jp-Dialog" not in (attributes.get("class") or "").replace("o-jp-Dialog", "")
        assert "url" not in (attributes.get("style") or "") and "fixed" not in (attributes.get("style") or "")
    assert "\\href" not in text or "$" not in text


@given(_MESSES)
@example("<a ><table><a >")
@example("<h1 id=x><table><h2 title=y>z</h2></table></h1>")
@example("<h1><b title=y>x<h1 title=y><span id=x>")
@example("<li id=x><table><li title=y><dd id=z><table><dt id=z>")
@settings(max_examples=400, deadline=None)
def test_what_has_passed_passes_again(html: str) -> None:
    once = clean(html)
    assert _Order(clean(once)).said == _Order(once).said


@given(st.text(st.sampled_from("\x1b\x9b\x07[]0;1mKJH?ab \n\r\t\u202e\x00"), max_size=60))
@settings(max_examples=400, deadline=None)
def test_of_controls_only_colours_survive(text: str) -> None:
    kept = clean_text(text)
    assert not re.search(r"[\x05\x0e\x0f\x80-\x84\x86-\x9f\u202a-\u202e]", kept)
    assert not re.search(r"\x1b(?!\[[0-9;:]*m)", kept)
    assert clean_text(kept) == kept


def test_text() -> None:
    assert clean_text("a\x00b\x01c\x7f\x85\u2028\x07") == "a\x00b\x01c\x7f\x85\u2028\x07"
    assert clean_text("\x1b[31mred\x1b[0m\r\n\tx\b") == "\x1b[31mred\x1b[0m\r\n\tx\b"
    assert clean_text("\x1b]8;;http://e.org\x1b\\click\x1b]8;;\x1b\\ \x1b]0;title\x07 \x1b[2J\x1b[3Ax") == "click  x"
    assert split_unfinished("a\x1b[3") == ("a", "\x1b[3") and split_unfinished("a\x1b[31m") == ("a\x1b[31m", "")
