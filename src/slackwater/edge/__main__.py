"""``python -m slackwater.edge agent|hub``: the commands of the edge without the rest of Slackwater."""

from slackwater.edge.commands import app

if __name__ == "__main__":
    app(prog_name="python -m slackwater.edge")
