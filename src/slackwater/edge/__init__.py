"""The edge: agents beside the data, and the hub between them and the coordinator; numpy, no Spark.

An agent sends a value only when it leaves its bound. The hub logs what comes from agents and what is
granted to them. The coordinator, elsewhere, reads that log.
"""
