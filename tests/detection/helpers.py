"""A narrow ResNet, small images of drawn shapes, and files in the format of PASCAL VOC."""

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torchvision.models import ResNet
from torchvision.models.resnet import BasicBlock

from imix.detection import Detection
from imix.encoders.standardize import Standardize

CPU = torch.device("cpu")
SHAPES = ("disc", "square", "wedge")
TINY = Detection(
    iterations=4,
    batch_size=4,
    lr=0.02,
    warmup=2,
    milestones=(3,),
    min_sizes=(96, 112),
    test_size=104,
    max_size=160,
    regions=16,
    precise_bn=1,
)


class NarrowResNet(ResNet):
    """A ResNet of four blocks with 8 to 64 channels."""

    def __init__(self, block: type = BasicBlock) -> None:
        super().__init__(block, [1, 1, 1, 1])
        self.inplanes = 8
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        for i, width in enumerate((8, 16, 32, 64)):
            setattr(self, f"layer{i + 1}", self._make_layer(block, width, 1, 1 if i == 0 else 2))
        self.width, self.fc = 64, nn.Identity()


def narrow_encoder() -> nn.Sequential:
    torch.manual_seed(1)
    standardize = Standardize(3)
    standardize.mean.fill_(0.4)
    standardize.std.fill_(0.25)
    return nn.Sequential(standardize, NarrowResNet())


def annotation_xml(objects) -> str:
    """The XML of objects (name, box, difficult); boxes count pixels from 1 and include the last one."""
    elements = [
        f"<object><name>{name}</name><pose>Left</pose><truncated>0</truncated><difficult>{int(difficult)}</difficult>"
        f"<bndbox><xmin>{box[0]}</xmin><ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
        for name, box, difficult in objects
    ]
    return f"<annotation><filename>x.jpg</filename>{''.join(elements)}</annotation>"


def write_image(folder, name, image, objects) -> None:
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    image.save(folder / "JPEGImages" / f"{name}.jpg", quality=95)
    (folder / "Annotations" / f"{name}.xml").write_text(annotation_xml(objects))


def write_splits(folder, **splits) -> None:
    for split, names in splits.items():
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))


def draw_shapes(seed: int):
    """An image of noise with one or two colored shapes, and its objects."""
    rng = np.random.default_rng(seed)
    width, height = (int(side) for side in rng.integers(96, 129, 2))
    image = Image.fromarray(rng.integers(90, 130, (height, width, 3), dtype=np.uint8))
    draw, objects = ImageDraw.Draw(image), []
    for i in range(1 + seed % 2):
        shape = (seed + i) % 3
        box_width, box_height = (int(side) for side in rng.integers(28, 44, 2))
        left = int(rng.integers(2, width // 2 - box_width + 4)) + i * width // 2
        top = int(rng.integers(2, height - box_height - 2))
        box = (left, top, min(left + box_width, width - 1), top + box_height)
        if shape == 0:
            draw.ellipse(box, fill=(230, 40, 40))
        elif shape == 1:
            draw.rectangle(box, fill=(40, 230, 40))
        else:
            draw.polygon([(box[0], box[3]), (box[2], box[3]), ((box[0] + box[2]) // 2, box[1])], fill=(40, 40, 240))
        objects.append((SHAPES[shape], tuple(side + 1 for side in box), False))
    if seed % 4 == 0:
        objects.append((SHAPES[seed % 3], (1, 1, 9, 9), True))  # nothing is drawn there
    return image, objects
