"""Functions on texts."""

from __future__ import annotations

from random import Random

from art_envs.code_edit.kinds import Kind, kind, or_default

WORDS = ("red", "Blue", "a", "moss", "owl", "Lake", "fir", "stone", "noon", "level", "it", "x")


def _words(rng: Random, least: int = 1) -> list[str]:
    return [rng.choice(WORDS) for _ in range(rng.randint(least, 5))]


def _duration(rng: Random) -> list:
    hours, minutes = rng.randint(0, 12), rng.randint(0, 59)
    return [rng.choice([f"{hours}h{minutes}m", f"{hours}h", f"{minutes}m"])]


def _palindrome(rng: Random) -> list:
    half = "".join(rng.choices("abc", k=rng.randint(1, 3)))
    return [
        rng.choice([half + half[::-1], half + "d" + half[::-1], half + rng.choice("xyz") + half])
    ]


TEXTS: tuple[Kind, ...] = (
    kind(
        "pad",
        "The text s_ with as many c_ in front as make it n_ long.",
        "pad_left padded fill",
        or_default(lambda rng: [rng.choice(WORDS), rng.randint(0, 8), rng.choice("0.*")]),
        python=(
            """
            def f_(s_, n_, c_=" "):
                d_ = n_ - len(s_)
                if d_ <= 0:
                    return s_
                return c_ * d_ + s_
            """,
            """
            def f_(s_, n_, c_=" "):
                return c_ * max(0, n_ - len(s_)) + s_
            """,
        ),
        javascript="""
        function f_(s_, n_, c_ = " ") {
          const d_ = n_ - s_.length;
          if (d_ <= 0) return s_;
          return c_.repeat(d_) + s_;
        }
        """,
        bash="""
        f_() {
          local s_=$1 n_=$2 c_=${3:- } i_ d_
          d_=$(( n_ - ${#s_} ))
          REPLY=$s_
          for (( i_ = 0; i_ < d_; i_++ )); do REPLY=$c_$REPLY; done
        }
        """,
        own={"n": ("width", "size")},
    ),
    kind(
        "initials",
        "The first letters of the words of s_, in upper case.",
        "initials monogram short_form",
        lambda rng: [" ".join(_words(rng))],
        python=(
            """
            def f_(s_):
                return "".join(w_[0].upper() for w_ in s_.split())
            """,
            """
            def f_(s_):
                out_ = ""
                for w_ in s_.split():
                    out_ += w_[0]
                return out_.upper()
            """,
        ),
        javascript="""
        function f_(s_) {
          return s_.split(" ").map((w_) => w_[0].toUpperCase()).join("");
        }
        """,
        bash="""
        f_() {
          local s_=$1 w_ out_=
          for w_ in $s_; do out_=$out_${w_:0:1}; done
          REPLY=${out_^^}
        }
        """,
    ),
    kind(
        "duration",
        "The minutes of a text such as 1h20m, 3h or 5m.",
        "parse_duration minutes_of read_duration",
        _duration,
        python="""
        def f_(s_):
            total_ = 0
            x_ = 0
            for c_ in s_:
                if c_.isdigit():
                    x_ = x_ * 10 + int(c_)
                else:
                    total_ += x_ * 60 if c_ == "h" else x_
                    x_ = 0
            return total_
        """,
        javascript="""
        function f_(s_) {
          let total_ = 0;
          let x_ = 0;
          for (const c_ of s_) {
            if (c_ >= "0" && c_ <= "9") {
              x_ = x_ * 10 + Number(c_);
            } else {
              total_ += c_ === "h" ? x_ * 60 : x_;
              x_ = 0;
            }
          }
          return total_;
        }
        """,
        own={"x": ("number", "digits")},
    ),
    kind(
        "pairs",
        "What stands in s_ as name=value;name=value, by name.",
        "parse_pairs read_settings to_settings",
        lambda rng: [
            rng.choice(["; ", ";"]).join(
                f"{w}={rng.randint(0, 99)}" for w in dict.fromkeys(_words(rng))
            )
        ],
        python="""
        def f_(s_):
            out_ = {}
            for w_ in s_.split(";"):
                a_, b_ = w_.split("=", 1)
                out_[a_.strip()] = b_.strip()
            return out_
        """,
        javascript="""
        function f_(s_) {
          const out_ = {};
          for (const w_ of s_.split(";")) {
            const [a_, b_] = w_.split("=");
            out_[a_.trim()] = b_.trim();
          }
          return out_;
        }
        """,
        own={"a": ("name", "key"), "b": ("value", "given")},
    ),
    kind(
        "shift",
        "The small letters of s_ moved n_ on in the alphabet, after z comes a; others as they are.",
        "shift_letters caesar moved_on",
        or_default(
            lambda rng: [rng.choice(WORDS) + rng.choice(["", "z", " zoo"]), rng.randint(2, 25)]
        ),
        python="""
        def f_(s_, n_=1):
            out_ = ""
            for c_ in s_:
                if "a" <= c_ <= "z":
                    c_ = chr((ord(c_) - 97 + n_) % 26 + 97)
                out_ += c_
            return out_
        """,
        javascript="""
        function f_(s_, n_ = 1) {
          let out_ = "";
          for (const c_ of s_) {
            if (c_ >= "a" && c_ <= "z") {
              out_ += String.fromCharCode(((c_.charCodeAt(0) - 97 + n_) % 26) + 97);
            } else {
              out_ += c_;
            }
          }
          return out_;
        }
        """,
    ),
    kind(
        "longest",
        "The longest word of ws_, the first of those that are equally long.",
        "longest_word widest longest_of",
        lambda rng: [_words(rng)],
        python="""
        def f_(ws_):
            best_ = ""
            for w_ in ws_:
                if len(w_) > len(best_):
                    best_ = w_
            return best_
        """,
        javascript="""
        function f_(ws_) {
          let best_ = "";
          for (const w_ of ws_) {
            if (w_.length > best_.length) best_ = w_;
          }
          return best_;
        }
        """,
        bash="""
        f_() {
          local ws_=$1 w_ best_=
          for w_ in $ws_; do
            if (( ${#w_} > ${#best_} )); then best_=$w_; fi
          done
          REPLY=$best_
        }
        """,
    ),
    kind(
        "palindrome",
        "Whether s_ reads the same backwards.",
        "is_palindrome mirrors same_backwards",
        _palindrome,
        python=(
            """
            def f_(s_):
                for i_ in range(len(s_) // 2):
                    if s_[i_] != s_[len(s_) - 1 - i_]:
                        return False
                return True
            """,
            """
            def f_(s_):
                return s_ == s_[::-1]
            """,
        ),
        javascript="""
        function f_(s_) {
          for (let i_ = 0; i_ < s_.length / 2; i_++) {
            if (s_[i_] !== s_[s_.length - 1 - i_]) return false;
          }
          return true;
        }
        """,
        bash="""
        f_() {
          local s_=$1 i_ n_=${#1}
          REPLY=true
          for (( i_ = 0; i_ < n_; i_++ )); do
            if [[ ${s_:i_:1} != "${s_:n_-1-i_:1}" ]]; then REPLY=false; fi
          done
        }
        """,
    ),
    kind(
        "counts",
        "How often each word stands in ws_, by word.",
        "counts tally how_often",
        lambda rng: [[rng.choice(WORDS[:4]) for _ in range(rng.randint(0, 6))]],
        python=(
            """
            def f_(ws_):
                out_ = {}
                for w_ in ws_:
                    out_[w_] = out_.get(w_, 0) + 1
                return out_
            """,
            """
            def f_(ws_):
                out_ = {}
                for w_ in ws_:
                    if w_ not in out_:
                        out_[w_] = 0
                    out_[w_] += 1
                return out_
            """,
        ),
        javascript="""
        function f_(ws_) {
          const out_ = {};
          for (const w_ of ws_) {
            out_[w_] = (out_[w_] || 0) + 1;
          }
          return out_;
        }
        """,
    ),
    kind(
        "shorten",
        "The text s_, cut to n_ characters, of which the last three are dots, where it is longer.",
        "shorten abbreviate cut_to",
        or_default(lambda rng: [" ".join(_words(rng, 2)), rng.randint(4, 12)]),
        python="""
        def f_(s_, n_=10):
            if len(s_) <= n_:
                return s_
            return s_[: n_ - 3] + "..."
        """,
        javascript="""
        function f_(s_, n_ = 10) {
          if (s_.length <= n_) return s_;
          return s_.slice(0, n_ - 3) + "...";
        }
        """,
        bash="""
        f_() {
          local s_=$1 n_=${2:-10}
          REPLY=$s_
          if (( ${#s_} > n_ )); then REPLY=${s_:0:n_-3}...; fi
        }
        """,
        own={"n": ("width", "most")},
    ),
)
