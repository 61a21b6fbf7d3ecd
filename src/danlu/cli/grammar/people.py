"""Commands about people: logins, tokens, accounts, teams, and who changed what."""

from __future__ import annotations

from danlu.cli.grammar.model import JSON, Command, Option

PASSWORD_STDIN = Option("--password-stdin", help="read passwords from stdin, one per line, without a prompt")
ROLE = Option("--role", metavar="ROLE", choices=("member", "admin"), help="member (default) or admin")

PEOPLE = (
    Command(
        "login", "login:login", "people", "log in to a shared server; later commands use this login",
        (
            Option("--user", metavar="NAME", help="account name; default: a prompt"),
            PASSWORD_STDIN,
            Option("--browser", help="sign on in the browser, if the server offers it"),
            Option("--no-browser", help="with --browser: only show the address"),
            Option("--paste", help="with --browser on another machine: paste the code it shows"),
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
        "whoami", "login:whoami", "people", "show your account on the server: role, teams, sign-in",
        (JSON,), examples=("danlu whoami",),
    ),
    Command(
        "passwd", "login:passwd", "people", "change your password, or reset another user's (administrators)",
        (PASSWORD_STDIN,), words="USER", words_min=0, examples=("danlu passwd", "danlu passwd li"),
    ),
    Command(
        "token create", "login:token_create", "people", "create a token for a script or another machine, shown once",
        (
            Option("--user", metavar="USER", help="for another user (administrators)"),
            ROLE,
            Option("--days", metavar="N", kind="count", help="valid for N days, default 90; 0: for ever (admins)"),
            JSON,
        ),
        words="NAME", examples=("danlu token create laptop --days 30",),
    ),
    Command(
        "token list", "login:token_list", "people", "list your tokens",
        (
            Option("--user", metavar="USER", help="another user's tokens (administrators)"),
            Option("--all", "-a", help="all users' tokens (administrators)"),
            JSON,
        ),
        examples=("danlu token list",),
    ),
    Command(
        "token revoke", "login:token_revoke", "people", "revoke tokens",
        words="ID...", examples=("danlu token revoke 3b569a3e",),
    ),
    Command(
        "account ask", "people:account_ask", "people", "request an account; no login needed",
        (
            Option("--team", metavar="TEAM", help="the team you belong to; its leader approves"),
            Option("--user", metavar="NAME", help="account name; default: your Unix name"),
            Option("--name", metavar="NAME", help="your full name"),
            Option("--email", metavar="EMAIL", help="your email address"),
            Option("--why", metavar="TEXT", help="the purpose"),
            PASSWORD_STDIN,
            JSON,
        ),
        examples=('danlu account ask --team nlp --name "Li Hua"',),
    ),
    Command(
        "account list", "people:account_list", "people", "list account requests (leaders, administrators)",
        (Option("--all", "-a", help="include decided requests"), JSON), examples=("danlu account list",),
    ),
    Command(
        "account approve", "people:account_approve", "people", "approve a request (leaders)",
        (JSON,), words="ID", examples=("danlu account approve k3fz82aw",),
    ),
    Command(
        "account open", "people:account_open", "people", "open a requested account (administrators)",
        (JSON,), words="ID", examples=("danlu account open k3fz82aw",),
    ),
    Command(
        "account refuse", "people:account_refuse", "people", "refuse a request",
        (Option("--why", metavar="TEXT", help="the reason, for the audit log"), JSON),
        words="ID", examples=('danlu account refuse k3fz82aw --why "left the lab"',),
    ),
    Command("user list", "people:user_list", "people", "list accounts", (JSON,), examples=("danlu user list",)),
    Command(
        "user show", "people:user_show", "people", "show an account",
        (JSON,), words="USER", examples=("danlu user show li",),
    ),
    Command(
        "user create", "people:user_create", "people", "open an account without a request (administrators)",
        (
            Option("--team", metavar="TEAM", many=True, help="a team of the user"),
            Option("--name", metavar="NAME", help="full name of the user"),
            Option("--email", metavar="EMAIL", help="email address of the user"),
            ROLE,
            PASSWORD_STDIN,
            JSON,
        ),
        words="USER", examples=("danlu user create li --team nlp",),
    ),
    Command(
        "user disable", "people:user_disable", "people", "block logins and new jobs; data stay (administrators)",
        (JSON,), words="USER", examples=("danlu user disable li",),
    ),
    Command(
        "user enable", "people:user_enable", "people", "enable an account again (administrators)",
        (JSON,), words="USER", examples=("danlu user enable li",),
    ),
    Command(
        "user role", "people:user_role", "people", "make a user admin or member (administrators)",
        (JSON,), words="USER ROLE", words_min=2, examples=("danlu user role li admin",),
    ),
    Command(
        "user link", "sign_on:link", "people", "link to a sign-on identity (administrators)",
        (JSON,), words="USER SUBJECT", words_min=2,
        examples=("danlu user link li 'https://sso.lab/realms/lab|4f1c'",),
    ),
    Command(
        "team create", "people:team_create", "people", "create a team (administrators)",
        (JSON,), words="TEAM", examples=("danlu team create nlp",),
    ),
    Command(
        "team list", "people:team_list", "people", "list teams and leaders", (JSON,), examples=("danlu team list",),
    ),
    Command(
        "team show", "people:team_show", "people", "show the members of a team",
        (JSON,), words="TEAM", examples=("danlu team show nlp",),
    ),
    Command(
        "team add", "people:team_add", "people", "add users (administrators), or invite them (leaders)",
        (JSON,), words="TEAM USER...", words_min=2, examples=("danlu team add nlp li wang",),
    ),
    Command(
        "team join", "people:team_join", "people", "accept an invitation into a team",
        (JSON,), words="TEAM", examples=("danlu team join nlp",),
    ),
    Command(
        "team leave", "people:team_leave", "people", "leave a team, or decline an invitation",
        (JSON,), words="TEAM", examples=("danlu team leave nlp",),
    ),
    Command(
        "team remove", "people:team_remove", "people", "remove users from a team (its leaders)",
        (JSON,), words="TEAM USER...", words_min=2, examples=("danlu team remove nlp wang",),
    ),
    Command(
        "team leader", "people:team_leader", "people", "add or remove leaders (administrators)",
        (Option("--remove", help="they stay members, but lead no longer"), JSON),
        words="TEAM USER...", words_min=2, examples=("danlu team leader nlp li", "danlu team leader nlp li --remove"),
    ),
    Command(
        "audit", "people:audit", "people", "show who changed what, when, and from where (administrators)",
        (
            Option("--who", metavar="USER", help="only actions of this user"),
            Option("--what", metavar="VERB", help="only this action: user.disable, or a whole kind: user, quota, job"),
            Option("--target", metavar="NAME", help="only actions on this target: a name, or the full id of a job"),
            Option("--limit", "-n", metavar="N", kind="count", help="number of entries; default 50"),
            Option("--before", metavar="CURSOR", help="continue after the last page"),
            JSON,
        ),
        examples=("danlu audit", "danlu audit --what user --target li -n 20", "danlu audit --who li --what job"),
    ),
)  # fmt: skip
