"""An exploration of report and allotment: `python -m tests.across_model --changes 2`.

Two members, one parent. What they do with reports and allotments is asked of `streams.across` itself, so that no second
copy of the rules is explored.
"""
