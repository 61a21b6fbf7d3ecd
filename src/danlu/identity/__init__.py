"""IDENTITY ACCORDING TO A PROVIDER: conversations with identity providers.

oidc (an OpenID Connect provider: its metadata and keys, and its statements about a person).

May import: errors, and the libraries of the extra `danlu[oidc]`.
Must not: know accounts; be imported by a server without `[oidc]`.
"""
