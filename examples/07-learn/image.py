"""Build the image of the tasks and load it into the dev cluster."""

from __future__ import annotations

from tasks import IMAGE, WORKDIR, prepare_image

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import Progress
from rollout_dev.dev_cluster.kind import load_images
from rollout_dev.images import recipe, release_pairs, rootfs

if __name__ == "__main__":
    progress = Progress()
    prepare_image()
    base = recipe.base_recipe("base")
    layer = rootfs.layer(base, progress)
    archive = release_pairs.archive(IMAGE, WORKDIR, base, layer, progress)
    load_images(Checkout.here(), [archive], progress)
