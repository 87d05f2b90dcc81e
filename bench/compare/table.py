"""Tables in Markdown."""


def line(words):
    """Returns a line of a table."""
    return f"| {' | '.join(map(str, words))} |"


def head(words, sides=""):
    """Returns the head of a table. `sides` has an l or r for each column; by default all are left."""
    rules = ["--:" if side == "r" else "---" for side in sides or words]
    return [line(words), f"|{'|'.join(rules)}|"]
