"""Commands about people: logins, tokens, accounts, teams, and who changed what."""

from __future__ import annotations

from danlu.cli.grammar.model import JSON, Command, Option

PASSWORD_STDIN = Option("--password-stdin", help="read passwords from stdin, a line each, instead of asking")
ROLE = Option("--role", metavar="ROLE", choices=("member", "admin"), help="member (unless given) or admin")

PEOPLE = (
    Command(
        "login", "login:login", "people", "log in to a shared server; later commands mean it, as you",
        (
            Option("--user", metavar="NAME", help="whose account; asked unless given"),
            PASSWORD_STDIN,
            Option("--browser", help="sign on in the browser, where the server offers it"),
            Option("--no-browser", help="with --browser: show the address and open nothing"),
            Option("--paste", help="with --browser: the browser is on another machine, and shows a code to paste here"),
            Option("--first", metavar="CODE", help="become the first administrator; `-` asks for the printed code"),
            JSON,
        ),
        examples=(
            "danlu login --server https://gpu.lab:7411", "danlu login --user li", "danlu login --browser",
            "danlu login --browser --paste",
        ),
    ),
    Command(
        "logout", "login:logout", "people", "end the login, here and at the server", examples=("danlu logout",),
    ),
    Command(
        "whoami", "login:whoami", "people", "who you are to the server: role, teams, how signed in",
        (JSON,), examples=("danlu whoami",),
    ),
    Command(
        "passwd", "login:passwd", "people", "change your password, or reset another's (administrators)",
        (PASSWORD_STDIN,), words="USER", words_min=0, examples=("danlu passwd", "danlu passwd li"),
    ),
    Command(
        "token create", "login:token_create", "people", "a token for a script or another machine, shown once",
        (
            Option("--user", metavar="USER", help="for somebody else (administrators)"),
            ROLE,
            Option("--days", metavar="N", kind="count", help="valid for N days, 90 unless given; 0: for ever (admins)"),
            JSON,
        ),
        words="NAME", examples=("danlu token create laptop --days 30",),
    ),
    Command(
        "token list", "login:token_list", "people", "your tokens",
        (
            Option("--user", metavar="USER", help="somebody else's (administrators)"),
            Option("--all", "-a", help="everybody's (administrators)"),
            JSON,
        ),
        examples=("danlu token list",),
    ),
    Command(
        "token revoke", "login:token_revoke", "people", "make tokens useless",
        words="ID...", examples=("danlu token revoke 3b569a3e",),
    ),
    Command(
        "account ask", "people:account_ask", "people", "ask for an account; no login needed",
        (
            Option("--team", metavar="TEAM", help="the team you belong to; its leader approves"),
            Option("--user", metavar="NAME", help="the name of the account; your Unix name unless given"),
            Option("--name", metavar="NAME", help="your own name"),
            Option("--email", metavar="EMAIL", help="where to reach you"),
            Option("--why", metavar="TEXT", help="what for"),
            PASSWORD_STDIN,
            JSON,
        ),
        examples=('danlu account ask --team nlp --name "Li Hua"',),
    ),
    Command(
        "account list", "people:account_list", "people", "who waits for an account (leaders, administrators)",
        (Option("--all", "-a", help="the decided ones too"), JSON), examples=("danlu account list",),
    ),
    Command(
        "account approve", "people:account_approve", "people", "a leader's yes to a request",
        (JSON,), words="ID", examples=("danlu account approve k3fz82aw",),
    ),
    Command(
        "account open", "people:account_open", "people", "open the account that was asked for (administrators)",
        (JSON,), words="ID", examples=("danlu account open k3fz82aw",),
    ),
    Command(
        "account refuse", "people:account_refuse", "people", "a no to a request",
        (Option("--why", metavar="TEXT", help="the reason, for the audit log"), JSON),
        words="ID", examples=('danlu account refuse k3fz82aw --why "left the lab"',),
    ),
    Command("user list", "people:user_list", "people", "accounts", (JSON,), examples=("danlu user list",)),
    Command(
        "user show", "people:user_show", "people", "everything about an account",
        (JSON,), words="USER", examples=("danlu user show li",),
    ),
    Command(
        "user create", "people:user_create", "people", "open an account without a request (administrators)",
        (
            Option("--team", metavar="TEAM", many=True, help="a team to be in"),
            Option("--name", metavar="NAME", help="the person's own name"),
            Option("--email", metavar="EMAIL", help="where to reach them"),
            ROLE,
            PASSWORD_STDIN,
            JSON,
        ),
        words="USER", examples=("danlu user create li --team nlp",),
    ),
    Command(
        "user disable", "people:user_disable", "people", "no new work, no way in; data stay (administrators)",
        (JSON,), words="USER", examples=("danlu user disable li",),
    ),
    Command(
        "user enable", "people:user_enable", "people", "let somebody work again (administrators)",
        (JSON,), words="USER", examples=("danlu user enable li",),
    ),
    Command(
        "user role", "people:user_role", "people", "make somebody admin, or member again (administrators)",
        (JSON,), words="USER ROLE", words_min=2, examples=("danlu user role li admin",),
    ),
    Command(
        "user link", "sign_on:link", "people", "whose account it is at the sign-on (administrators)",
        (JSON,), words="USER SUBJECT", words_min=2,
        examples=("danlu user link li 'https://sso.lab/realms/lab|4f1c'",),
    ),
    Command(
        "team create", "people:team_create", "people", "a new team (administrators)",
        (JSON,), words="TEAM", examples=("danlu team create nlp",),
    ),
    Command(
        "team list", "people:team_list", "people", "teams, and who leads them", (JSON,), examples=("danlu team list",),
    ),
    Command(
        "team show", "people:team_show", "people", "who is in a team",
        (JSON,), words="TEAM", examples=("danlu team show nlp",),
    ),
    Command(
        "team add", "people:team_add", "people", "take people in (administrators), or invite (leaders)",
        (JSON,), words="TEAM USER...", words_min=2, examples=("danlu team add nlp li wang",),
    ),
    Command(
        "team join", "people:team_join", "people", "accept an invitation into a team",
        (JSON,), words="TEAM", examples=("danlu team join nlp",),
    ),
    Command(
        "team leave", "people:team_leave", "people", "go out of a team, or decline an invitation",
        (JSON,), words="TEAM", examples=("danlu team leave nlp",),
    ),
    Command(
        "team remove", "people:team_remove", "people", "let people go from a team (its leaders)",
        (JSON,), words="TEAM USER...", words_min=2, examples=("danlu team remove nlp wang",),
    ),
    Command(
        "team leader", "people:team_leader", "people", "who leads a team, or no longer (administrators)",
        (Option("--remove", help="they lead no longer, but stay in it"), JSON),
        words="TEAM USER...", words_min=2, examples=("danlu team leader nlp li", "danlu team leader nlp li --remove"),
    ),
    Command(
        "audit", "people:audit", "people", "who changed what, when, and from where (administrators)",
        (
            Option("--who", metavar="USER", help="only what this person did"),
            Option("--what", metavar="VERB", help="only this: user.disable, or all of it: user, quota, job"),
            Option("--target", metavar="NAME", help="only what was done to this: a name, or the full id of a job"),
            Option("--limit", "-n", metavar="N", kind="count", help="how many; 50 unless given"),
            Option("--before", metavar="CURSOR", help="go on where the last page ended"),
            JSON,
        ),
        examples=("danlu audit", "danlu audit --what user --target li -n 20", "danlu audit --who li --what job"),
    ),
)  # fmt: skip
