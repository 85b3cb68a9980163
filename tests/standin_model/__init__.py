"""An exhaustive exploration of the stand-in's protocol: `python -m tests.standin_model --faults 4`.

Two agents, one hub, one native HPA controller and one API server with its admission fence. What the agents and the hub
do is asked of `reconciler.agents.standin.protocol` itself, so that no second copy of the rules is explored.
"""
