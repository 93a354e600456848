"""Writes docs/reference.md from the docstrings and docs/command-line.md from the commands' help.

python docs/generate.py            write both pages
python docs/generate.py --check    fail if a page is out of date
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import griffe

DOCS = Path(__file__).parent
SECTIONS = {
    "Training": [
        "imix.train.pretrain.pretrain",
        "imix.train.callbacks.TrainingState",
        "imix.settings.Settings",
        "imix.settings.DataSettings",
        "imix.run.folder.Run",
        "imix.run.folder.load_run",
        "imix.run.config.RunConfig",
        "imix.run.config.DataConfig",
        "imix.run.config.Architecture",
        "imix.train.bench.bench",
        "imix.train.bench.Throughput",
    ],
    "Using an encoder": [
        "imix.evaluation.evaluate",
        "imix.evaluation.transfer.transfer",
        "imix.train.finetune.finetune",
        "imix.settings.FineTuning",
        "imix.probes.predict.predict",
        "imix.probes.predict.Predictions",
        "imix.probes.embed.embed",
        "imix.probes.embedder.Embedder",
        "imix.run.stored_encoder.load_encoder",
        "imix.run.export.export",
        "imix.sklearn.IMixTransformer",
        "imix.sklearn.IMixClassifier",
        "imix.sklearn.IMixRegressor",
        "imix.reports.run_report.report",
        "imix.reports.maps.draw_map",
    ],
    "Exploring data": [
        "imix.explore.cluster.cluster",
        "imix.explore.similar.similar",
        "imix.explore.duplicates.duplicates",
        "imix.explore.outliers.outliers",
        "imix.explore.select.select",
        "imix.explore.label_errors.label_errors",
        "imix.explore.result.Answer",
        "imix.explore.cluster.Clusters",
    ],
    "Mixing": ["imix.mix.Mix", "imix.mix.MixUp", "imix.mix.CutMix", "imix.mix.InputMix"],
    "Methods": [
        "imix.methods.method.Method",
        "imix.methods.method.ProjectionMethod",
        "imix.methods.method.InBatchMethod",
        "imix.methods.momentum.MomentumMethod",
        "imix.methods.npair.NPair",
        "imix.methods.simclr.SimCLR",
        "imix.methods.moco.MoCo",
        "imix.methods.byol.BYOL",
        "imix.methods.supclr.SupCLR",
        "imix.methods.supnpair.SupNPair",
        "imix.methods.supervised.Supervised",
    ],
    "Losses": [f"imix.losses.{name}" for name in ("npair", "simclr", "moco", "byol", "supclr", "supnpair")],
    "Several ranks": ["imix.runtime.distributed.gather_rows", "imix.runtime.distributed.row_offset"],
    "Encoders": [
        "imix.encoders.build",
        "imix.encoders.resnet.resnet",
        "imix.encoders.mlp.MLP",
        "imix.encoders.heads.build_head",
    ],
    "Augmentation": [
        "imix.augment.per_sample.per_sample",
        "imix.augment.tabular.Masking",
        "imix.augment.tabular.Resampling",
        "imix.augment.image.cifar",
        "imix.augment.image.imagenet",
        "imix.augment.image.RandomResizedCrop",
        "imix.augment.image.PadCrop",
        "imix.augment.image.ColorJitter",
        "imix.augment.image.Grayscale",
        "imix.augment.image.GaussianBlur",
        "imix.augment.audio.AudioViews",
    ],
    "Data": [
        "imix.data.load",
        "imix.data.source.Data",
        "imix.data.source.Source",
        "imix.data.source.TensorSource",
        "imix.data.tables.table.Table",
    ],
    "Evaluation protocols": [
        "imix.run.result.Result",
        "imix.run.result.Split",
        "imix.evaluation.summary.Summary",
        "imix.probes.linear.Linear",
        "imix.probes.knn.KNN",
        "imix.probes.trees.Trees",
        "imix.probes.pinv.PInv",
        "imix.probes.linear_paper.LinearPaper",
        "imix.detection.detect",
        "imix.detection.hyperparameters.Detection",
    ],
    "The paper": ["imix.reproduce.runner.reproduce", "imix.reproduce.experiment.Ambiguities"],
    "Errors": [
        f"imix.errors.{name}"
        for name in ("InputError", "TrainingError", "StorageError", "Interrupted", "RunFolderBusy")
    ],
}
# Where users import an object from, if that is not the module that defines it.
PUBLIC_MODULES = (
    *("imix.methods", "imix.encoders", "imix.augment.image", "imix.augment.audio", "imix.augment", "imix.data"),
    *("imix.evaluation", "imix.detection", "imix.losses", "imix.reproduce", "imix.runtime.distributed"),
)


def reference() -> str:
    """The reference page."""
    package = griffe.load("imix", search_paths=[DOCS.parent / "src"], docstring_parser=griffe.Parser.numpy)
    parts = ["# Python reference", "This page is generated from the docstrings by `python docs/generate.py`."]
    for section, paths in SECTIONS.items():
        parts.append(f"## {section}")
        for path in paths:
            parts += _object(package[path.removeprefix("imix.")])
    return "\n\n".join(parts) + "\n"


def _object(item: griffe.Object) -> list[str]:
    """Heading, signature and docstring of a function or class, and the public methods of a class."""
    item = item.final_target if isinstance(item, griffe.Alias) else item
    fields = _fields(item) if isinstance(item, griffe.Class) else []
    parts = [f"### {_public_name(item)}", *([] if fields else [_signature(item)])]
    if item.docstring is not None:
        parts += _docstring(item.docstring)
    if isinstance(item, griffe.Class):
        parts += fields
        for method in item.functions.values():
            if not method.name.startswith("_") and method.docstring is not None and method.inherited is False:
                text = method.docstring.value.strip().splitlines()[0]
                parts.append(f"- `{method.name}({', '.join(_parameters(method))})`: {text}")
    return parts


def _public_name(item: griffe.Object) -> str:
    import imix

    if item.name in imix.__all__:
        return f"imix.{item.name}"
    for module in PUBLIC_MODULES:
        if item.path.startswith(module):
            return f"{module}.{item.name}"
    return item.path


def _signature(item: griffe.Object) -> str:
    function = item.functions.get("__init__") if isinstance(item, griffe.Class) else item
    if isinstance(function, griffe.Function):
        parameters = ", ".join(_parameters(function))
        one_line = f"{item.name}({parameters})"
        if len(one_line) > 88:
            lines = "".join(f"    {parameter},\n" for parameter in _parameters(function))
            one_line = f"{item.name}(\n{lines})"
        return f"```py\n{one_line}\n```"
    return f"```py\nclass {item.name}\n```"


def _parameters(function: griffe.Function) -> list[str]:
    shown, keyword_only = [], False
    for parameter in function.parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            shown.append("*")
            keyword_only = True
        default = "" if parameter.default is None else f"={parameter.default}"
        star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
        shown.append(f"{star.get(parameter.kind, '')}{parameter.name}{'' if star.get(parameter.kind) else default}")
        keyword_only = keyword_only or parameter.kind is griffe.ParameterKind.var_positional
    return shown


def _docstring(docstring: griffe.Docstring) -> list[str]:
    parts = []
    for section in docstring.parse("numpy", warn_unknown_params=False):
        kind = section.kind
        if kind is griffe.DocstringSectionKind.text:
            parts.append(_fence_examples(section.value))
        elif kind is griffe.DocstringSectionKind.examples:
            for what, text in section.value:
                is_code = what is griffe.DocstringSectionKind.examples
                parts.append(f"```pycon\n{text.strip()}\n```" if is_code else text)
        elif kind is griffe.DocstringSectionKind.admonition:
            parts.append(section.value.description)
        else:
            title = {"returns": "Returns", "raises": "Raises", "attributes": "Attributes"}.get(
                kind.value, kind.value.capitalize()
            )
            lines = []
            for entry in section.value:
                name = getattr(entry, "name", "") or ""
                annotation = "" if entry.annotation is None or name.startswith("*") else f" ({entry.annotation})"
                head = f"`{name}`{annotation}" if name else f"{entry.annotation}"
                lines.append(f"- {head}: {_description(entry.description)}")
            parts.append(f"{title}:\n\n" + "\n".join(lines))
    return parts


def _description(text: str) -> str:
    """A description on one line, with its list items as a nested list."""
    first, *items = [" ".join(item.split()) for item in re.split(r"^- ", text, flags=re.MULTILINE)]
    return "".join([first, *(f"\n    - {item}" for item in items)])


def _fence_examples(text: str) -> str:
    return re.sub(r"^>>> .*(?:\n.+)*", r"```pycon\n\g<0>\n```", text, flags=re.MULTILINE)


def _fields(item: griffe.Class) -> list[str]:
    """Documented fields of a dataclass, with type, default and description."""
    lines = []
    for name, attribute in item.attributes.items():
        if name.startswith("_") or attribute.docstring is None or attribute.annotation is None:
            continue
        default = "" if attribute.value is None else f" = {attribute.value}"
        text = " ".join(attribute.docstring.value.split())
        lines.append(f"- `{name}: {attribute.annotation}{default}`  \n  {text}")
    return ["\n".join(lines)] if lines else []


def command_line() -> str:
    """The command-line page."""
    from imix.cli import COMMANDS

    parts = [
        "# Command line",
        "Commands and flags have the names and defaults of the Python functions. This page is generated from "
        "`imix COMMAND --help` by `python docs/generate.py`.",
    ]
    for name in COMMANDS:
        command = [sys.executable, "-m", "imix", name, "--help"]
        environment = os.environ | {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
        help_text = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        body = "\n".join(line.rstrip() for line in help_text.strip().splitlines())
        parts.append(f"## imix {name}\n\n```text\n{body}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write or check the generated pages."""
    check = "--check" in sys.argv[1:]
    for name, text in (("reference.md", reference()), ("command-line.md", command_line())):
        path = DOCS / name
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is out of date; run python docs/generate.py")


if __name__ == "__main__":
    main()
