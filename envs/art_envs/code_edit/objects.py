"""Small classes."""

from __future__ import annotations

from random import Random

from art_envs.code_edit.kinds import Kind, kind


def _account(rng: Random) -> list:
    steps = [[rng.choice(["put", "take"]), rng.randint(1, 60)] for _ in range(rng.randint(3, 6))]
    return [[rng.randint(0, 50)], *steps, ["read"]]


def _window(rng: Random) -> list:
    steps = [["add", rng.randint(0, 9)] for _ in range(rng.randint(2, 6))]
    return [[rng.randint(1, 3)], *steps]


def _stock(rng: Random) -> list:
    names = ("nail", "bolt")
    steps = [
        [rng.choice(["put", "take", "has"]), rng.choice(names), rng.randint(1, 5)]
        for _ in range(rng.randint(3, 7))
    ]
    return [[], *steps]


OBJECTS: tuple[Kind, ...] = (
    kind(
        "account",
        "An amount: put adds, take answers whether it had enough and if so takes, read tells it.",
        "Account Purse Balance",
        _account,
        is_class=True,
        python="""
        class f_:
            def __init__(self, x_):
                self.held = x_

            def put(self, n_):
                self.held += n_
                return self.held

            def take(self, n_):
                if n_ > self.held:
                    return False
                self.held -= n_
                return True

            def read(self):
                return self.held
        """,
        javascript="""
        class f_ {
          constructor(x_) {
            this.held = x_;
          }

          put(n_) {
            this.held += n_;
            return this.held;
          }

          take(n_) {
            if (n_ > this.held) return false;
            this.held -= n_;
            return true;
          }

          read() {
            return this.held;
          }
        }
        """,
    ),
    kind(
        "window",
        "Of what add is given, each answer is the sum of the last n_.",
        "Window Recent LastFew",
        _window,
        is_class=True,
        python="""
        class f_:
            def __init__(self, n_):
                self.most = n_
                self.kept = []

            def add(self, x_):
                self.kept.append(x_)
                self.kept = self.kept[-self.most :]
                return sum(self.kept)
        """,
        javascript="""
        class f_ {
          constructor(n_) {
            this.most = n_;
            this.kept = [];
          }

          add(x_) {
            this.kept.push(x_);
            if (this.kept.length > this.most) {
              this.kept.shift();
            }
            return this.kept.reduce((a_, b_) => a_ + b_, 0);
          }
        }
        """,
    ),
    kind(
        "stock",
        "How many there are by name: put adds, take takes what there is and answers how many, "
        "has answers whether there are so many.",
        "Stock Store Shelf",
        _stock,
        is_class=True,
        python="""
        class f_:
            def __init__(self):
                self.held = {}

            def put(self, s_, n_):
                self.held[s_] = self.held.get(s_, 0) + n_
                return self.held[s_]

            def take(self, s_, n_):
                x_ = min(n_, self.held.get(s_, 0))
                self.held[s_] = self.held.get(s_, 0) - x_
                return x_

            def has(self, s_, n_):
                return self.held.get(s_, 0) >= n_
        """,
        javascript="""
        class f_ {
          constructor() {
            this.held = {};
          }

          put(s_, n_) {
            this.held[s_] = (this.held[s_] || 0) + n_;
            return this.held[s_];
          }

          take(s_, n_) {
            const x_ = Math.min(n_, this.held[s_] || 0);
            this.held[s_] = (this.held[s_] || 0) - x_;
            return x_;
          }

          has(s_, n_) {
            return (this.held[s_] || 0) >= n_;
          }
        }
        """,
    ),
)
