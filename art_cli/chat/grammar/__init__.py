"""Grammars of turns: from a JSON schema to the tokens that are allowed next."""
