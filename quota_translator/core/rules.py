"""The rules of a node by itself: its name, its fields' values, and its budgets."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from quota_translator.core.memo import ByIdentity
from quota_translator.core.names import COVER_FLAVOR, ROOT, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.tree import Tree
from quota_translator.core.verdict import (
    BUDGET_INVALID,
    NAME_INVALID,
    NODE_KIND_INVALID,
    Context,
    Violation,
    shown,
    shown_pair,
)
from quota_translator.core.world import Budget, FieldFault, QuotaNode

MAX_NAME: Final = 63  # of a label's value, into which the name is copied
MAX_BUDGETS: Final = 16
# Ten thousand times more than any fleet has, and small enough for every sum that Kueue makes.
MAX_AMOUNT: Final = Quantity.of(10**15)
_MAX_SUBDOMAIN: Final = 253
_RESERVED_NAME: Final = "default"
_RESERVED_ENDINGS: Final = (".rest", ".intake")
_RESERVED_PART: Final = ".m-"

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_BUDGET_PATH: Final = re.compile(r"spec\.budgets\[(\d+)\](?:\.(\w+))?")


def names(tree: Tree, _context: Context) -> Iterator[Violation]:
    """A name fits into a label's value, and is none of those that have a meaning of their own."""
    for name, node in tree.nodes.items():
        for subject, message in _name_faults(name):
            yield Violation(name, NAME_INVALID, subject, message, "metadata.name", node.source)


def _name_faults(name: str) -> Iterator[tuple[str, str]]:
    if len(name) > MAX_NAME:
        message = (
            f"the name has {len(name)} characters, and a label's value, into which it is copied, "
            f"takes at most {MAX_NAME}: choose a shorter one"
        )
        yield "length", message
    elif not is_subdomain(name):
        message = (
            f"the name {shown(name)} is not made of lowercase letters, digits, - and . with a "
            "letter or digit at the ends of each part"
        )
        yield "characters", message
    if name == _RESERVED_NAME:
        message = (
            f"the name {_RESERVED_NAME} is reserved: Kueue charges every job without a queue name "
            "to a LocalQueue called so; choose another name"
        )
        yield "reserved", message
    if name.endswith(_RESERVED_ENDINGS) or _RESERVED_PART in name:
        message = (
            f"the name {shown(name)} is reserved: names must not end in "
            f"{' or '.join(_RESERVED_ENDINGS)}, nor contain {_RESERVED_PART}; "
            "choose another name"
        )
        yield "reserved", message


def fields(tree: Tree, _context: Context) -> Iterator[Violation]:
    """Every field could be read."""
    for node in tree.nodes.values():
        for fault in node.faults:
            # An unreadable parent is told where parents are judged, and root has none to judge.
            if node.name == ROOT or not fault.path.startswith("spec.parentRef"):
                yield _fault(node, fault)


def _fault(node: QuotaNode, fault: FieldFault) -> Violation:
    subject, reason = fault.path, NODE_KIND_INVALID
    if fault.path.startswith("spec.budgets"):
        reason = BUDGET_INVALID
        subject = _budget_subject(node, fault.path)
    elif fault.path.startswith("metadata.name"):
        reason = NAME_INVALID
    message = f"{fault.path}: {fault.message}"
    return Violation(node.name, reason, subject, message, fault.path, node.source)


def _budget_subject(node: QuotaNode, path: str) -> str:
    """The pair and the field: unlike a path it stays the same when budgets change places."""
    match = _BUDGET_PATH.fullmatch(path)
    for budget in node.budgets if match else ():
        if match and budget.index == int(match[1]):
            return _subject(budget.pair, match[2] or "")
    return path


def budgets(tree: Tree, _context: Context) -> Iterator[Violation]:
    """Every budget is judged, whatever its position: its pair, then its amounts."""
    for node in tree.nodes.values():
        unread = {fault.path for fault in node.faults}
        if len(node.budgets) > MAX_BUDGETS:
            message = f"{len(node.budgets)} budgets, and a node takes at most {MAX_BUDGETS}"
            yield Violation(
                node.name, BUDGET_INVALID, "spec.budgets", message, "spec.budgets", node.source
            )
        judged = _judged_before(node.budgets) if not unread else _judged(node.budgets, unread)
        for budget, field, message in judged:
            yield _invalid(node, budget, field, message)


def _judged(budgets: tuple[Budget, ...], unread: set[str]) -> list[tuple[Budget, str, str]]:
    """What is wrong with which budget, in which field ("": in its place among the others)."""
    found: list[tuple[Budget, str, str]] = []
    seen: dict[Pair, int] = {}
    for budget in budgets:
        first = seen.setdefault(budget.pair, budget.index)
        if first != budget.index:
            found.append((budget, "", f"repeats the pair of spec.budgets[{first}]: keep one"))
        faults = (*_pair_faults(budget.resource, budget.flavor), *_amount_faults(budget, unread))
        found += [(budget, field, message) for field, message in faults]
    return found


