"""Small faults that somebody could make: each changes one place of one function's syntax tree."""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

_COMPARE: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_BINARY: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "sorted": "list", "ceil32": "int32", "ceil64": "int64", "int32": "ceil32"}


class Mutant(NamedTuple):
    """One fault in a module, known by its number: a tree for each would fill the memory."""

    number: int
    function: str
    """Qualified name of the function that is changed."""
    line: int
    change: str
    """What is changed, before and after, as source text."""


def mutants(source: str) -> Iterator[Mutant]:
    """Give every mutant of a module's functions. What a module does when imported is not changed."""
    for number, (name, node, field, value) in enumerate(_all(ast.parse(source))):
        original = getattr(node, field)
        before = _text(node, field)
        setattr(node, field, value)
        after = _text(node, field)
        setattr(node, field, original)
        if before != after:
            yield Mutant(number, name, node.lineno, f"{before} -> {after}")


def mutated(source: str, mutant: Mutant) -> ast.Module:
    """Give the module with the fault in it."""
    tree = ast.parse(source)
    for number, (_, node, field, value) in enumerate(_all(tree)):
        if number == mutant.number:
            setattr(node, field, value)
            return ast.fix_missing_locations(tree)
    raise ValueError(f"the source has no mutant {mutant.number}")


def _all(tree: ast.Module) -> list[tuple[str, Any, str, Any]]:
    return [(name, *place) for name, function in functions(tree) for place in places(function)]


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Give the functions and methods of a module by qualified name."""
    for each in tree.body:
        if isinstance(each, ast.FunctionDef):
            yield each.name, each
        elif isinstance(each, ast.ClassDef):
            for method in each.body:
                if isinstance(method, ast.FunctionDef):
                    yield f"{each.name}.{method.name}", method


def places(function: ast.FunctionDef) -> Iterator[tuple[Any, str, Any]]:
    """Give (node, field, other value) of everything that can be changed in a function's body."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    for statement in body:
        yield from _walk(statement)


def _walk(node: ast.AST) -> Iterator[tuple[Any, str, Any]]:
    yield from _changes(node)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _changes(node: ast.AST) -> Iterator[tuple[Any, str, Any]]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            for other in _COMPARE[type(operator)]:
                yield node, "ops", [*node.ops[:index], other(), *node.ops[index + 1 :]]
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _BINARY:
        yield node, "op", _BINARY[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        yield node, "op", ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif isinstance(node, ast.Constant):
        yield from _constant(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node, "op", ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield node, "func", ast.Name(_CALLS[node.func.id], ast.Load())
    yield from _control(node)


def _constant(node: ast.Constant) -> Iterator[tuple[Any, str, Any]]:
    value = node.value
    if isinstance(value, bool):
        yield node, "value", not value
    elif isinstance(value, (int, float)):
        yield node, "value", value + 1
        if value:
            yield node, "value", value - 1
    elif isinstance(value, str) and value:
        yield node, "value", f"~{value}"


def _control(node: ast.AST) -> Iterator[tuple[Any, str, Any]]:
    """Turn conditions around, and leave out statements that only have an effect."""
    if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not isinstance(node.test, ast.Compare):
        yield node, "test", ast.UnaryOp(ast.Not(), node.test)
    for field in ("body", "orelse"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            for index, statement in enumerate(block):
                if isinstance(statement, (ast.AugAssign, ast.Continue, ast.Break)) or _is_call(statement):
                    yield node, field, [*block[:index], ast.Pass(), *block[index + 1 :]]


def _is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def _text(node: ast.AST, field: str) -> str:
    shown = getattr(node, field) if field in ("test", "body", "orelse") else node
    lines = [ast.unparse(each) for each in shown] if isinstance(shown, list) else [ast.unparse(shown)]
    return " ".join("; ".join(lines).split())
