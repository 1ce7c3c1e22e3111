"""Drawn people in the official files of MPII Human Pose, COCO keypoints, LSP and LSPET."""

import json

import numpy as np
from PIL import Image
from scipy.io import savemat

from contml.tasks.pose.drawn_persons import draw_person

SIZE = 64  # of a person
FRAME = (200, 90)  # of an image with two of them
#: The joints of MPII from those of LSP: one joint, or the middle of two.
MPII_OF_LSP = (0, 1, 2, 3, 4, 5, (2, 3), (8, 9), 12, 13, 6, 7, 8, 9, 10, 11)
#: The joints of COCO from those of LSP: the face is some point between neck and head.
COCO_OF_LSP = ((12, 13), 13, 13, (13, 9), (13, 8), 9, 8, 10, 7, 11, 6, 3, 2, 4, 1, 5, 0)
COCO_PAIRS = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
COCO_NAMES = ["nose", *(f"{side}_{part}" for part in COCO_PAIRS for side in ("left", "right"))]
COCO_SKELETON = [
    [16, 14], [14, 12], [17, 15], [15, 13], [12, 13], [6, 12], [7, 13], [6, 7], [6, 8], [7, 9], [8, 10], [9, 11],
    [2, 3], [1, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7],
]  # fmt: skip
EMPTY = np.zeros((0, 0))
#: Changes to a config for one short training.
SHORT = [
    *("images.resize=36", "images.crop=32", "transform.scale_jitter=2", "transform.shift=1", "model.dim=8"),
    *("sampler.batch_size=10", "sampler.anchors_per_batch=2", "sampler.neighbours=2", "sampler.batches=3"),
    "training.epochs=1",
]


def scene(index, people=2, seed=0):
    """Pixels of an image with people, and their joints [people, 14, 2], counted from 0."""
    random = np.random.default_rng([seed, index])
    pixels = random.integers(0, 40, (FRAME[1], FRAME[0], 3)).astype(np.uint8)
    joints = []
    for place in range(people):
        person, points = draw_person(seed, 10 * index + place, SIZE)
        x, y = 8 + 92 * place + int(random.integers(0, 20)), int(random.integers(0, FRAME[1] - SIZE))
        pixels[y : y + SIZE, x : x + SIZE] = person
        joints.append(points + np.array([x, y]))
    return pixels, np.array(joints, np.float64).reshape(-1, 14, 2)


def converted(joints, table):
    """Joints of another data set from those of LSP."""
    return np.stack([joints[..., np.atleast_1d(entry), :].mean(-2) for entry in table], -2)


# MPII


def struct(records):
    """A 1xN struct array as MATLAB stores it: every element has every field, an empty matrix where it has no value."""
    names = [*dict.fromkeys(name for record in records for name in record)]
    array = np.empty((1, len(records)), [(name, object) for name in names])
    for k, record in enumerate(records):
        array[0, k] = tuple(record.get(name, EMPTY) for name in names)
    return array


def packed(value):
    """A number as MATLAB writes it: the smallest type that holds a whole one."""
    if value != int(value):
        return np.float64(value)
    for kind in (np.uint8, np.int8, np.uint16, np.int16):
        if np.iinfo(kind).min <= value <= np.iinfo(kind).max:
            return kind(value)
    return np.float64(value)


def annopoints(joints, seen, form, random, absent=()):
    """The points of a person in any order; `form` is how is_visible is written."""
    points = []
    for joint in random.permutation(len(joints)).tolist():
        if joint in absent:
            continue
        point = {"x": packed(joints[joint, 0] + 1), "y": packed(joints[joint, 1] + 1), "id": packed(joint)}
        if form == "number":
            point["is_visible"] = packed(int(seen[joint]))
        elif form == "character":
            point["is_visible"] = str(int(seen[joint]))
        elif form == "empty":
            point["is_visible"] = EMPTY if joint in (8, 9) else packed(int(seen[joint]))
        points.append(point)
    return struct([{"point": struct(points)}])


