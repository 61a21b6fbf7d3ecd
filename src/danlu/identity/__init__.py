"""WHO SOMEBODY IS, ACCORDING TO OTHERS: conversations with identity providers.

What is here: `oidc` (an OpenID Connect provider: its metadata and keys, and what it says about a person).
May import: `danlu.errors`, and of other people's libraries what the extra `danlu[oidc]` installs.
Must not: know our accounts; be imported by a server that has no `[oidc]`.
"""
