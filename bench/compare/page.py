"""The benchmark pages: one folder for each machine, and the lists that lead to them."""

import json
import re

# The files of results with the page of each, and what follows the machine's name in its title.
PAGES = {
    "peers.json": ("README.md", ""),
    "overlap.json": ("overlap.md", ": overlap"),
    "recovery.json": ("recovery.md", ": recovery"),
    "inference.json": ("inference.md", ": inference"),
}
# The heading of the list in the index, which ends it.
HEADING = "## Machines"


def folder_name(machine):
    """Returns the name of a machine's folder: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")


def entries(folder):
    """Returns the pages in a folder: title, file and the run's description of each, by title."""
    found = []
    for name, (written, what) in PAGES.items():
        for results in folder.glob(f"*/{name}"):
            run = json.loads(results.read_text(encoding="utf-8"))
            found.append((run["title"] + what, f"{results.parent.name}/{written}", run["about"]))
    return sorted(found, key=lambda entry: entry[:2])


def index(text, pages):
    """Returns the index with the list of all pages in place of its last section."""
    head = text.split(f"\n{HEADING}\n", 1)[0].rstrip("\n") or "# Benchmarks"
    lines = [
        f"- [{title}]({name}),\n  taken {about['taken']} with {about['ringfold']}"
        for title, name, about in pages
    ]
    return "\n".join([head, "", HEADING, "", *lines, ""])


def summary(text, folder, pages):
    """Returns the book's summary with all pages below the line of their index. `folder` is the
    index's, relative to the summary."""
    kept = [line for line in text.splitlines() if not line.startswith("  - [") or
        f"]({folder}/" not in line]  # fmt: skip
    lines = []
    for line in kept:
        lines.append(line)
        if line.endswith(f"]({folder}/README.md)"):
            lines += [f"  - [{title}]({folder}/{name})" for title, name, _ in pages]
    return "\n".join([*lines, ""])


def write(results, folder, name="README.md"):
    """Writes a report as a page of this machine, and updates both lists. Returns the page."""
    page = folder / folder_name(results.title)
    results.write(page, name)
    pages = entries(folder)
    listed = folder / "README.md"
    before = listed.read_text(encoding="utf-8") if listed.exists() else ""
    listed.write_text(index(before, pages), encoding="utf-8")
    book = folder.parent / "SUMMARY.md"
    if book.exists():
        text = summary(book.read_text(encoding="utf-8"), folder.name, pages)
        book.write_text(text, encoding="utf-8")
    return page / name
