"""Faults at chosen places, in the mathematics of learning, where random ones seldom meet a sign."""

from __future__ import annotations


def at(file: str, *changes: tuple[str, str]) -> list[tuple[str, str, str]]:
    """Return the faults of a file: each text stands once in it, and becomes the other."""
    return [(f"art_cli/{file}.py", before, after) for before, after in changes]


CHOSEN = [
    *at(
        "training/algorithm/advantage",
        ("[r - average for r in rewards]", "[r for r in rewards]"),
        ("a * len(g.valid) / max(1, len(g.valid) - 1)", "a * len(g.valid) / max(1, len(g.valid))"),
        ("_scale([r for group in groups for r in group.rewards])", "_scale(groups[0].rewards)"),
        ("math.sqrt(max(1, len(rewards) - 1))", "math.sqrt(max(1, len(rewards)))"),
        ("> SMALL_STD if rewards else False", "> 0.5 if rewards else False"),
        (
            "zip(group.valid, _of(group.valid, values, told), strict=True)",
            "zip(group.trajectories, _of(group.valid, values, told), strict=False)",
        ),
    ),
    *at(
        "training/algorithm/loss",
        ("return -torch.minimum(", "return torch.minimum("),
        (
            "ratio.clamp(1 - low, 1 + high) * advantages",
            "ratio.clamp(1 - high, 1 + low) * advantages",
        ),
        (
            "torch.exp(policy_logprobs - tokens.engine_logprobs)",
            "torch.exp(tokens.engine_logprobs - policy_logprobs)",
        ),
        ("ratio.clamp(max=max(DUAL_CLIP, 1 + high))", "ratio"),
        ("| (ratio > max(DUAL_CLIP, 1 + high))", ""),
        ("torch.exp(total / length)[tokens.unit]", "torch.exp(total)[tokens.unit]"),
        ("token_ratio(policy_logprobs.detach(), tokens)", "token_ratio(policy_logprobs, tokens)"),
        ("rho.clamp(max=clip_high)", "rho.clamp(min=clip_high)"),
        ("return rho * (torch.exp(d) - d - 1)", "return rho.detach() * (torch.exp(d) - d - 1)"),
        ("d = tokens.ref_logprobs - policy_logprobs", "d = policy_logprobs - tokens.ref_logprobs"),
        ("1 / (n.groups * group)", "1 / (n.groups * trajectory)"),
        ("1 / (n.trajectories * trajectory)", "1 / (n.trajectories * group)"),
        ("1 / (n.trajectories * n.max_model_len)", "1 / n.max_model_len"),
        ('"grpo": _clip_loss(_sequence_mean,', '"grpo": _clip_loss(_token_mean,'),
    ),
    *at(
        "training/algorithm/logprobs",
        (
            "grad = weights.mul_(-slope[:, None] / total)",
            "grad = weights.mul_(slope[:, None] / total)",
        ),
        ("grad.scatter_add_(1, ids[rows, None], slope[:, None])", "pass"),
        ("            if temperature != 1:\n                grad.div_(temperature)\n", ""),
        ("logits = logits.div_(temperature)", "logits = logits.mul_(temperature)"),
        ("slice(i, min(i + size, num_rows))", "slice(i, min(i + size - 1, num_rows))"),
    ),
    *at(
        "training/algorithm/packing",
        ("np.append(-1, path[:-1])", "path"),
        ("if not parts or size > room:", "if not parts:"),
        ("if units[i] == i]", "]"),
        (
            "sampled(s.each_advantage() for s in sequences)[order]",
            "sampled(s.each_advantage() for s in sequences)",
        ),
        ("(s.mask for s in sequences)", "([0] + [1] * (len(s.mask) - 1) for s in sequences)"),
    ),
    *at(
        "models/forward/token_tree",
        ("np.arange(n.start, n.start + len(n.ids))", "np.arange(len(n.ids))"),
        ("while ancestor := nodes[-1].parent:", "while ancestor := None:"),
        ("alone = [TokenNode(ids=ids,", "alone = [TokenNode(ids=ids[1:],"),
    ),
    *at(
        "models/forward/head",
        ("logits = logits * self.scale", "logits = logits / self.scale"),
        ("self.scale * (1 - (logits / self.cap).square())", "self.scale"),
        ("product(hidden, self.weight, self.bias)", "product(hidden, self.weight)"),
    ),
    *at(
        "models/forward/norm",
        ("g.addcmul_(x, along, value=-1 / len(weight))", "g"),
        ("g = grad * weight.float()", "g = grad.float()"),
        ("(products @ weight.float())", "products.sum(-1)"),
    ),
    *at(
        "models/forward/replay",
        ("            place.copy_(x)\n", "            pass\n"),
        ("        self._known = {}\n\n    def take", "\n    def take"),
    ),
    *at(
        "models/lora",
        ("(rows @ b).mul_(ctx.scale)", "rows @ b"),
        ("(rows.T @ low).mul_(ctx.scale)", "rows.T @ low"),
        (".addmm_(high, a)", ""),
        ("    if layer.disable_adapters:\n        return layer.base_layer(x)\n", ""),
    ),
    *at(
        "models/forward/native_cache",
        ("i: x if x is None else x.clone() for", "i: x for"),
        ("torch.cat([self.conv_states[state_idx], conv_states], -1)", "conv_states"),
        ("past = fork(parent)", "past = parent"),
        ("self._rows[row] = marked.forked()", "self._rows[row] = marked"),
    ),
    *at(
        "models/forward/states",
        ("if not 0 < marked <= wanted:", "if not 0 < marked:"),
        ("self._states[key][rows] = x\n\n    def select", "pass\n\n    def select"),
        ("            x[target] = x[source]\n", "            pass\n"),
        ("self._marks[other] = self._marks[one]", "pass"),
        ("(len(new), start == 0)", "(len(new), False)"),
    ),
    *at(
        "models/forward/cascade",
        ("g.transpose(1, 2).flatten(0, 1)[of.padding] = 0", "pass"),
        ("torch.sigmoid(sums - so_far)", "torch.sigmoid(so_far - sums)"),
        ("torch.logaddexp(so_far, sums, out=so_far)", "pass"),
        ("np.minimum(np.arange(lengths.max()), lengths - 1)", "np.arange(lengths.max()) % lengths"),
    ),
    *at(
        "models/forward/tree_attention",
        ("(enter[kv] <= enter[q]) & (enter[q] < leave[kv])", "enter[kv] <= enter[q]"),
        ("descends & (position[kv] <= position[q])", "descends"),
    ),
    *at(
        "models/forward/attention",
        (
            "q.reshape(rows, kv_heads, group, width) * scale",
            "q.reshape(rows, kv_heads, group, width)",
        ),
        (
            "scores = torch.cat([first, q @ k.mT + mask], -1)",
            "scores = torch.cat([first, q @ k.mT], -1)",
        ),
        ("causal=True).transpose(1, 2)", "causal=False).transpose(1, 2)"),
        ("seen = key <= query\n", "seen = key < query\n"),
        ("key > query - self.window", "key >= query - self.window"),
        ("key // self.chunk == query // self.chunk", "key <= query"),
        ("torch.tanh(scores / look.softcap) * look.softcap", "scores"),
        ("return weights[..., :-1].to(v.dtype) @ v", "return scores.softmax(-1) @ v"),
        ("        sinks=s_aux,\n", ""),
    ),
    *at(
        "models/forward/kv_cache",
        ("shared = self.shared if look.is_plain else None", "shared = self.shared"),
        (
            "x[target, :, :length] = x[source, :, :length]",
            "x[source, :, :length] = x[target, :, :length]",
        ),
        ("are_first = rows[-1] == len(rows) - 1", "are_first = True"),
    ),
    *at(
        "engines/embedded/sampler",
        ("logits.float() / sampling.temperature", "logits.float()"),
        ("before >= sampling.top_p", "before > 1 - sampling.top_p"),
        ("- highest - total.log()", "- highest"),
        ("            counts[row] += 1\n", "            counts[row] = 1\n"),
    ),
    *at(
        "engines/embedded/rows",
        ("if sum(map(len, groups)) == len(row.occupants):", "if True:"),
        ("        if len(row.occupants) > 1:\n", "        if False:\n"),
        ("follows = tuple(occupant.pending) or occupant.turn.sampled[-1]", "follows = 0"),
        ("occupant.pending[len(row.cached) :]", "occupant.pending"),
    ),
    *at(
        "engines/embedded/slots",
        ("Row(list(row.cached), row.shares)", "Row(row.cached, row.shares)"),
        ("            row.index = index\n", "            pass\n"),
        ("        self._was_freed = True\n", "        pass\n"),
    ),
    *at(
        "chat/render",
        ("if behind != text and renderer.is_end(behind):", "if behind != text:"),
        ("alone.startswith(self._text) and text.startswith(alone)", "alone.startswith(self._text)"),
        (
            "if not renderer.read_rendered(alone[len(self._text) :])"
            ".means(renderer.read(sampled)):",
            "if False:",
        ),
        ("if text.startswith(stop):", "if True:"),
        ("self.capabilities.ends_itself and text.startswith(end)", "text.startswith(end)"),
    ),
    *at(
        "chat/history",
        ('content.replace(token, f"{token[:-1]} {token[-1]}")', "content"),
        (
            'return {"role": "user", "content": RESULT.format(content=content)}',
            'return {"role": "user", "content": content}',
        ),
        ("_without_system(said)", "said"),
        ("_merged(said, self._merged)", "said"),
    ),
    *at(
        "chat/turns",
        ("said.strip()\n", "text\n"),
        ("a == b for a, b in pairs", "True for a, b in pairs"),
    ),
    *at(
        "types",
        (
            "self.mask += [0 if i in completion.forced else 1 for i in range(num)]",
            "self.mask += [1] * num",
        ),
        ("self.mask += [0] * len(ids)", "self.mask += [1] * len(ids)"),
    ),
    *at(
        "training/trainers/grpo",
        ("self.optimizer.zero_grad(set_to_none=True)\n        self._routers", "self._routers"),
        ("not truncated and gap > bound", "not truncated and gap > 100 * bound"),
        ("        self.check_sampled(groups, self.logprobs)\n", ""),
        ("(logprobs(sequence) - engine).abs()", "0 * (logprobs(sequence) - engine).abs()"),
        ("if not math.isfinite(norm):", "if norm < 0:"),
        ("kl_k3(policy_logprobs, mine, self._loss.ratio)", "kl_k3(policy_logprobs, mine)"),
        ("self.forward(batch)[batch.row] - before", "before - self.forward(batch)[batch.row]"),
        (".clamp(max=FURTHEST)", ""),
        ("sums = self._all_ranks(sums)", "pass"),
        ("self._known.append((part, logprobs))", "self._known = [(part, logprobs)]"),
    ),
    *at(
        "training/trainers/bounded_step",
        ("if now <= most:", "if now > 0:"),
        ("p.lerp_(old, 0.5)", "p.lerp_(old, 0.25)"),
        ("    if not now <= most:", "    if now > most:"),
        ("        _put_back(params, before)\n        raise", "        raise"),
        ("return whole, not", "return now, not"),
        ("p.copy_(old)", "pass"),
    ),
    *at(
        "training/trainers/sequences",
        (
            "if not (teaches(group) or cfg.kl_coef):",
            "if not teaches(group):",
        ),
        ("trajectory.truncated and cfg.mask", "cfg.mask"),
        ("sum(by_group),", "len(by_group),"),
        ("weight(counts, tokens, t.num_sampled)", "weight(counts, tokens, s.num_sampled)"),
        ("sum(t.num_sampled > 0 for", "sum(len(t.sequences) for"),
    ),
    *at(
        "training/trainers/base",
        ("order[i::num] for i", "order[0::num] for i"),
        ("key=lambda group: not teaches(group)", "key=teaches"),
        ("first | {name: last[name]", "last | {name: first[name]"),
        ("{name: max(m[name]", "{name: min(m[name]"),
    ),
    *at(
        "training/trainers/schedule",
        ("return (step + 1) / (warmup + 1)", "return step / (warmup + 1)"),
        ("0.5 * (1 + math.cos(", "0.5 * (1 - math.cos("),
    ),
    *at(
        "training/batches",
        (
            "self._model.step + cfg.max_staleness, cfg.steps - 1)",
            "self._model.step + cfg.max_staleness + 1, cfg.steps - 1)",
        ),
        ("self._cursor = model.parts.progress.cursor", "self._cursor = 0"),
    ),
    *at(
        "training/curriculum/uniform",
        ('seed_of(self.seed, "epoch", epoch)', 'seed_of(self.seed, "epoch")'),
    ),
    *at(
        "training/canary",
        ("elif not gap <= MAX_GAP[self._dtype]:", "elif gap < 0:"),
        ("if answer.policy_version != version:", "if answer.policy_version < 0:"),
    ),
    *at(
        "training/gather",
        ("n * group_size + trial", "trial"),
        (
            "if score and not all(t.failed for t in group.trajectories):",
            "if score and not any(t.failed for t in group.trajectories):",
        ),
    ),
    *at(
        "reward",
        ("(parts.env or 0.0) <= 0", "(parts.env or 0.0) < 0"),
        ("agent + judge - cost", "agent + judge"),
        ("weights.agent and not weights.judge", "weights.agent"),
    ),
    *at(
        "training/trainers/stats",
        ("float(-policy.mean())", "float(policy.mean())"),
        ("d = ref - policy", "d = policy - ref"),
    ),
]
