"""The edge: agents beside the data, and the hub between them and the coordinator; numpy, no Spark.

An agent sends a value only when it leaves its bound. The hub logs what comes from agents and what is
granted to them. The coordinator, elsewhere, reads that log.
"""

TOKEN_VARIABLE = "SLACKWATER_TOKEN"
"""The variable of the environment with the token that all who connect to a hub share."""
