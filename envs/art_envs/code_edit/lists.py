"""Functions on lists."""

from __future__ import annotations

from random import Random

from art_envs.code_edit.kinds import Kind, kind, or_default


def _list(rng: Random, least: int = 0) -> list[int]:
    return [rng.randint(-5, 9) for _ in range(rng.randint(least, 6))]


def _sorted_two(rng: Random) -> list:
    return [sorted(_list(rng)), sorted(_list(rng))]


def _find(rng: Random) -> list:
    xs = _list(rng, 1)
    return [xs, rng.choice([*xs, xs[-1], 20])]


def _above(rng: Random) -> list:
    xs = _list(rng, 2)
    return [xs, rng.choice(xs)]


LISTS: tuple[Kind, ...] = (
    kind(
        "count_above",
        "How many of xs_ are more than limit_.",
        "count_above num_over how_many_above",
        _above,
        python=(
            """
            def f_(xs_, limit_):
                out_ = 0
                for y_ in xs_:
                    if y_ > limit_:
                        out_ += 1
                return out_
            """,
            """
            def f_(xs_, limit_):
                return sum(1 for y_ in xs_ if y_ > limit_)
            """,
        ),
        javascript=(
            """
            function f_(xs_, limit_) {
              let out_ = 0;
              for (const y_ of xs_) {
                if (y_ > limit_) out_ += 1;
              }
              return out_;
            }
            """,
            """
            function f_(xs_, limit_) {
              return xs_.filter((y_) => y_ > limit_).length;
            }
            """,
        ),
        bash="""
        f_() {
          local xs_=$1 limit_=$2 y_ out_=0
          for y_ in $xs_; do
            if (( y_ > limit_ )); then out_=$(( out_ + 1 )); fi
          done
          REPLY=$out_
        }
        """,
    ),
    kind(
        "largest",
        "The largest of xs_, or n_ where there is none.",
        "largest_of top_of peak",
        or_default(lambda rng: [_list(rng), rng.randint(-9, -6)]),
        python="""
        def f_(xs_, n_=0):
            if not xs_:
                return n_
            best_ = xs_[0]
            for y_ in xs_:
                if y_ > best_:
                    best_ = y_
            return best_
        """,
        javascript="""
        function f_(xs_, n_ = 0) {
          if (xs_.length === 0) return n_;
          let best_ = xs_[0];
          for (const y_ of xs_) {
            if (y_ > best_) best_ = y_;
          }
          return best_;
        }
        """,
        bash="""
        f_() {
          local xs_=$1 n_=${2:-0} y_ best_=
          for y_ in $xs_; do
            if [[ -z $best_ ]] || (( y_ > best_ )); then best_=$y_; fi
          done
          REPLY=${best_:-$n_}
        }
        """,
        own={"n": ("fallback", "otherwise")},
    ),
    kind(
        "find",
        "The index of the first x_ in xs_, or -1.",
        "find index_of locate",
        _find,
        python=(
            """
            def f_(xs_, x_):
                for i_, y_ in enumerate(xs_):
                    if y_ == x_:
                        return i_
                return -1
            """,
            """
            def f_(xs_, x_):
                for i_ in range(len(xs_)):
                    if xs_[i_] == x_:
                        return i_
                return -1
            """,
        ),
        javascript="""
        function f_(xs_, x_) {
          for (let i_ = 0; i_ < xs_.length; i_++) {
            if (xs_[i_] === x_) return i_;
          }
          return -1;
        }
        """,
        bash="""
        f_() {
          local xs_=$1 x_=$2 y_ i_=0
          REPLY=-1
          for y_ in $xs_; do
            if (( y_ == x_ )); then REPLY=$i_; return; fi
            i_=$(( i_ + 1 ))
          done
        }
        """,
    ),
    kind(
        "running_totals",
        "The sums of the first one, two, three ... of xs_.",
        "running_totals cumulative totals_so_far",
        lambda rng: [_list(rng)],
        python="""
        def f_(xs_):
            total_ = 0
            out_ = []
            for y_ in xs_:
                total_ += y_
                out_.append(total_)
            return out_
        """,
        javascript="""
        function f_(xs_) {
          let total_ = 0;
          const out_ = [];
          for (const y_ of xs_) {
            total_ += y_;
            out_.push(total_);
          }
          return out_;
        }
        """,
        bash="""
        f_() {
          local xs_=$1 y_ total_=0 out_=
          for y_ in $xs_; do
            total_=$(( total_ + y_ ))
            out_="$out_ $total_"
          done
          REPLY=${out_:1}
        }
        """,
        own={"total": ("total", "so_far", "running")},
    ),
    kind(
        "sort",
        "A new list of xs_ in rising order.",
        "ordered sorted_copy in_order",
        lambda rng: [_list(rng)],
        python="""
        def f_(xs_):
            out_ = list(xs_)
            for i_ in range(len(out_)):
                for j_ in range(i_ + 1, len(out_)):
                    if out_[j_] < out_[i_]:
                        out_[i_], out_[j_] = out_[j_], out_[i_]
            return out_
        """,
        javascript=(
            """
            function f_(xs_) {
              const out_ = [...xs_];
              for (let i_ = 0; i_ < out_.length; i_++) {
                for (let j_ = i_ + 1; j_ < out_.length; j_++) {
                  if (out_[j_] < out_[i_]) {
                    [out_[i_], out_[j_]] = [out_[j_], out_[i_]];
                  }
                }
              }
              return out_;
            }
            """,
            """
            function f_(xs_) {
              return [...xs_].sort((a_, b_) => a_ - b_);
            }
            """,
        ),
    ),
    kind(
        "merge",
        "One list in rising order of xs_ and ys_, which are so already.",
        "merge merged combine",
        _sorted_two,
        python="""
        def f_(xs_, ys_):
            out_ = []
            i_ = 0
            for y_ in ys_:
                for x_ in xs_[i_:]:
                    if x_ > y_:
                        break
                    out_.append(x_)
                    i_ += 1
                out_.append(y_)
            return out_ + xs_[i_:]
        """,
        javascript="""
        function f_(xs_, ys_) {
          const out_ = [];
          let i_ = 0;
          for (const y_ of ys_) {
            for (const x_ of xs_.slice(i_)) {
              if (x_ > y_) break;
              out_.push(x_);
              i_ += 1;
            }
            out_.push(y_);
          }
          return out_.concat(xs_.slice(i_));
        }
        """,
    ),
    kind(
        "rotate",
        "The list xs_ with its first n_ at the end.",
        "rotate turned shifted",
        or_default(lambda rng: [_list(rng), rng.randint(0, 8)]),
        python="""
        def f_(xs_, n_=1):
            if not xs_:
                return []
            i_ = n_ % len(xs_)
            return xs_[i_:] + xs_[:i_]
        """,
        javascript="""
        function f_(xs_, n_ = 1) {
          if (xs_.length === 0) return [];
          const i_ = n_ % xs_.length;
          return [...xs_.slice(i_), ...xs_.slice(0, i_)];
        }
        """,
    ),
    kind(
        "chunks",
        "The list xs_ in pieces of n_, of which the last may be shorter.",
        "chunks pieces split_up",
        or_default(lambda rng: [_list(rng, 1), rng.randint(1, 4)]),
        python=(
            """
            def f_(xs_, n_=2):
                return [xs_[i_ : i_ + n_] for i_ in range(0, len(xs_), n_)]
            """,
            """
            def f_(xs_, n_=2):
                out_ = []
                for i_, y_ in enumerate(xs_):
                    if i_ % n_ == 0:
                        out_.append([])
                    out_[-1].append(y_)
                return out_
            """,
        ),
        javascript="""
        function f_(xs_, n_ = 2) {
          const out_ = [];
          xs_.forEach((y_, i_) => {
            if (i_ % n_ === 0) out_.push([]);
            out_[out_.length - 1].push(y_);
          });
          return out_;
        }
        """,
    ),
    kind(
        "distinct",
        "The list xs_ without those that stood in it before.",
        "distinct without_repeats once_each",
        lambda rng: [[rng.randint(0, 3) for _ in range(rng.randint(0, 7))]],
        python="""
        def f_(xs_):
            out_ = []
            for y_ in xs_:
                if y_ not in out_:
                    out_.append(y_)
            return out_
        """,
        javascript="""
        function f_(xs_) {
          const out_ = [];
          for (const y_ of xs_) {
            if (!out_.includes(y_)) out_.push(y_);
          }
          return out_;
        }
        """,
        bash="""
        f_() {
          local xs_=$1 y_ out_=
          for y_ in $xs_; do
            if [[ " $out_ " != *" $y_ "* ]]; then out_="$out_ $y_"; fi
          done
          REPLY=${out_:1}
        }
        """,
    ),
    kind(
        "span",
        "The largest of xs_ less the smallest, 0 where there is none.",
        "span_of spread extent",
        lambda rng: [_list(rng)],
        python="""
        def f_(xs_):
            if not xs_:
                return 0
            return max(xs_) - min(xs_)
        """,
        javascript="""
        function f_(xs_) {
          if (xs_.length === 0) return 0;
          return Math.max(...xs_) - Math.min(...xs_);
        }
        """,
        bash="""
        f_() {
          local xs_=$1 y_ low_= high_=
          for y_ in $xs_; do
            if [[ -z $low_ ]] || (( y_ < low_ )); then low_=$y_; fi
            if [[ -z $high_ ]] || (( y_ > high_ )); then high_=$y_; fi
          done
          REPLY=$(( high_ - low_ ))
        }
        """,
    ),
)
