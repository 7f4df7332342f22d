"""Extension of vLLM's worker processes, added by `--worker-extension-cls`."""

from __future__ import annotations

from typing import Any


class Reload:
    """Mixin for vLLM's worker, which has `model_runner` and `reload_weights`."""

    model_runner: Any
    reload_weights: Any

    def reload_all_weights(self, folder: str) -> None:
        """Load other weights in place.

        vLLM's own reload does not update a head that is tied to the embedding: on a CPU it keeps a
        packed copy of the old one ("Limitations" in its model_loader/reload).
        """
        model = self.model_runner.get_model()
        forget_cpu_experts(model)
        self.reload_weights(weights_path=folder)
        head = getattr(model, "lm_head", None)
        if head is not None and model.config.tie_word_embeddings:
            head.quant_method.process_weights_after_loading(head)


def forget_cpu_experts(model: Any) -> None:
    """Make vLLM prepare experts on a CPU again, as at their first load.

    Its CPU kernels need packed experts, and only the first load packs them. A reload would copy
    unpacked weights over them (`_setup_kernel` in its unquantized_fused_moe_method.py). On a GPU
    the kernel must stay, because CUDA graphs refer to it.
    """
    for layer in model.modules():
        method: Any = getattr(layer, "quant_method", None)
        experts = getattr(layer, "w13_weight", None)
        if experts is not None and experts.is_cpu and hasattr(method, "_setup_kernel"):
            method.moe_kernel = None
