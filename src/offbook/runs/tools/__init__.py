"""The test tools: what an agent, a script or a person asks for, one module each.

Each is one function with plain values in and a struct out; the command line, the MCP server and
Python call the same ones.
"""
