"""The experiment as frozen dataclasses: every key of the YAML, its type, range and default.

docs/config.md is made of the docstrings and comments here, and of those in agent.py, llm.py and
targets.py. Every field has an effect: `load.py` refuses one that another setting makes ineffective.
Sections inherit FORBID_UNKNOWN from Experiment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from art_cli.config.agent import AgentConfig
from art_cli.config.llm import LLMConfig
from art_cli.config.marks import NotWith, OnlyWith
from art_cli.config.opponents import OpponentsConfig
from art_cli.config.tool_formats import ToolFormatName
from art_cli.config.values import (
    FORBID_UNKNOWN,
    Count,
    CountOrZero,
    Name,
    NonNegative,
    Own,
    Positive,
    Share,
    Url,
)

MAX_MODEL_LEN, MIN_MICROBATCH_TOKENS = 4096, 64
LEAST = 1e-3  # of a temperature, and of top_p: logits divided by less may overflow
DEFAULT_TARGETS = ("attention", "mlp")
REFERENCE = "reference"  # as the name of a model: the policy's own base, its adapter off

TINY = OnlyWith("model.base", ("tiny",))
EMBEDDED = OnlyWith("engine.use", ("transformers",))
VLLM = OnlyWith("engine.use", ("vllm",))
STARTED = NotWith("engine.url", "a server that someone else has started")
RENTED = OnlyWith("backend.use", ("skypilot",), "remove it, or write skypilot")
WANDB = OnlyWith("track.wandb.mode", ("auto", "online", "offline"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvConfig:
    """The task. `use` is a registered name, `package.module:Class` or `path/to/file.py:Class`."""

    use: str  # `art envs` lists the registered ones
    args: dict[str, Any] = field(default_factory=dict)  # checked against the env's own Config
    # An interpreter that the env runs in, with packages of its own. null: art's.
    python: str | None = None
    # Episodes that are open at once, where each holds a server or the like. null: all that are due.
    concurrency: Count | None = None
    # Who plays the other seats of a game. null: the env's own script.
    opponents: OpponentsConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """LoRA (2106.09685) on linear maps of the text decoder.

    `targets`: `attention` (all that mixes tokens, recurrent layers too), `mlp` (dense and shared
    experts), `experts` (routed ones), or names of modules, with * for any part of one.
    """

    # Of the two small matrices beside each map; more learns more, and takes memory.
    rank: Count = 16
    alpha: Positive = 32.0  # the adapter counts alpha / rank times
    targets: Annotated[list[str], Field(min_length=1)] = field(
        default_factory=lambda: list(DEFAULT_TARGETS)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyConfig:
    """The size of the model that `base: tiny` makes (Qwen3 architecture, random weights)."""

    hidden_size: Annotated[int, Field(ge=16, multiple_of=16), TINY] = 64  # width of the model
    num_layers: Annotated[Count, TINY] = 2  # depth of the model
    # Tokens; its tokenizer is trained on the demonstrations.
    vocab_size: Annotated[int, Field(ge=300), TINY] = 640


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What is trained: a Hugging Face folder or hub id, or `tiny`, a model made on the spot."""

    base: str  # a Hugging Face folder or hub id, or tiny
    adapter: AdapterConfig | None = field(default_factory=AdapterConfig)  # null: all weights
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: float32 on a CPU
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU, from 1M parameters on
    quantize: Literal["4bit", "8bit"] | None = None  # the base, under an adapter; on a GPU
    # How it writes tool calls; auto asks its chat template.
    tool_format: ToolFormatName = "auto"
    # Variables of its chat template, such as {enable_thinking: false}.
    template_args: dict[str, Any] = field(default_factory=dict)
    tiny: TinyConfig = field(default_factory=TinyConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmupConfig:
    """Supervised fine-tuning on demonstrations, on assistant tokens only, before the first step."""

    demonstrations: str = "env"  # env: the env's own; otherwise a JSONL file of chat messages
    num_demonstrations: Count = 1000  # at most
    epochs: Count = 1  # times that each demonstration is seen
    batch_size: Count = 16  # conversations in one optimizer step
    learning_rate: Positive = 2.0e-5  # of the warm-up alone
    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: quicker from random weights
    weights: Literal["auto", "all", "adapter"] = "auto"  # auto: the adapter, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What generates: the trainer's own process, or vLLM servers that are started with the run.

    `gpus: null` puts vLLM on the trainer's GPU: they take turns, and vLLM sleeps during updates.
    On several nodes, `nodes: 1` gives the last of them to vLLM alone; replicas are spread over such
    nodes, and their GPUs need no names.
    """

    use: Literal["transformers", "vllm"] = "transformers"  # transformers: in the trainer's process
    max_concurrent: Count = 256  # episodes that hold a KV cache at once, of one replica
    max_model_len: Annotated[int, Field(ge=16)] = MAX_MODEL_LEN  # tokens of one sequence
    # Wait for every env before each step, so that runs repeat exactly.
    deterministic: Annotated[bool, EMBEDDED] = True
    gpus: Annotated[list[CountOrZero] | None, VLLM, STARTED] = None  # for vLLM alone
    # Of backend.num_nodes, that serve vLLM alone; the others train.
    nodes: Annotated[CountOrZero, VLLM, STARTED] = 0
    tensor_parallel: Annotated[Count, VLLM, STARTED] = 1  # GPUs of one replica
    replicas: Annotated[Count, VLLM, STARTED] = 1  # servers that share the episodes
    gpu_memory_fraction: Annotated[Share | None, VLLM, STARTED] = None  # null: what is free
    # How new weights get there; auto tries both and keeps the quicker.
    sync: Annotated[Literal["auto", "adapter", "merged"], VLLM] = "auto"
    url: Annotated[str | None, VLLM] = None  # a vLLM server that someone else has started
    # Further options of `vllm serve`.
    extra: Annotated[dict[str, Any], VLLM, STARTED] = field(default_factory=dict)

    @property
    def shares_gpu(self) -> bool:
        """Whether vLLM and the trainer take turns on one GPU."""
        return self.gpus is None and not self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """How a turn is sampled. Anything but temperature 1 and all tokens biases the ratio."""

    temperature: Annotated[float, Field(ge=LEAST, le=5)] = 1.0  # below 1: likely tokens more often
    top_p: Annotated[float, Field(ge=LEAST, le=1)] = 1.0  # below 1: of the likely tokens alone
    top_k: CountOrZero = 0  # 0: off
    max_tokens: Count = 512  # of one turn; one that is cut off there calls no tools


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig(LLMConfig):
    """RULER: an LLM that scores the trajectories of a group against each other.

    `model: reference` is the policy's own base, its adapter off, on the run's own engine.
    """

    use: Literal["ruler"] = "ruler"
    rubric: str | None = None  # what is good, in words; null: reaching the goal, efficiently
    rubric_file: str | None = None
    votes: Count = 1  # ask so often, in other orders, and average
    max_per_call: Annotated[int, Field(ge=4)] = 16  # trajectories; more are asked in parts
    on_failure: Literal["drop", "env", "stop"] = "drop"  # leave the group out; or the env's reward
    max_usd: Positive | None = None  # of the whole run; then it is saved and stops
    cache: bool = True  # answers are kept on disk: what was asked before is not paid again


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """What is learned from: a weighted sum of the env's own score, the judge's and the agent's.

    The agent's is what a service, or a program that is kept, ends its episode with. `gate: env`
    lets the judge's part count only where the env's own score is positive. Invalid are calls of no
    tool, with arguments that do not fit, or that cannot be read.
    """

    env: NonNegative = 0.0
    ruler: NonNegative = 0.0
    agent: NonNegative = 0.0
    gate: Literal["env"] | None = None
    invalid_action_cost: NonNegative = 0.0  # taken off for each call that cannot be made
    max_invalid_cost: Positive = 0.5  # of one episode, at most


LossName = Literal[
    "token_mean", "sequence_mean", "group_mean", "grpo", "dr_grpo", "dapo", "gspo", "cispo"
]
AdvantageName = Literal["mean", "group_std", "batch_std", "leave_one_out"]
CurriculumName = Literal["uniform", "signal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """The GRPO update."""

    steps: CountOrZero  # rounds of rollout, score and update
    scenarios_per_step: Count = 8  # groups of one update; more: less noise, more time
    group_size: Annotated[int, Field(ge=2)] = 8  # episodes of one scenario, which are compared
    learning_rate: Positive = 1.0e-5  # too high: reward rises and falls; too low: it stays
    schedule: Literal["constant", "linear", "cosine"] = "constant"  # of the learning rate, to 0
    schedule_warmup_steps: CountOrZero = 0  # in which the learning rate rises from 0
    weight_decay: NonNegative = 0.0  # how much of each weight an update takes away, times the rate
    max_grad_norm: Positive = 1.0  # a longer gradient is shortened to it
    # How far one update may move the policy, in nats a token; it is shortened to that. null: any.
    max_kl: Positive | None = 0.01
    loss: LossName | Own = "token_mean"  # what each is, here and elsewhere: docs/losses.md
    # How much better than its siblings an episode was: its reward less their mean, and over what.
    advantage: AdvantageName | Own = "mean"
    # How far below 1 a token's ratio still counts; null: the loss's own.
    clip_low: NonNegative | None = None
    clip_high: NonNegative | None = None  # how far above 1; null: the loss's own
    kl_coef: NonNegative = 0.0  # k3 to the policy of step 0
    # Of a loss that spreads tokens over the experts (2101.03961); a mixture of experts only.
    router_aux_coef: NonNegative = 0.0
    max_staleness: CountOrZero = 0  # updates that rollouts may begin early; 0: repeats exactly
    # Updates of a batch, each with its share of the groups; all but the first are off-policy.
    minibatches: Count = 1
    passes: Count = 1  # how often each batch is learned from: fewer episodes, more of each
    refill: bool = False  # replace groups without a gradient by further scenarios
    # Which scenarios are played: each as often as every other, or those whose groups will differ.
    curriculum: CurriculumName | Own = "uniform"
    overlong: Literal["keep", "mask"] = "keep"  # truncated trajectories
    # Tokens of one forward pass of the update: less memory, the same result.
    microbatch_tokens: Annotated[int, Field(ge=MIN_MICROBATCH_TOKENS)] = 16384
    gradient_checkpointing: Literal["auto", "on", "off"] = "auto"  # auto: from 1B on, on a GPU
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"  # adamw_8bit: a quarter of its memory
    num_processes: Count = 1  # share each step: a GPU each, weights sharded by FSDP


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Evaluation on held-out scenarios: before the first step, every so often, and at the end."""

    every: Count = 10  # steps
    split: Literal["val", "test"] = "val"
    episodes: Count = 64  # four times as many: half the noise


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """The newest `keep` checkpoints stay, and always the best one."""

    every: Count = 10  # steps; what came after is lost with a crash
    keep: Count = 2  # the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class WandbConfig:
    """Weights & Biases. `auto`: online with a key and a server that answers, else offline."""

    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    entity: Annotated[str | None, WANDB] = None  # user or team; null: your own
    # The best and the last checkpoint, when a run ends; auto: of adapters, not of whole models.
    upload: Annotated[Literal["auto", "on", "off"], WANDB] = "auto"
    # While online: every trajectory in Weave, with turns and calls (extra otlp).
    weave: Annotated[bool, OnlyWith("track.wandb.mode", ("auto", "online"))] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpConfig:
    """Trajectories as OpenTelemetry spans over OTLP/HTTP (extra `otlp`).

    Langfuse, MLflow, Phoenix, Jaeger and other collectors take them.
    """

    # Of the collector, e.g. http://localhost:4318/v1/traces; null: OTEL_EXPORTER_OTLP_ENDPOINT.
    endpoint: Url | None = None
    headers: dict[str, str] = field(default_factory=dict)  # a key as ${oc.env:NAME}
    groups: Count | None = 8  # of a step, those with the widest rewards; null: all


@dataclass(frozen=True, slots=True, kw_only=True)
class MlflowConfig:
    """Metrics in MLflow (extra `mlflow`): a run of the experiment that is called like `project`."""

    uri: str | None = None  # of the tracking server or store; null: MLFLOW_TRACKING_URI


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackConfig:
    """Where a run goes beside its own directory and the console: nowhere, by default."""

    wandb: WandbConfig | None = None
    otlp: OtlpConfig | None = None
    mlflow: MlflowConfig | None = None
    tensorboard: bool = False  # event files in the run's directory (extra tensorboard)
    trackio: bool = False  # Trackio's database on this machine (extra trackio)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """Where the run happens: this machine, or one that SkyPilot rents (extra `cloud`).

    `resources`, `envs`, `setup` and `storage` are SkyPilot's own words, checked by SkyPilot when a
    cloud command runs. `resources: {use_spot: true}` is a managed job, which goes on by itself
    elsewhere when its machine is taken away.
    """

    use: Literal["local", "skypilot"] = "local"
    cluster: Annotated[Name | None, RENTED] = None  # null: art-<project>
    # {accelerators: "H100:1"}
    resources: Annotated[dict[str, Any], RENTED] = field(default_factory=dict)
    num_nodes: Annotated[Count, RENTED] = 1
    autostop_minutes: Annotated[Count | None, RENTED] = 30  # idle; null: bills until stopped
    workdir: Annotated[str | None, RENTED] = "."  # shipped, but for what .gitignore names
    envs: Annotated[dict[str, str], RENTED] = field(default_factory=dict)
    secrets: Annotated[list[str], RENTED] = field(default_factory=list)  # variables, sent too
    setup: Annotated[str | None, RENTED] = None  # shell, on each node, after art is installed
    # Where a managed job keeps its run: a bucket ({name: my-bucket}) or a folder of all nodes.
    storage: Annotated[str | dict[str, Any] | None, RENTED] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployConfig:
    """Where `art deploy RUN` puts a checkpoint. `args` are the target's own."""

    to: Literal["together", "hf", "merged", "serve", "skyserve", "ollama"]
    name: str | None = None  # null: of project, run and step
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One YAML file."""

    __pydantic_config__ = FORBID_UNKNOWN
    project: Name = "default"  # runs of one project lie in one folder, and are one project at W&B
    name: Name  # default: the name of the config file
    # Of all that is drawn: the same seed gives the same run.
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    env: EnvConfig
    agent: AgentConfig = field(default_factory=AgentConfig)
    model: ModelConfig
    warmup: WarmupConfig | None = None
    engine: EngineConfig = field(default_factory=EngineConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    judge: JudgeConfig | None = None
    reward: RewardConfig | None = None  # null: the judge's score where there is one, else the env's
    train: TrainConfig
    eval: EvalConfig | None = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    track: TrackConfig = field(default_factory=TrackConfig)
    backend: BackendConfig = field(default_factory=BackendConfig)
    deploy: DeployConfig | None = None
