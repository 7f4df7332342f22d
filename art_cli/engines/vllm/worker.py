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
        self.reload_weights(weights_path=folder)
        model = self.model_runner.get_model()
        head = getattr(model, "lm_head", None)
        if head is not None and model.config.tie_word_embeddings:
            head.quant_method.process_weights_after_loading(head)
