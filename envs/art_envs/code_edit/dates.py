"""Functions on times and dates."""

from __future__ import annotations

from random import Random

from art_envs.code_edit.kinds import Kind, kind


def _spans(rng: Random) -> list:
    a, c = rng.randint(0, 12), rng.randint(0, 12)
    return [a, a + rng.randint(1, 6), c, c + rng.randint(1, 6)]


def _date(rng: Random) -> list:
    return [rng.choice([1900, 1999, 2000, 2023, 2024]), rng.randint(1, 12), rng.randint(1, 28)]


DATES: tuple[Kind, ...] = (
    kind(
        "overlap",
        "Whether the spans from a_ until before b_ and from x_ until before y_ overlap.",
        "overlap collide intersect",
        _spans,
        python=(
            """
            def f_(a_, b_, x_, y_):
                return a_ < y_ and x_ < b_
            """,
            """
            def f_(a_, b_, x_, y_):
                if b_ <= x_ or y_ <= a_:
                    return False
                return True
            """,
        ),
        javascript="""
        function f_(a_, b_, x_, y_) {
          return a_ < y_ && x_ < b_;
        }
        """,
        bash="""
        f_() {
          local a_=$1 b_=$2 x_=$3 y_=$4
          REPLY=false
          if (( a_ < y_ && x_ < b_ )); then REPLY=true; fi
        }
        """,
        own={
            "a": ("start", "begin"),
            "b": ("end", "stop"),
            "x": ("from_other",),
            "y": ("to_other",),
        },
    ),
    kind(
        "is_leap",
        "Whether x_ is a leap year.",
        "is_leap has_leap_day leap_year",
        lambda rng: [
            rng.choice([1900, 2000, 2100, 2024, 2023, 1996, 2400, rng.randint(1800, 2200)])
        ],
        python=(
            """
            def f_(x_):
                return x_ % 4 == 0 and (x_ % 100 != 0 or x_ % 400 == 0)
            """,
            """
            def f_(x_):
                if x_ % 400 == 0:
                    return True
                if x_ % 100 == 0:
                    return False
                return x_ % 4 == 0
            """,
        ),
        javascript="""
        function f_(x_) {
          return x_ % 4 === 0 && (x_ % 100 !== 0 || x_ % 400 === 0);
        }
        """,
        bash="""
        f_() {
          local x_=$1
          REPLY=false
          if (( x_ % 4 == 0 && x_ % 100 != 0 )); then
            REPLY=true
          fi
          if (( x_ % 400 == 0 )); then REPLY=true; fi
        }
        """,
        own={"x": ("year", "y")},
    ),
    kind(
        "day_of_year",
        "The number of the day in its year, 1 for the first of January.",
        "day_of_year day_number nth_day",
        _date,
        python="""
        def f_(x_, j_, n_):
            out_ = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
            total_ = n_
            for i_ in range(j_ - 1):
                total_ += out_[i_]
            if j_ > 2 and x_ % 4 == 0 and (x_ % 100 != 0 or x_ % 400 == 0):
                total_ += 1
            return total_
        """,
        javascript="""
        function f_(x_, j_, n_) {
          const out_ = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
          let total_ = n_;
          for (let i_ = 0; i_ < j_ - 1; i_++) {
            total_ += out_[i_];
          }
          if (j_ > 2 && x_ % 4 === 0 && (x_ % 100 !== 0 || x_ % 400 === 0)) {
            total_ += 1;
          }
          return total_;
        }
        """,
        own={"x": ("year",), "j": ("month",), "n": ("day",), "out": ("lengths", "days")},
    ),
    kind(
        "clock",
        "A number of minutes as hours:minutes, the minutes with two digits.",
        "clock as_hours show_minutes",
        lambda rng: [rng.choice([0, 5, 59, 60, 61, 125, rng.randint(0, 900)])],
        python=(
            """
            def f_(n_):
                return f"{n_ // 60}:{n_ % 60:02d}"
            """,
            """
            def f_(n_):
                x_, d_ = divmod(n_, 60)
                return str(x_) + ":" + str(d_).rjust(2, "0")
            """,
        ),
        javascript="""
        function f_(n_) {
          const x_ = Math.floor(n_ / 60);
          const d_ = n_ % 60;
          return x_ + ":" + String(d_).padStart(2, "0");
        }
        """,
        bash="""
        f_() {
          local n_=$1 x_ d_
          x_=$(( n_ / 60 ))
          d_=$(( n_ % 60 ))
          if (( d_ < 10 )); then d_=0$d_; fi
          REPLY=$x_:$d_
        }
        """,
        own={"n": ("minutes", "duration"), "x": ("hours", "h"), "d": ("rest", "m")},
    ),
)
