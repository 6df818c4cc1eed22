"""The table, in the terminal and as Markdown, and what the goals say about it."""

import os
import platform
from statistics import median

from .catalogue import LIMIT, OURS, PEER, POSTGRES, REDIS, SQLITE

HEADS = ["product", "version", "store", "settings", "bulk send/s", "process/s", "ours: send",
         "ours: process", "WAL bytes a unit", "commits a unit"]
LEFT = 4  # columns of words; the others are numbers


def rows(figures):
    """A line of cells for each product: by store, the fastest first."""
    order = {POSTGRES: 0, SQLITE: 1, REDIS: 2}
    ranked = sorted(figures.items(), key=lambda item: (order[item[0].store],
                                                       -median(item[1].process)))
    return [_row(product, said, figures) for product, said in ranked]


def _row(product, said, figures):
    process = f"{median(said.process):,.0f}"
    if said.unfinished:
        process += f" ({said.unfinished:,} done)"
    ours = _ours(product, figures)
    times = ["", ""]
    if ours and product.role != OURS:
        times = [_times(ours.send, said.send), _times(ours.process, said.process)]
    logged = [f"{median(said.wal):,.0f}", f"{median(said.commits):.3f}"] if said.wal else ["", ""]
    return [product.title, product.version(), product.store, product.settings,
            f"{median(said.send):,.0f}", process, *times, *logged]


def _ours(product, figures):
    """Our figures on the same store; for Redis, which we have none on, those on PostgreSQL."""
    store = POSTGRES if product.store == REDIS else product.store
    found = [said for p, said in figures.items() if p.role == OURS and p.store == store]
    return found[0] if found else None


def _times(ours, theirs):
    return f"{median(ours) / median(theirs):.2f}x"


def text(cells):
    """The table for a terminal."""
    lines = [HEADS, *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    return "\n".join("  ".join(cell.ljust(width) if i < LEFT else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
                     for line in lines)


def markdown(cells, goals, reasons, versions, args):
    """The same for a file, with what is needed to read it."""
    head = [f"| {' | '.join(HEADS)} |",
            f"|{'---|' * LEFT}{'---:|' * (len(HEADS) - LEFT)}"]
    body = [f"| {' | '.join(line)} |" for line in cells]
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Linux {platform.release()}"
    what = (f"{args.n:,} jobs that do nothing, with the payload `{{\"i\":n}}`, sent 1,000 at a time;"
            f" medians of {args.rounds} interleaved rounds. {machine}; {', '.join(versions)}.")
    if args.debug:
        what += " **Ours was built without optimisation: these figures mean nothing.**"
    missing = [f"- **{product.title} on {product.store}** is missing: {reason}"
               for product, reason in reasons.items()]
    parts = [what, "\n".join(head + body), "\n".join(f"- {goal}" for goal in goals),
             "\n".join(missing)]
    return "\n\n".join(part for part in parts if part) + "\n"


def goals(figures):
    """A sentence per goal, with a mark; none where somebody it needs is missing."""
    said = []
    for store, times, of_limit in [(POSTGRES, 1.5, 0.8), (SQLITE, 5.0, None)]:
        ours = [f for p, f in figures.items() if p.role == OURS and p.store == store]
        limit = [f for p, f in figures.items() if p.role == LIMIT and p.store == store]
        peers = [(p, f) for p, f in figures.items() if p.role == PEER and p.store == store]
        peers = [(p, f) for p, f in peers if p.durable]
        if ours and peers:
            said.append(_process_goal(store, ours[0], limit, peers, times, of_limit))
            said.append(_goal(f"{store}, bulk send", ours[0].send, *_best(peers, "send"), 1.0))
    return said


def _best(peers, what):
    product, said = max(peers, key=lambda item: median(getattr(item[1], what)))
    return product.title, getattr(said, what)


def _process_goal(store, ours, limit, peers, times, of_limit):
    title, theirs = _best(peers, "process")
    line = _goal(f"{store}, process", ours.process, title, theirs, times)
    if limit:
        part = median(ours.process) / median(limit[0].process)
        line += f"; {part:.2f} of the limit"
        if of_limit:
            line += f" (or {of_limit}) {_mark(part >= of_limit)}"
    return line


def _goal(name, ours, title, theirs, times):
    ratio = median(ours) / median(theirs)
    return f"{name}: {ratio:.2f}x of {title} (goal {times:g}x) {_mark(ratio >= times)}"


def _mark(good):
    return "✓" if good else "✗"
