"""Episodes as HTML, in one style for pages and notebooks."""
