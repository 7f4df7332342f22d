"""A shop's customer service.

data.py       users, products and orders
policy.py     what may be done: checks, and the document that the assistant reads
desk.py       the env: its tools
wishes.py     what a customer may want of one order, and whether it may be done
minds.py      what they may want instead, once they are asked to confirm it
telling.py    from wishes to a goal: what they say when, and the right conversation
scenarios.py  whole customers: wishes put together by kind and level
hands.py      a thing that does not work, in its customer's hands, and the rules about it
dual.py       the env `retail_dual`: what only the customer can do, asked for with a tool
"""
