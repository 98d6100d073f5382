"""Models of Hugging Face's transformers on the device `mux`, unmodified, beside local ones.

Each is tiny and random: three training steps, and tokens that it generates. Needs `transformers`.
One family takes a second or two; the others want --slow, as `just frameworks` has it.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch_session import torch_workers

import gt.torch  # noqa: F401 - the device

transformers = pytest.importorskip("transformers")

STEPS = 3
VOCABULARY = 99
# Each family reads its own names of these.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "word_embed_proj_dim"), 32),
    "embedding_size": 32,
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "moe_intermediate_size"), 64),
    **dict.fromkeys(("head_dim", "d_kv"), 8),
    **dict.fromkeys(("num_key_value_heads", "num_local_experts", "num_experts"), 2),
    "num_experts_per_tok": 1,
    "rotary_dim": 4,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
    # Dropout draws differ: GT's generator is Philox.
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "hidden_dropout"), 0.0),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout_rate"), 0.0),
    **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop", "embed_dropout"), 0.0),
}
FAMILIES = {
    "CausalLM": (
        "bloom codegen cohere falcon gemma gemma2 gpt2 gpt_neo gpt_neox gptj granite llama mistral "
        "mixtral olmo opt phi phi3 qwen2 qwen3 stablelm starcoder2"
    ),
    "MaskedLM": "albert bert deberta-v2 distilbert electra mpnet roberta xlm-roberta",
    "Seq2SeqLM": "bart mbart pegasus t5",
}
# Options to omit where another size already determines them.
WITHOUT = {
    "falcon": {"head_dim"},
    "gpt_neo": {"num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"},
}
ALSO: dict[str, dict[str, Any]] = {"gpt_neo": {"attention_types": [[["global", "local"], 1]]}}

QUICK = ("CausalLM", "gpt2")

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


def model_of(family: str, head: str) -> Any:
    kept = {name: x for name, x in SIZES.items() if name not in WITHOUT.get(family, ())}
    config = transformers.AutoConfig.for_model(family, **kept, **ALSO.get(family, {}))
    torch.manual_seed(0)
    made = getattr(transformers, f"AutoModelFor{head}").from_config
    return made(config)


def run(model: Any, device: str, generates: bool) -> tuple[list[float], Any]:
    """Losses of some steps, and tokens that follow a prompt."""
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(3, VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(1))
    tokens = tokens.to(device)
    mask = torch.ones_like(tokens)
    losses = []
    for _ in range(STEPS):
        loss = model(input_ids=tokens, labels=tokens, attention_mask=mask).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if not generates:
        return losses, None
    prompt, options = tokens[:, :5], {"max_new_tokens": 5, "do_sample": False}
    said = model.eval().generate(prompt, attention_mask=mask[:, :5], **options)
    return losses, said.tolist()


@pytest.mark.parametrize(
    ("head", "family"),
    [
        pytest.param(head, one, marks=() if (head, one) == QUICK else pytest.mark.slow)
        for head, names in FAMILIES.items()
        for one in names.split()
    ],
)
def test_a_family_trains_and_generates_as_locally(head: str, family: str) -> None:
    local, remote = model_of(family, head), model_of(family, head)
    remote.load_state_dict(local.state_dict())
    losses, said = run(local, "cpu", head != "MaskedLM")
    seen, seen_said = run(remote, "mux", head != "MaskedLM")
    torch.testing.assert_close(seen, losses, rtol=1e-6, atol=1e-6)
    assert seen_said == said
