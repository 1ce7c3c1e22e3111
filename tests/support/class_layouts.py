"""Miniatures of the class data sets, in the files and folders in which they were published."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from .pose_sets import packed, struct

#: Training and test classes of metric learning, with the same number of images each.
CUB_CLASSES = [*range(1, 9), *range(101, 105)]
CARS_CLASSES = [*range(1, 9), 99, 100, 174, 196]
SUPER_CLASSES = ("bicycle", "cabinet", "chair", "coffee_maker", "fan", "kettle")
SUPER_CLASSES += ("lamp", "mug", "sofa", "stapler", "table", "toaster")


def picture(number, item, size=(28, 22)):
    """Noise around the colour of a class, which a model learns in an epoch."""
    colour = np.random.default_rng([number, 1]).integers(30, 225, 3)
    noise = np.random.default_rng([number, 2, item]).normal(0, 25, (size[1], size[0], 3))
    return Image.fromarray((colour + noise).clip(0, 255).astype(np.uint8))


def save(path, number, item, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(number, item, **options).save(path)


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def write_cub(folder, classes=CUB_CLASSES, per_class=5):
    """`CUB_200_2011` as its archive unpacks; the names of 200 classes, images of some."""
    root = folder / "CUB_200_2011"
    names = {number: f"{number:03d}.Black_footed_Bird_{number}" for number in range(1, 201)}
    images = []
    for number in classes:
        for item in range(1, per_class + 1):
            name = f"{names[number]}/Black_Footed_Bird_{number}_{item:04d}_{7 * item}.jpg"  # not the folder's case
            save(root / "images" / name, number, item)
            images.append((name, number, item))
    numbered = list(enumerate(images, start=1))
    write_lines(root / "images.txt", [f"{i} {name}" for i, (name, _, _) in numbered])
    write_lines(root / "image_class_labels.txt", [f"{i} {number}" for i, (_, number, _) in numbered])
    write_lines(root / "classes.txt", [f"{number} {name}" for number, name in names.items()])
    write_lines(root / "train_test_split.txt", [f"{i} {i % 2}" for i, _ in numbered])
    write_lines(root / "bounding_boxes.txt", [f"{i} {2.0 + item} 3.0 16.0 12.0" for i, (_, _, item) in numbered])
    return root


def records(fields, table):
    """A 1 x N struct array."""
    rows = ([value if isinstance(value, str) else packed(value) for value in row] for row in table)
    return struct([dict(zip(fields, row, strict=True)) for row in rows])


def class_names():
    names = [f"Model {number} Sedan 2012" for number in range(1, 197)]
    names[173] = "Ram C/V Cargo Van Minivan 2012"
    cells = np.empty((1, 196), dtype=object)
    cells[0] = names
    return cells


_BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


def write_cars_old(folder, classes=CARS_CLASSES, per_class=5, wide=False):
    """`cars_annos.mat` and `car_ims`; wide: pictures whose boxes need two bytes."""
    table = []
    for number in classes:
        for item in range(per_class):
            name = f"car_ims/{len(table) + 1:06d}.jpg"
            size = (300, 260) if wide else (28, 22)
            save(folder / name, number, item, size=size)
            box = (1, 1, size[0], size[1]) if item % 2 else (4, 3, size[0] - 2, size[1] - 1)
            table.append((name, *box, number, item % 2))
    found = records(("relative_im_path", *_BOX, "class", "test"), table)
    savemat(folder / "cars_annos.mat", {"annotations": found, "class_names": class_names()})


def write_cars_new(folder, classes=CARS_CLASSES, per_class=5, labelled=True):
    """`cars_train`, `cars_test` and `devkit`: three of five images of each class are in the official training half."""
    halves = {"train": [], "test": []}
    for number in classes:
        for item in range(per_class):
            half = "train" if item % 5 < 3 else "test"
            name = f"{len(halves[half]) + 1:05d}.jpg"
            save(folder / f"cars_{half}" / name, number, item)
            halves[half].append((4, 3, 26, 21, number, name))
    devkit = folder / "devkit"
    devkit.mkdir()
    savemat(devkit / "cars_meta.mat", {"class_names": class_names()})
    fields = (*_BOX, "class", "fname")
    savemat(devkit / "cars_train_annos.mat", {"annotations": records(fields, halves["train"])})
    without = [(*row[:4], row[5]) for row in halves["test"]]
    savemat(devkit / "cars_test_annos.mat", {"annotations": records((*_BOX, "fname"), without)})
    if labelled:
        savemat((folder / "cars_test_annos_withlabels.mat"), {"annotations": records(fields, halves["test"])})


def write_sop(folder, train=range(1, 9), test=range(11319, 11323), per_class=5):
    """`Stanford_Online_Products`; ids of images go on from one list to the next."""
    root = folder / "Stanford_Online_Products"
    image = 0
    for part, classes in (("train", train), ("test", test)):
        lines = ["image_id class_id super_class_id path"]
        for number in classes:
            kind = number % 12
            for item in range(per_class):
                image += 1
                name = f"{SUPER_CLASSES[kind]}_final/{111085122871 + number}_{item}.JPG"
                save(root / name, number, item)
                lines.append(f"{image} {number} {kind + 1} {name}")
        write_lines(root / f"Ebay_{part}.txt", lines)
    return root


def write_inshop(folder, train=8, test=4, per_class=5, tree="img"):
    """`Eval/list_eval_partition.txt` and `Img/img`: two images of each test garment are queries."""
    rows = []
    for number in range(1, train + test + 1):
        kind = "WOMEN/Dresses" if number % 2 else "MEN/Jackets_Vests"
        for item in range(per_class):
            # The same garment in two colours: the number before the first "_".
            name = f"img/{kind}/id_{number:08d}/{item % 2 + 1:02d}_{item}_front.jpg"
            save(folder / "Img" / name.replace("img/", f"{tree}/", 1), number, item)
            status = "train" if number <= train else "query" if item < 2 else "gallery"
            rows.append(f"{name:<70}id_{number:08d} {status:<12}")
    write_lines(folder / "Eval/list_eval_partition.txt", [len(rows), "image_name item_id evaluation_status", *rows])


def write_folders(folder, train=8, test=4, per_class=5):
    """`train/CLASS/*.png` and `test/CLASS/*.png`."""
    for number in range(train + test):
        part = "train" if number < train else "test"
        for item in range(per_class):
            save(folder / part / f"class {number:02d}" / f"{item}.png", number, item)


def write_class_table(
    folder, train=8, test=4, per_class=5, name="images.csv", columns=("file", "class_name", "split"), kind="kind {}"
):
    """Images and a CSV file of them."""
    rows = []
    for number in range(train + test):
        for item in range(per_class):
            file = f"images/{number:03d}_{item}.png"
            save(folder / file, number, item)
            rows.append((file, kind.format(number), "train" if number < train else "test"))
    with Path(folder / name).open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([columns, *rows])
