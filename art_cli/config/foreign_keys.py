"""Names of settings in TRL, verl, prime-rl, PEFT, vLLM, OpenPipe's ART and earlier versions.

The error for such a key names the key of this program.
"""

from __future__ import annotations

ELSEWHERE = {
    "train.steps": "max_steps num_steps iterations total_training_steps num_train_epochs",
    "train.scenarios_per_step": "batch_size train_batch_size per_device_train_batch_size "
    "rollout_batch_size prompts_per_step groups_per_step gen_batch_size",
    "train.group_size": "num_generations rollouts_per_example trajectories_per_group "
    "n_samples_per_prompt",
    "train.learning_rate": "lr",
    "train.lr_scheduler_type": "schedule lr_scheduler lr_schedule",
    "train.warmup_steps": "schedule_warmup_steps lr_warmup_steps warmup_ratio",
    "train.max_grad_norm": "max_grad_norm_clip grad_clip clip_grad",
    "train.loss": "loss_type loss_agg_mode policy_loss",
    "train.advantage": "scale_rewards adv_estimator",
    "train.clip_low": "epsilon epsilon_low clip_ratio clip_ratio_low",
    "train.clip_high": "epsilon_high clip_ratio_high",
    "train.kl_coef": "beta kl_penalty_coef kl_loss_coef",
    "train.router_aux_loss_coef": "router_aux_coef",
    "train.max_staleness": "max_off_policy_steps async_level max_async_level",
    "train.num_minibatches": "minibatches mini_batch_size ppo_mini_batch_size steps_per_generation",
    "train.num_iterations": "passes ppo_epochs num_ppo_epochs",
    "train.dynamic_sampling": "refill filter_groups dynamic_filtering",
    "train.mask_truncated_completions": "overlong overlong_filtering",
    "train.microbatch_tokens": "gradient_accumulation_steps micro_batch_size "
    "ppo_micro_batch_size ppo_micro_batch_size_per_gpu ppo_max_token_len_per_gpu",
    "sampling.max_tokens": "max_completion_length max_new_tokens max_tokens_per_turn "
    "max_response_length",
    "engine.max_model_len": "max_seq_len max_seq_length seq_len",
    "engine.max_num_seqs": "max_concurrent max_concurrency",
    "engine.tensor_parallel_size": "tensor_parallel tensor_model_parallel_size tp",
    "engine.replicas": "data_parallel_size dp",
    "engine.gpu_memory_utilization": "gpu_memory_fraction vllm_gpu_memory_utilization",
    "model.base": "base_model model_name model_name_or_path model_path",
    "model.adapter": "lora peft_config use_peft",
    "model.adapter.rank": "lora_rank lora_r r",
    "model.adapter.alpha": "lora_alpha",
    "model.adapter.target_modules": "targets lora_target_modules",
    "model.quantize": "load_in_4bit load_in_8bit",
    "sft": "warmup",
    "env": "environment environments env_id",
    "judge": "ruler",
    "reward.judge": "ruler",
    "track.wandb": "wandb report_to wandb_project",
    "eval.every": "eval_steps test_freq eval_interval",
    "checkpoint.every": "save_steps save_freq checkpoint_interval",
    "checkpoint.keep": "save_total_limit",
}

# Where a section has variants, its key `use` chooses one.
CHOOSES = ("type", "kind", "mode", "to", "target", "name", "backend", "provider")


def key_for(name: str, known: list[str]) -> str | None:
    """Return the key that is meant by a name of elsewhere, one among the `known` if possible."""
    if "use" in known and name.lower() in CHOOSES:
        return "use"
    meant = [key for key, names in ELSEWHERE.items() if name.lower() in names.split()]
    here = [last for key in meant if (last := key.rpartition(".")[2]) in known]
    return next(iter([*here, *meant]), None)
