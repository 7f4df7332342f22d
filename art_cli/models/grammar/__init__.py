"""What a turn may be: from a JSON schema to the tokens that are allowed next."""
