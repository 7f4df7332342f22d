"""An airline's service desk: fourteen tools that do what they are told, and a policy.

database.py   who flies where, when and for how much
actions.py    what the writing tools do to the records
search.py     which flights go from here to there
policy.py     every rule as a sentence and as code
document.py   the policy as the assistant reads it
customer.py   somebody at the desk, and one thing that they want
requests.py   what they may ask about their reservations
bookings.py   new bookings, questions, and what is beyond the desk
minds.py      what customers want instead, once they are asked to confirm
scenarios.py  the goals of all splits, with the right conversations
desk.py       the env
"""
