"""The command line: one module a verb, each imported only when it is called.

Only this package prints. A verb computes a value with the layers below, renders it, and hands
the text to `cli.output`; `cli.main` turns failures into exit statuses.
"""