def write_mpii(folder, images=30, people=2, frames_a_video=2, seed=0):
    """Write a miniature and return its content: {(image, person from 1): (joints, marked, seen)}.

    Entry 0 is a test image with scale and objpos only, 1 has no annotations, 2 is a training image without people. In 3
    the second person has one joint without is_visible, and the third has no joints.
    """
    random = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    entries, train, truth = [], [], {}
    forms = ["number", "character", "empty", "missing"]
    for index in range(images + 3):
        name = f"{random.integers(0, 10**8):09d}.jpg"
        count = 0 if index == 2 else people
        pixels, found = scene(index, count, seed)
        Image.fromarray(pixels).save(folder / "images" / name, quality=95)
        joints = converted(found, MPII_OF_LSP)
        joints = np.where(np.isin(np.arange(16), (8, 9))[:, None], joints, np.rint(joints))  # as they are published
        training = index > 1
        rectangles = []
        for person in range(count):
            centre, height = joints[person].mean(0), np.ptp(joints[person], axis=0).max()
            rectangle = {
                "scale": np.float64(height / 200),
                "objpos": struct([{"x": packed(round(centre[0]) + 1), "y": packed(round(centre[1]) + 1)}]),
            }
            if training:
                form = forms[(index + person) % 4]
                seen = random.random(16) < 0.8
                if form == "empty":
                    seen[[8, 9]] = True
                if form == "missing":
                    seen[:] = True
                absent = {0, 5} if index % 7 == 6 and person == 0 else set()
                if index == 3 and person == 1:
                    form, absent, seen = "missing", set(range(1, 16)), np.ones(16, bool)
                rectangle |= {
                    "x1": packed(3), "y1": packed(4), "x2": packed(9), "y2": packed(20),
                    "annopoints": annopoints(joints[person], seen, form, random, absent),
                }  # fmt: skip
                truth[name, person + 1] = joints[person], (~np.isin(np.arange(16), [*absent])), seen
            rectangles.append(rectangle)
        if index == 3:
            rectangles.append({"scale": np.float64(1.5)})
        entries.append(
            {
                "image": struct([{"name": name}]),
                "annorect": struct(rectangles) if rectangles and index != 1 else EMPTY,
                "frame_sec": packed(index),
                "vididx": packed(1 + index // frames_a_video),
            }
        )
        train.append(packed(int(training)))
    save_mpii(folder, entries, train)
    return truth


def save_mpii(folder, entries, train):
    single = np.empty((len(entries), 1), object)
    for k in range(len(entries)):
        single[k, 0] = EMPTY if k == 2 else np.array([[1]], np.uint8)
    release = struct(
        [
            {
                "annolist": struct(entries),
                "img_train": np.array([train], np.uint8),
                "version": "12",
                "single_person": single,
                "act": struct([{"act_name": "running", "cat_name": "sports", "act_id": packed(1)}] * len(entries)).T,
                "video_list": np.array([["one", "two"]], object),
            }
        ]
    )
    savemat(folder / "mpii_human_pose_v1_u12_1.mat", {"RELEASE": release}, do_compression=True)


# COCO


def write_keypoints(folder, train=24, test=12, people=2, seed=0):
    """Write a miniature of COCO 2017 and return its content: {annotation id: (joints, v)}."""
    truth = {}
    (folder / "annotations").mkdir(parents=True)
    for part, first, count in (("train", 0, train), ("val", 1000, test)):
        (folder / f"{part}2017").mkdir()
        images, notes = [], []
        for index in range(first, first + count):
            random = np.random.default_rng([seed, index, 1])
            pixels, found = scene(index, people, seed)
            name = f"{index:012d}.jpg"
            Image.fromarray(pixels).save(folder / f"{part}2017" / name, quality=95)
            images.append({"id": index, "file_name": name, "width": FRAME[0], "height": FRAME[1], "license": 1})
            for person, joints in enumerate(np.rint(converted(found, COCO_OF_LSP))):
                v = random.choice([1, 2], 17)
                v[random.permutation(17)[: random.integers(0, 4)]] = 0
                low, high = joints.min(0), joints.max(0)
                number = 10 * index + person
                truth[number] = joints, v
                notes.append(
                    {
                        "id": number,
                        "image_id": index,
                        "category_id": 1,
                        "iscrowd": 0,
                        "area": 100.0,
                        "segmentation": [[1, 1, 2, 2, 3, 1]],
                        "bbox": [*low.tolist(), *(high - low).tolist()],
                        "num_keypoints": int((v > 0).sum()),
                        "keypoints": [n for (x, y), k in zip(joints, v, strict=True) for n in triple(x, y, k)],
                    }
                )
        save_keypoints(folder, part, images, notes)
    return truth


def triple(x, y, v):
    return (int(x), int(y), int(v)) if v else (0, 0, 0)


def save_keypoints(folder, part, images, notes):
    category = {
        "supercategory": "person",
        "id": 1,
        "name": "person",
        "keypoints": COCO_NAMES,
        "skeleton": COCO_SKELETON,
    }
    content = {"info": {}, "licenses": [], "images": images, "annotations": notes, "categories": [category]}
    (folder / "annotations" / f"person_keypoints_{part}2017.json").write_text(json.dumps(content))


# LSP and LSPET


def write_lsp(folder, lsp=20, lspet=30, seed=0):
    """Write a miniature of both; returns {"LSP": joints [n,14,2] and hidden, "LSPET": joints and inside}."""
    truth = {}
    for kind, name, count, digits in (("LSP", "lsp_dataset", lsp, 4), ("LSPET", "lspet_dataset", lspet, 5)):
        if not count:
            continue
        (folder / name / "images").mkdir(parents=True)
        random = np.random.default_rng([seed, digits])
        joints = np.empty((count, 14, 2))
        flags = random.random((count, 14)) < (0.1 if kind == "LSP" else 0.9)
        for index in range(count):
            pixels, joints[index] = draw_person(seed, 100 * digits + index, SIZE)
            Image.fromarray(pixels).save(folder / name / "images" / f"im{index + 1:0{digits}d}.jpg", quality=95)
        values = np.concatenate([joints + 1, flags[:, :, None]], 2)  # [n,14,3]
        if kind == "LSPET":
            values[~flags, :2] = -300.5  # outside the frame, and of no use
        order = (2, 1, 0) if kind == "LSP" else (1, 2, 0)
        savemat(folder / name / "joints.mat", {"joints": values.transpose(order)})
        truth[kind] = joints, flags
    return truth


def pose_files(folder, items=30, hidden=()):
    """A miniature of pose data of your own; `hidden` are rows with half of their joints visible."""
    random = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    names = [f"person{i:02}.jpg" for i in range(items)]
    for name in names:
        Image.fromarray(random.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(folder / "images" / name)
    visible = np.ones((items, 14), dtype=bool)
    visible[list(hidden), :7] = False
    values = {
        "names": np.array(names),
        "joints": random.uniform(0, 40, (items, 14, 2)),
        "visible": visible,
        "split": np.array(["train"] * (items - 10) + ["query"] * 3 + ["test"] * 7),
    }
    np.savez(folder / "joints.npz", **values)
    return values
