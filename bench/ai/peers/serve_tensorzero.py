"""TensorZero's gateway, which its wheel holds: says where it listens, and ends with its input."""

import sys

from openai import OpenAI
from tensorzero import patch_openai_client

client = patch_openai_client(OpenAI(api_key="none"), config_file=sys.argv[1], async_setup=False)
print(str(client.base_url).rstrip("/"), flush=True)
sys.stdin.read()
