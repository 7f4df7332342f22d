"""Runs inside vLLM's worker processes: what `--worker-extension-cls` adds to them."""

from __future__ import annotations

from typing import Any


class Reload:
    """Mixed into vLLM's worker; `model_runner` and `reload_weights` are the worker's."""

    model_runner: Any
    reload_weights: Any

    def reload_all_weights(self, folder: str) -> None:
        """Load other weights in place.

        vLLM's own reload leaves a head that is tied to the embedding behind: on a CPU it goes on
        with a packed copy of the old one ("Limitations" in its model_loader/reload).
        """
        model = self.model_runner.get_model()
        forget_cpu_experts(model)
        self.reload_weights(weights_path=folder)
        head = getattr(model, "lm_head", None)
        if head is not None and model.config.tie_word_embeddings:
            head.quant_method.process_weights_after_loading(head)


def forget_cpu_experts(model: Any) -> None:
    """Have vLLM prepare the experts of a mixture that is on a CPU as at their first load.

    Its CPU kernels read experts that are packed, and only the first load packs them: a reload
    copies them as they are into the packed ones' place (`_setup_kernel` in its
    unquantized_fused_moe_method.py). On a GPU the kernel stays, since CUDA graphs refer to it.
    """
    for layer in model.modules():
        method: Any = getattr(layer, "quant_method", None)
        experts = getattr(layer, "w13_weight", None)
        if experts is not None and experts.is_cpu and hasattr(method, "_setup_kernel"):
            method.moe_kernel = None
