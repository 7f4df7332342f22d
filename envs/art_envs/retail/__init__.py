"""A shop's customer service.

data.py       users, products and orders
policy.py     what may be done: checks, and the document that the assistant reads
desk.py       the env: its tools
wishes.py     what a customer may want of one order, and whether it may be done
telling.py    from wishes to a goal: what they say when, and the right conversation
scenarios.py  whole customers: wishes put together by kind and level
"""
