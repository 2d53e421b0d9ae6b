"""The manifests in the guides of other systems' plugins are objects that Kubernetes knows, field by field."""

from __future__ import annotations

import pytest
import yaml

from tests.chart import extra
from tests.docs.blocks import ROOT, read_blocks

KUBERNETES = ("1.26", "1.36")
GUIDES = ("amd", "amd-labels", "doslab", "generic", "gke", "gpushare", "smarter", "volcano")


@pytest.mark.parametrize("guide", GUIDES)
def test_every_object_of_a_guide_is_one_that_kubernetes_knows(guide: str):
    check = extra.load("kubernetes_validate")
    blocks = [one for one in read_blocks(ROOT / f"docs/guide/{guide}.md") if one.language == "yaml"]
    texts = [one.text for one in blocks if "apiVersion:" in one.text]
    assert texts, "the guide has no manifest"
    for text in texts:
        for one in yaml.safe_load_all(text):
            for version in KUBERNETES:
                check.validate(one, version, strict=True)
