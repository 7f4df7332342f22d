# The habits: what one types many times a day.
.PHONY: check test fmt

PYTHON = .venv/bin/python

check:  ## linters, types, and the tests that a change touches: under a minute
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright
	$(PYTHON) scripts/touched.py

test:  ## all fast tests
	scripts/test

fmt:  ## format, and sort imports
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
