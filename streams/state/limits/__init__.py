"""fleethpa's own limits on a write that an evaluation wants, one file each; `LIMITS` in
`streams/attachments.py` has them in their order.
"""
