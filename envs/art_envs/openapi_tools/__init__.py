"""The operations of an HTTP API as tools, tasks from a file.

env.py          the env: it offers operations, and grades as `dataset` does
settings.py     what `env.args` may say
document.py     an OpenAPI document: read, looked up, its $refs followed
shapes.py       what its parts must be, checked before they are read
swagger.py      Swagger 2 becomes OpenAPI 3
operations.py   operations become tools, or a mistake with its place in the document
api.py          calls, each within a deadline
"""