def _judged_readable(budgets: tuple[Budget, ...]) -> list[tuple[Budget, str, str]]:
    return _judged(budgets, set())


_judged_before: Final = ByIdentity(_judged_readable)


@lru_cache(maxsize=4096)
def _pair_faults(resource: str, flavor: str) -> tuple[tuple[str, str], ...]:
    found = []
    if not is_qualified(resource):
        message = "which is not the name of a resource, such as nvidia.com/gpu"
        found.append(("resourceName", f"is {shown(resource)}, {message}"))
    if not is_subdomain(flavor):
        message = "which cannot be the name of a ResourceFlavor"
        found.append(("resourceFlavor", f"is {shown(flavor)}, {message}"))
    elif flavor == COVER_FLAVOR:
        message = "which is the controller's own: it has no budgets"
        found.append(("resourceFlavor", f"is {flavor}, {message}"))
    return tuple(found)


def _amount_faults(budget: Budget, unread: set[str]) -> Iterator[tuple[str, str]]:
    amounts = [
        (field, amount)
        for field, amount in (
            ("nominal", budget.nominal),
            ("borrowingLimit", budget.borrowing_limit),
            ("lendingLimit", budget.lending_limit),
        )
        if amount is not None and not (unread and _is_unread(budget, field, unread))
    ]
    for field, amount in amounts:
        fault = _amount_fault(budget.resource, amount)
        if fault:
            yield field, fault
    readable = dict(amounts) if budget.lending_limit is not None else {}
    if readable.keys() >= {"nominal", "lendingLimit"}:
        lending, nominal = readable["lendingLimit"], readable["nominal"]
        if lending > nominal >= ZERO:
            message = f"is {lending} and nominal is {nominal}: a share lends at most what it has"
            yield "lendingLimit", message


def expected(tree: Tree, _context: Context) -> Iterator[Violation]:
    """What root declares is a pair and an amount, once. (That it stands on root is a rule of
    kinds.)"""
    node = tree.nodes.get(ROOT)
    seen: dict[Pair, int] = {}
    for entry in node.expected if node is not None else ():
        path = f"spec.expectedCapacity[{entry.index}]"
        first = seen.setdefault(entry.pair, entry.index)
        faults = list(_pair_faults(*entry.pair))
        if first != entry.index:
            faults.append(("", f"repeats the pair of spec.expectedCapacity[{first}]: keep one"))
        if fault := _amount_fault(entry.pair.resource, entry.quantity):
            faults.append(("quantity", fault))
        for field, fault in faults:
            at = f"{path}.{field}" if field else path
            message = f"{at} ({shown_pair(entry.pair)}) {fault}"
            subject = _subject(entry.pair, f"expectedCapacity {field}".strip())
            yield Violation(ROOT, BUDGET_INVALID, subject, message, at, node.source if node else "")


def _is_unread(budget: Budget, field: str, unread: set[str]) -> bool:
    path = f"spec.budgets[{budget.index}]"
    return path in unread or f"{path}.{field}" in unread


def _amount_fault(resource: str, amount: Quantity) -> str:
    if amount < ZERO:
        return f"is {amount}: an amount cannot be negative"
    if amount > MAX_AMOUNT:
        decimal = shown_decimal(amount)
        return f"is {decimal}, above the maximum of {shown_decimal(MAX_AMOUNT)}"
    if not amount.is_whole and "/" in resource:
        return f"is {amount}: {resource} comes in whole units"
    return ""


def shown_decimal(amount: Quantity) -> str:
    """The amount as a plain decimal, rounded up: suffixes hide how large it is."""
    digits = str(amount.ceil())
    return digits if len(digits) <= 40 else f"{digits[:8]}… ({len(digits)} digits)"


@lru_cache(maxsize=4096)
def is_subdomain(name: str) -> bool:
    """A DNS-1123 subdomain: what Kubernetes takes as the name of most objects."""
    return len(name) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(name) is not None


@lru_cache(maxsize=1024)
def is_qualified(name: str) -> bool:
    """A resource's name: "cpu", or with a DNS prefix as in "nvidia.com/gpu"."""
    prefix, slash, last = name.rpartition("/")
    return (not slash or is_subdomain(prefix)) and _QUALIFIED.fullmatch(last) is not None


def _subject(pair: Pair, field: str) -> str:
    return f"{pair}: {field}" if field else str(pair)


def _invalid(node: QuotaNode, budget: Budget, field: str, message: str) -> Violation:
    path = f"spec.budgets[{budget.index}]" + (f".{field}" if field else "")
    return Violation(
        node.name,
        BUDGET_INVALID,
        _subject(budget.pair, field),
        f"{path} ({shown_pair(budget.pair)}) {message}",
        path,
        node.source,
    )
