"""Functions on numbers."""

from __future__ import annotations

from random import Random

from art_envs.code_edit.kinds import Kind, kind, or_default


def _two(rng: Random) -> list:
    return [rng.randint(-9, 9), rng.randint(-9, 9)]


def _near(rng: Random) -> list:
    a = rng.randint(0, 20)
    return [a, a + rng.choice([-3, -1, 0, 0, 1, 3])]


def _clamp(rng: Random) -> list:
    low = rng.randint(-5, 5)
    high = low + rng.randint(1, 9)
    return [rng.choice([low - 2, low, low + 1, high, high + 3, rng.randint(-9, 20)]), low, high]


NUMBERS: tuple[Kind, ...] = (
    kind(
        "larger",
        "The larger of a_ and b_.",
        "larger maximum bigger",
        _two,
        short=True,
        python=(
            """
            def f_(a_, b_):
                return a_ if a_ > b_ else b_
            """,
            """
            def f_(a_, b_):
                if a_ < b_:
                    return b_
                return a_
            """,
        ),
        javascript="""
        function f_(a_, b_) {
          return a_ > b_ ? a_ : b_;
        }
        """,
        bash="""
        f_() {
          local a_=$1 b_=$2
          REPLY=$(( a_ > b_ ? a_ : b_ ))
        }
        """,
    ),
    kind(
        "smaller",
        "The smaller of a_ and b_.",
        "smaller lesser lowest",
        _two,
        short=True,
        python=(
            """
            def f_(a_, b_):
                return a_ if a_ < b_ else b_
            """,
            """
            def f_(a_, b_):
                if a_ > b_:
                    return b_
                return a_
            """,
        ),
        javascript="""
        function f_(a_, b_) {
          if (a_ < b_) return a_;
          return b_;
        }
        """,
        bash="""
        f_() {
          local a_=$1 b_=$2
          REPLY=$b_
          if (( a_ < b_ )); then REPLY=$a_; fi
        }
        """,
    ),
    kind(
        "sum",
        "The sum of a_ and b_.",
        "sum_of plus together",
        _two,
        short=True,
        python="""
        def f_(a_, b_):
            return a_ + b_
        """,
        javascript="""
        function f_(a_, b_) {
          return a_ + b_;
        }
        """,
    ),
    kind(
        "difference",
        "The difference of a_ and b_, a_ less b_.",
        "difference minus less",
        _two,
        short=True,
        python="""
        def f_(a_, b_):
            return a_ - b_
        """,
        javascript="""
        function f_(a_, b_) {
          return a_ - b_;
        }
        """,
    ),
    kind(
        "product",
        "The product of a_ and b_.",
        "product times multiply",
        _two,
        short=True,
        python="""
        def f_(a_, b_):
            return a_ * b_
        """,
        javascript="""
        function f_(a_, b_) {
          return a_ * b_;
        }
        """,
    ),
    kind(
        "reaches",
        "Whether a_ is at least b_.",
        "reaches enough suffices",
        _near,
        short=True,
        python=(
            """
            def f_(a_, b_):
                return a_ >= b_
            """,
            """
            def f_(a_, b_):
                return b_ <= a_
            """,
            """
            def f_(a_, b_):
                return not a_ < b_
            """,
        ),
        javascript="""
        function f_(a_, b_) {
          return a_ >= b_;
        }
        """,
    ),
    kind(
        "exceeds",
        "Whether a_ is more than b_.",
        "exceeds beyond outruns",
        _near,
        short=True,
        python=(
            """
            def f_(a_, b_):
                return a_ > b_
            """,
            """
            def f_(a_, b_):
                return b_ < a_
            """,
            """
            def f_(a_, b_):
                return not a_ <= b_
            """,
        ),
        javascript="""
        function f_(a_, b_) {
          return a_ > b_;
        }
        """,
    ),
    kind(
        "equals",
        "Whether a_ is equal to b_.",
        "equals matches same",
        _near,
        short=True,
        python="""
        def f_(a_, b_):
            return a_ == b_
        """,
        javascript="""
        function f_(a_, b_) {
          return a_ === b_;
        }
        """,
    ),
    kind(
        "clamp",
        "Return x_, but no less than low_ and no more than high_.",
        "clamp hold_within limit_to",
        _clamp,
        python=(
            """
            def f_(x_, low_, high_):
                if x_ < low_:
                    return low_
                if x_ > high_:
                    return high_
                return x_
            """,
            """
            def f_(x_, low_, high_):
                return min(max(x_, low_), high_)
            """,
        ),
        javascript=(
            """
            function f_(x_, low_, high_) {
              if (x_ < low_) return low_;
              if (x_ > high_) return high_;
              return x_;
            }
            """,
            """
            function f_(x_, low_, high_) {
              return Math.min(Math.max(x_, low_), high_);
            }
            """,
        ),
        bash="""
        f_() {
          local x_=$1 low_=$2 high_=$3
          REPLY=$x_
          if (( x_ < low_ )); then REPLY=$low_; fi
          if (( x_ > high_ )); then REPLY=$high_; fi
        }
        """,
    ),
    kind(
        "price",
        "The price x_ less n_ percent, rounded down, but no less than low_.",
        "price reduced discounted",
        or_default(
            lambda rng: [rng.randint(0, 400), rng.choice([0, 5, 25, 50, 90]), rng.randint(5, 90)]
        ),
        python=(
            """
            def f_(x_, n_, low_=0):
                total_ = x_ * (100 - n_) // 100
                return max(total_, low_)
            """,
            """
            def f_(x_, n_, low_=0):
                total_ = x_ * (100 - n_) // 100
                if total_ < low_:
                    return low_
                return total_
            """,
        ),
        javascript="""
        function f_(x_, n_, low_ = 0) {
          const total_ = Math.floor((x_ * (100 - n_)) / 100);
          return Math.max(total_, low_);
        }
        """,
        bash="""
        f_() {
          local x_=$1 n_=$2 low_=${3:-0}
          REPLY=$(( x_ * (100 - n_) / 100 ))
          if (( REPLY < low_ )); then REPLY=$low_; fi
        }
        """,
        own={"x": ("price", "amount"), "n": ("percent", "rate")},
    ),
)
