"""Texts that would be markup, or scripts, on a page that does not take them for texts."""

from __future__ import annotations

from itertools import product

_TAGS = (
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>", "<svg/onload=alert(1)>"),
    *(
        "<body onload=alert(1)>",
        "<iframe src=javascript:alert(1)>",
        "<a href=javascript:alert(1)>x</a>",
        "<x onclick=alert(1)>",
    ),
    *(
        "<math><mtext></mtext><script>alert(1)</script>",
        "<details open ontoggle=alert(1)>",
        "<video><source onerror=alert(1)>",
    ),
    *(
        "<input autofocus onfocus=alert(1)>",
        "<form action=javascript:alert(1)><button>x",
        "<style>@import 'http://x.example'</style>",
    ),
    *("<link rel=stylesheet href=http://x.example>", "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>"),
    *(
        "<base href=http://x.example/>",
        "<object data=javascript:alert(1)>",
        "<embed src=javascript:alert(1)>",
        "<!--<img src=--><x onx=1>",
    ),
    *(
        "<ScRiPt>alert(1)</sCrIpT>",
        "<script\n>alert(1)</script\n>",
        "<<script>alert(1)//<</script>",
        "<img/src='x'/onerror='alert(1)'>",
    ),
    *(
        "<div hx-get='/x' hx-trigger='load'>",
        "<div data-hx-on:load='alert(1)'>",
        "<div sse-connect='/x'>",
        "<template><script>1</script></template>",
    ),
)
_AROUND = ("{}", '"{}', "'>{}", '">{}', "</textarea>{}", "</title>{}")
_MARKDOWN = (
    *("[x](javascript:alert(1))", "[x](JaVaScRiPt:alert(1))", "[x](data:text/html,<script>alert(1)</script>)"),
    *("![x](http://x.example/pixel)", '![x"onerror="alert(1)](x)', "[x](vbscript:msgbox(1))", "<javascript:alert(1)>"),
    *("[x](java\tscript:alert(1))", "[x]: javascript:alert(1)\n\n[x]", '[x](http://a "onmouseover=alert(1)")'),
    *(
        "```<script>alert(1)</script>```",
        '```"onload=alert(1)\nx\n```',
        "# <svg onload=alert(1)>",
        "|a|\n|-|\n|<img src=x onerror=1>|",
    ),
    *(
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "&#60;script&#62;alert(1)",
        "\\<script\\>alert(1)",
        "{{ 7*7 }}{% raw %}",
        "${7*7}",
    ),
    *(
        "<x&Tab;onload=1>",
        "javascript&colon;alert(1)",
        "\u202e<script>",
        "\x1b[31m<script>",
        "%3Cscript%3E",
        "\uff1cscript\uff1e",
    ),
    *(
        '" autofocus onfocus="alert(1)',
        "' autofocus onfocus='alert(1)",
        '"><b hx-on::load="alert(1)">',
        "]]><script>alert(1)",
    ),
    *(
        "<a href='&#106;avascript:alert(1)'>x</a>",
        "[x](&#106;avascript:alert(1))",
        '<http://x.example/"onclick=alert(1)>',
    ),
)
PAYLOADS = tuple(around.format(tag) for tag, around in product(_TAGS, _AROUND)) + _MARKDOWN
