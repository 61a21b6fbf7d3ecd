"""The pages that a person sees during a sign-on. All text from outside is escaped."""

from html import escape

from starlette.responses import HTMLResponse

from danlu.errors import DanluError

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:32rem;margin:15vh auto;padding:0 1rem;color:#222}"
    "code{font-size:1.4rem;overflow-wrap:anywhere}button{font:inherit;padding:.5rem 1.5rem}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}}"
)


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return HTMLResponse(text, status, HEADERS)


def confirm_page(digits: str, confirmation: str, issuer: str) -> HTMLResponse:
    body = (
        "<p>A terminal wants to sign on as you. It shows these digits:</p>"
        f"<p><code>{escape(digits)}</code></p>"
        f"<p>If yours does, go on to {escape(issuer)}. If you did not type <b>danlu login</b> just now, close this"
        " window: somebody else wants to be you.</p>"
        f'<form method="post"><input type="hidden" name="confirmation" value="{escape(confirmation)}">'
        "<button>This is my terminal</button></form>"
    )
    return _page("Sign on to Danlu", body)


def code_page(code: str) -> HTMLResponse:
    body = (
        f"<p>Paste this into your terminal:</p><p><code>{escape(code)}</code></p>"
        "<p>It works once, in the terminal that shows your digits. Give it to nobody.</p>"
    )
    return _page("Almost there", body)


def error_page(error: DanluError) -> HTMLResponse:
    hint = f"<p>{escape(error.hint)}</p>" if error.hint else ""
    return _page("Not signed on", f"<p>{escape(error.text)}</p>{hint}", error.status)
